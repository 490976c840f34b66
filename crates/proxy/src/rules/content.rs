//! Content rules, which may wait for more bytes before they decide.

use super::context::{EvalContext, EvalPhase};
use super::set::set;
use manylane_buf::Chain;
use manylane_expr::{Absent, Direction, Expression, Truth, VariableId};
use manylane_http::Version;
use manylane_plan::generation::{ContentAction, DropMode, Question, Rule, Setting};
use manylane_sync::Arc;
use std::cell::{Cell, RefCell};

/// Result of content rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Continue.
    Accept,
    /// Wait for more bytes. Returned only if more bytes may arrive.
    Wait,
    /// Close the connection.
    Reject,
    /// Close the connection without notifying the client.
    Drop(DropMode),
    /// Look up a name, then run the rules again.
    LookUp,
    /// Continue with the next rule after other tasks have run: `tune.max-rules-at-once`.
    Turn,
    /// Close the connection to the server; the client gets the data received so far.
    Close,
    /// Continue in HTTP, of this version if there is one.
    SwitchMode(Option<Version>),
}

/// Actions that must happen only once, although rules before a waiting one run again with it: name lookups,
/// and increments of general counters. Also the position after a turn.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// The first rule to run: 0, except behind [`Content::Turn`].
    next_rule: Cell<usize>,
    /// Rules before this index have looked up their name.
    done: Cell<usize>,
    /// Bit set of the rules that have counted, for the first 128 rules.
    counted: Cell<u128>,
    /// Later rules before this index have counted.
    counted_before: Cell<usize>,
    /// The next lookup: `resolvers` section, variable and question.
    next: RefCell<Option<(usize, VariableId, Arc<Question>)>>,
}

impl Lookups {
    /// Begins at a rule, behind a turn.
    pub(crate) fn at(rule: usize) -> Self {
        Self { next_rule: Cell::new(rule), ..Self::default() }
    }

    /// Returns where the rules continue behind a turn.
    pub(crate) fn next_rule(&self) -> usize {
        self.next_rule.get()
    }

    /// Marks the rule at `at` as counted. Returns true the first time.
    fn counts(&self, at: usize) -> bool {
        let Some(bit) = u32::try_from(at).ok().and_then(|at| 1_u128.checked_shl(at)) else {
            return at >= self.counted_before.replace(self.counted_before.get().max(at + 1));
        };
        self.counted.replace(self.counted.get() | bit) & bit == 0
    }

    /// Runs the pending lookup and stores its result.
    pub(crate) async fn look_up(&self, eval: &EvalContext<'_>, phase: EvalPhase<'_>) {
        let Some((section, variable, question)) = self.next.take() else { return };
        if let Some(address) = eval.local.look_up(section, question).await {
            eval.learn(phase, variable, address);
        }
    }
}

/// Runs content rules on the data at `phase`. After a wait, the rules before the waiting one run again; after
/// a turn, they do not. `log` writes a log line.
pub(crate) fn content(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    rules: &[Rule<ContentAction>],
    log: &dyn Fn(),
    lookups: &Lookups,
) -> Content {
    let first = lookups.next_rule.take();
    let at_once = eval.local.generation.process.rules_at_once as usize;
    for (at, rule) in rules.iter().enumerate().skip(first) {
        if at - first == at_once {
            lookups.next_rule.set(at);
            return Content::Turn;
        }
        let truth = match &rule.condition {
            None => Truth::Pass,
            Some(condition) => eval.with(phase, |env, scratch| condition.eval(env, scratch)),
        };
        match truth {
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
            ContentAction::SwitchMode(version) => return end(Content::SwitchMode(*version)),
            ContentAction::DoLog if !lookups.counts(at) => {}
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
            // A capture does not wait for all of its data, only for the first.
            ContentAction::Set(Setting::Capture(expression, _)) if is_to_come(eval, phase, expression) => {
                return Content::Wait;
            }
            // Wait while the key may change.
            ContentAction::Set(Setting::Track(track)) if may_change(eval, phase, &track.key) => {
                return Content::Wait;
            }
            ContentAction::Set(Setting::GeneralCounter(general))
                if !general.is_tag && !lookups.counts(at) => {}
            // Other expressions do not wait; a value that is not there is not set.
            ContentAction::Set(setting) => set(eval, EvalPhase { may_grow: false, ..phase }, setting),
        }
    }
    Content::Accept
}

/// Returns true if the first sample may still arrive: there is none, or it is based on no bytes.
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

/// Returns true if more bytes may change the sample.
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
