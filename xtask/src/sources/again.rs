//! Finds loops around a compare-and-swap that try again at once (R-E2): many cores that do so keep the line
//! from the one that would succeed. Checked where shared memory comes through `manylane_sync`: the bench has
//! stand-ins for what was replaced, which spin as their originals did.

use super::Check;
use proc_macro2::Span;
use syn::visit::Visit;

/// What lets others go first. A thread that parks or sleeps does, too.
const WAITS: [&str; 5] = ["wait", "relax", "yield_now", "sleep", "park"];

impl Check<'_> {
    /// A method call: `fetch_update` of std is such a loop.
    pub(super) fn method_again(&mut self, method: &syn::Ident) {
        if method == "fetch_update" && self.memory_checked() {
            let message = "`fetch_update` tries again at once; call `manylane_sync::update`, which backs off";
            self.find(method.span(), message.to_owned());
        }
    }

    /// A loop, with its condition.
    pub(super) fn loop_again(&mut self, at: Span, body: impl FnOnce(&mut Calls)) {
        let mut calls = Calls::default();
        body(&mut calls);
        if calls.exchanges && !calls.waits && self.memory_checked() {
            let message = "this loop repeats a compare-and-swap at once; call `manylane_sync::update`, or \
                `wait` of a `Backoff` after a failure";
            self.find(at, message.to_owned());
        }
    }
}

/// What a loop calls. Functions that it calls are not followed.
#[derive(Default)]
pub(super) struct Calls {
    exchanges: bool,
    waits: bool,
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.exchanges |= ident == "compare_exchange" || ident == "compare_exchange_weak";
        self.waits |= WAITS.iter().any(|wait| ident == wait);
    }

    // A loop within is checked by itself.
    fn visit_expr_loop(&mut self, _: &'ast syn::ExprLoop) {}

    fn visit_expr_while(&mut self, _: &'ast syn::ExprWhile) {}
}
