//! Rules for contents: they may have to wait for more bytes before they can decide.

use super::context::{EvalContext, EvalPhase};
use super::set::set;
use crate::generation::{ContentAction, Question, Rule, Setting, Silence};
use manylane_buf::Chain;
use manylane_expr::{Absent, Direction, Expression, Truth, VariableId};
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

/// What rules do once, although those before one that waits for more bytes are looked at again with these:
/// names that they look up, and general counters that they count in.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Rules before this one have looked up what they want.
    done: Cell<usize>,
    /// Rules that have counted: the first ones a bit each.
    counted: Cell<u128>,
    /// Rules before this one have counted, of those that have no bit.
    counted_before: Cell<usize>,
    /// What is to be looked up now: by which section, and for which variable.
    next: RefCell<Option<(usize, VariableId, Arc<Question>)>>,
}

impl Lookups {
    /// Whether the rule at this place is to count: it did not yet.
    fn counts(&self, at: usize) -> bool {
        let Some(bit) = u32::try_from(at).ok().and_then(|at| 1_u128.checked_shl(at)) else {
            return at >= self.counted_before.replace(self.counted_before.get().max(at + 1));
        };
        self.counted.replace(self.counted.get() | bit) & bit == 0
    }

    /// Looks up what a rule wants, as long as that takes.
    pub(crate) async fn look_up(&self, eval: &EvalContext<'_>, phase: EvalPhase<'_>) {
        let Some((section, variable, question)) = self.next.take() else { return };
        if let Some(address) = eval.local.look_up(section, question).await {
            eval.learn(phase, variable, address);
        }
    }
}

/// What `rules` decide about what is there at `phase`. Rules that come before one that waits are done again
/// with it. `log` writes a line of what is known by now.
pub(crate) fn content(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    rules: &[Rule<ContentAction>],
    log: &dyn Fn(),
    lookups: &Lookups,
) -> Content {
    for (at, rule) in rules.iter().enumerate() {
        let verdict = match &rule.condition {
            None => Truth::Pass,
            Some(condition) => eval.with(phase, |env, scratch| condition.eval(env, scratch)),
        };
        match verdict {
            Truth::Fail => continue,
            Truth::Wait => return Content::Wait,
            Truth::Pass => {}
        }
        let end = |content| {
            eval.scopes.memory.last_rule.set(rule.line);
            content
        };
        match &rule.action {
            ContentAction::Accept => return end(Content::Accept),
            ContentAction::Reject => return end(Content::Reject),
            ContentAction::SilentDrop(silence) => return end(Content::Drop(*silence)),
            ContentAction::Close => return end(Content::Close),
            ContentAction::DoLog => log(),
            ContentAction::Resolve(_) if at < lookups.done.get() => {}
            ContentAction::Resolve(lookup) if may_change(eval, phase, &lookup.name) => {
                return Content::Wait;
            }
            ContentAction::Resolve(lookup) => {
                lookups.done.set(at + 1);
                if let Some(question) = eval.question(phase, lookup) {
                    lookups.next.replace(Some((lookup.section, lookup.variable, Arc::new(question))));
                    return Content::LookUp;
                }
            }
            // What is there is captured, as soon as there is something.
            ContentAction::Set(Setting::Capture(expression, _)) if is_to_come(eval, phase, expression) => {
                return Content::Wait;
            }
            // A key that may still change is waited for.
            ContentAction::Set(Setting::Track(track)) if may_change(eval, phase, &track.key) => {
                return Content::Wait;
            }
            ContentAction::Set(Setting::General(general)) if !general.is_tag && !lookups.counts(at) => {}
            // Other expressions do not wait: what is not there now is not set.
            ContentAction::Set(setting) => set(eval, EvalPhase { may_grow: false, ..phase }, setting),
        }
    }
    Content::Accept
}

/// Whether the first sample is still to come: there is none yet, or it is of no bytes at all.
fn is_to_come(eval: &EvalContext<'_>, phase: EvalPhase<'_>, expression: &Expression) -> bool {
    let data = match phase.direction() {
        Direction::Request => phase.request_data,
        Direction::Response => phase.response_data,
    };
    let nothing = data.bytes.is_none_or(Chain::is_empty);
    phase.may_grow
        && eval.with(phase, |env, scratch| {
            let mut scratch = scratch.reborrow();
            match expression.eval(env, &mut scratch) {
                Ok(sample) => sample.may_change && nothing,
                Err(absent) => absent == Absent::NotYet,
            }
        })
}

/// Whether there may be another sample when more bytes are here.
fn may_change(eval: &EvalContext<'_>, phase: EvalPhase<'_>, expression: &Expression) -> bool {
    phase.may_grow
        && eval.with(phase, |env, scratch| {
            let mut scratch = scratch.reborrow();
            match expression.eval(env, &mut scratch) {
                Ok(sample) => sample.may_change,
                Err(absent) => absent == Absent::NotYet,
            }
        })
}
