//! Rules for contents: they may have to wait for more bytes before they can decide.

use super::apply::set_var;
use super::facts::{Facts, Moment};
use crate::generation::{ContentAction, Rule};
use manylane_expr::Verdict;

/// What rules for contents decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It goes on.
    Accept,
    /// More bytes are needed. Never, where the nothing more comes at the moment.
    Wait,
    /// The connection ends.
    Reject,
    /// The server's connection ends, and the client gets what came.
    Close,
}

/// What `rules` decide about what is there at `moment`. Rules that come before one that waits are done again with it.
pub(crate) fn content(facts: &Facts<'_>, moment: Moment<'_>, rules: &[Rule<ContentAction>]) -> Content {
    for rule in rules {
        let verdict = match &rule.condition {
            None => Verdict::Pass,
            Some(condition) => facts.with(moment, |env, scratch| condition.eval(env, scratch)),
        };
        match verdict {
            Verdict::Fail => continue,
            Verdict::Wait => return Content::Wait,
            Verdict::Pass => {}
        }
        match &rule.action {
            ContentAction::Accept => return Content::Accept,
            ContentAction::Reject => return Content::Reject,
            ContentAction::Close => return Content::Close,
            // An expression does not wait: what is not there now is not set.
            ContentAction::SetVar(id, value, when) => {
                set_var(facts, Moment { may_grow: false, ..moment }, *id, value, *when);
            }
            ContentAction::UnsetVar(id) => facts.with(moment, |env, _| {
                env.variables.set(*id, None);
            }),
        }
    }
    Content::Accept
}
