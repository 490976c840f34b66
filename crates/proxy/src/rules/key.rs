//! Key for the balancing algorithm from an expression: `balance hash`.

use super::context::{EvalContext, EvalPhase};
use manylane_balance::Key;
use manylane_expr::Type;
use manylane_plan::generation::Backend;

/// Returns the hash of the backend's expression. Without a value the stream has no key, and goes to the
/// server whose turn it is.
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
