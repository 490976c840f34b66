//! Rules for contents: they may have to wait for more bytes before they can decide.

use super::facts::{Facts, Moment};
use super::set::set;
use crate::generation::{ContentAction, Question, Rule, Setting, Silence};
use manylane_buf::Chain;
use manylane_expr::{Absent, Direction, Expression, VariableId, Verdict};
use manylane_sync::Arc;
use std::cell::{Cell, RefCell};

/// What rules for contents decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It goes on.
    Accept,
    /// More bytes are needed. Never, where nothing more comes at the moment.
    Wait,
    /// The connection ends.
    Reject,
    /// The same, and the client is not told.
    Drop(Silence),
    /// A name is to be looked up, and then the rules go on.
    LookUp,
    /// The server's connection ends, and the client gets what came.
    Close,
}

/// Names that rules look up, while they wait for more bytes: each rule does it once.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Rules before this one have looked up what they want.
    done: Cell<usize>,
    /// What is to be looked up now: by which section, and for which variable.
    next: RefCell<Option<(usize, VariableId, Arc<Question>)>>,
}

impl Lookups {
    /// Looks up what a rule wants, as long as that takes.
    pub(crate) async fn look_up(&self, facts: &Facts<'_>, moment: Moment<'_>) {
        let Some((section, variable, question)) = self.next.take() else { return };
        if let Some(address) = facts.local.look_up(section, question).await {
            facts.learn(moment, variable, address);
        }
    }
}

/// What `rules` decide about what is there at `moment`. Rules that come before one that waits are done again
/// with it. `log` writes a line of what is known by now.
pub(crate) fn content(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    rules: &[Rule<ContentAction>],
    log: &dyn Fn(),
    lookups: &Lookups,
) -> Content {
    for (at, rule) in rules.iter().enumerate() {
        let verdict = match &rule.condition {
            None => Verdict::Pass,
            Some(condition) => facts.with(moment, |env, scratch| condition.eval(env, scratch)),
        };
        match verdict {
            Verdict::Fail => continue,
            Verdict::Wait => return Content::Wait,
            Verdict::Pass => {}
        }
        let end = |content| {
            facts.scopes.memory.last_rule.set(rule.line);
            content
        };
        match &rule.action {
            ContentAction::Accept => return end(Content::Accept),
            ContentAction::Reject => return end(Content::Reject),
            ContentAction::SilentDrop(silence) => return end(Content::Drop(*silence)),
            ContentAction::Close => return end(Content::Close),
            ContentAction::DoLog => log(),
            ContentAction::Resolve(_) if at < lookups.done.get() => {}
            ContentAction::Resolve(lookup) if may_change(facts, moment, &lookup.name) => {
                return Content::Wait;
            }
            ContentAction::Resolve(lookup) => {
                lookups.done.set(at + 1);
                if let Some(question) = facts.question(moment, lookup) {
                    lookups.next.replace(Some((lookup.section, lookup.variable, Arc::new(question))));
                    return Content::LookUp;
                }
            }
            // What is there is captured, as soon as there is something.
            ContentAction::Set(Setting::Capture(expression, _)) if is_to_come(facts, moment, expression) => {
                return Content::Wait;
            }
            // Other expressions do not wait: what is not there now is not set.
            ContentAction::Set(setting) => set(facts, Moment { may_grow: false, ..moment }, setting),
        }
    }
    Content::Accept
}

/// Whether the first sample is still to come: there is none yet, or it is of no bytes at all.
fn is_to_come(facts: &Facts<'_>, moment: Moment<'_>, expression: &Expression) -> bool {
    let data = match moment.direction() {
        Direction::Request => moment.request_data,
        Direction::Response => moment.response_data,
    };
    let nothing = data.bytes.is_none_or(Chain::is_empty);
    moment.may_grow
        && facts.with(moment, |env, scratch| {
            let mut scratch = scratch.reborrow();
            match expression.eval(env, &mut scratch) {
                Ok(sample) => sample.may_change && nothing,
                Err(absent) => absent == Absent::NotYet,
            }
        })
}

/// Whether there may be another sample when more bytes are here.
fn may_change(facts: &Facts<'_>, moment: Moment<'_>, expression: &Expression) -> bool {
    moment.may_grow
        && facts.with(moment, |env, scratch| {
            let mut scratch = scratch.reborrow();
            match expression.eval(env, &mut scratch) {
                Ok(sample) => sample.may_change,
                Err(absent) => absent == Absent::NotYet,
            }
        })
}
