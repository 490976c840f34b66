//! What rules do when their list begins again with more bytes.

use super::context::{EvalContext, EvalPhase};
use manylane_buf::Chain;
use manylane_expr::{Absent, Direction, Expression};
use manylane_plan::generation::{Action, Setting};
use std::cell::Cell;

/// Rules whose actions must happen once, although rules before a waiting one run again with it: name lookups,
/// log lines, and increments of general counters.
#[derive(Debug, Default)]
pub struct Once {
    /// Bit set of the first 128 rules.
    first: Cell<u128>,
    /// Later rules before this index have acted.
    later: Cell<usize>,
}

/// What a rule that applies does.
pub(super) enum Repeat {
    /// Its action.
    Run,
    /// Nothing: its action has happened.
    Skip,
    /// It waits for more bytes.
    Wait,
}

impl Once {
    /// Returns what the rule at `at` does.
    pub(super) fn repeat(
        &self,
        eval: &EvalContext<'_>,
        phase: EvalPhase<'_>,
        at: usize,
        action: &Action,
    ) -> Repeat {
        let acts_once = match action {
            Action::Set(Setting::GeneralCounter(general)) => !general.is_tag,
            Action::Resolve(_) | Action::DoLog => true,
            _ => false,
        };
        if acts_once && self.has(at) {
            return Repeat::Skip;
        }
        let waits = match action {
            // A capture does not wait for all of its data, only for the first.
            Action::Set(Setting::Capture(expression, _)) => {
                let data = match phase.direction() {
                    Direction::Request => phase.request_data,
                    Direction::Response => phase.response_data,
                };
                may_change(eval, phase, expression, data.bytes.is_none_or(Chain::is_empty))
            }
            Action::Set(Setting::Track(track)) => may_change(eval, phase, &track.key, true),
            Action::Resolve(lookup) => may_change(eval, phase, &lookup.name, true),
            _ => false,
        };
        if waits {
            return Repeat::Wait;
        }
        if acts_once {
            self.mark(at);
        }
        Repeat::Run
    }

    fn bit(at: usize) -> Option<u128> {
        1_u128.checked_shl(u32::try_from(at).ok()?)
    }

    fn has(&self, at: usize) -> bool {
        match Self::bit(at) {
            Some(bit) => self.first.get() & bit != 0,
            None => at < self.later.get(),
        }
    }

    fn mark(&self, at: usize) {
        match Self::bit(at) {
            Some(bit) => self.first.set(self.first.get() | bit),
            None => self.later.set(self.later.get().max(at + 1)),
        }
    }
}

/// Returns true if there is no sample yet, but may be one with more bytes. With `changes`, also if more bytes
/// may change the sample.
fn may_change(eval: &EvalContext<'_>, phase: EvalPhase<'_>, expression: &Expression, changes: bool) -> bool {
    phase.may_grow
        && eval.with(phase, |env, scratch| {
            let mut scratch = scratch.reborrow();
            match expression.eval(env, &mut scratch) {
                Ok(sample) => sample.may_change && changes,
                Err(absent) => absent == Absent::NotYet,
            }
        })
}
