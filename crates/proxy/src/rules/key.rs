//! What an expression makes of a stream for the algorithm of its backend: `balance hash`.

use super::context::{EvalContext, EvalPhase};
use crate::generation::Backend;
use manylane_balance::Key;
use manylane_expr::Type;

/// The sample of the backend's expression as bytes, hashed. Where there is none, the stream gets its turn.
pub(crate) fn key(eval: &EvalContext<'_>, phase: EvalPhase<'_>, backend: &Backend) -> Key<'static> {
    let Some(expression) = &backend.rules.balance else { return Key::None };
    let function = backend.balancer.algorithm().hash_function();
    let hash = eval.with(phase, |env, scratch| {
        let mut scratch = scratch.reborrow();
        let value = expression.eval_as(Type::Bin, env, &mut scratch).ok()?;
        Some(function.hash(value.bytes()?))
    });
    hash.map_or(Key::None, Key::Number)
}
