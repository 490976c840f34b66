//! Texts that rules make, on the stack.

use super::context::{EvalContext, EvalPhase};
use arrayvec::ArrayVec;
use manylane_expr::{Format, Regex};
use manylane_http::{EditError, List};

/// Most bytes of a text that a rule makes.
pub(super) const LONGEST: usize = 8192;

/// The text that a rule makes: a copy, since it may come from the very bytes that the rule changes. It is
/// large, so callers pass it by reference.
pub(super) struct Text(ArrayVec<u8, LONGEST>);

impl Text {
    pub(super) fn new() -> Self {
        Self(ArrayVec::new())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Replaces the text by the result of a format, and returns it.
    pub(super) fn format(
        &mut self,
        eval: &EvalContext<'_>,
        phase: EvalPhase<'_>,
        format: &Format,
    ) -> Result<&[u8], EditError> {
        eval.text(phase, format, |made| self.set(made))?;
        Ok(&self.0)
    }

    pub(super) fn set(&mut self, text: Option<&[u8]>) -> Result<(), EditError> {
        self.0.clear();
        self.push(text.ok_or(EditError::Full)?)
    }

    fn push(&mut self, more: &[u8]) -> Result<(), EditError> {
        self.0.try_extend_from_slice(more).map_err(|_| EditError::Full)
    }

    /// If `regex` matches `old`, appends `old` with the match replaced by `template` and returns true.
    pub(super) fn replaced(
        &mut self,
        eval: &EvalContext<'_>,
        phase: EvalPhase<'_>,
        regex: &Regex,
        template: &Self,
        old: &[u8],
    ) -> Result<bool, EditError> {
        eval.with(phase, |_, scratch| {
            if !regex.is_match(old, scratch) {
                return Ok(false);
            }
            let new = regex.expand(old, template.bytes(), scratch).ok_or(EditError::Full)?;
            self.push(new).map(|()| true)
        })
    }

    /// Like [`replaced`](Self::replaced) for each member of a comma-separated list; copies the text between
    /// members, without the blanks around those that it replaces, as HAProxy does.
    pub(super) fn members_replaced(
        &mut self,
        eval: &EvalContext<'_>,
        phase: EvalPhase<'_>,
        regex: &Regex,
        template: &Self,
        list: &[u8],
    ) -> Result<bool, EditError> {
        let mut changed = false;
        let mut copied = 0;
        for member in List::new(list) {
            let start = member.as_ptr().addr() - list.as_ptr().addr();
            let before = &list[copied..start];
            let kept = self.0.len();
            self.push(before.trim_ascii_end())?;
            copied = start + member.len();
            if self.replaced(eval, phase, regex, template, member)? {
                changed = true;
                copied = list.len() - list[copied..].trim_ascii_start().len();
            } else {
                self.0.truncate(kept);
                self.push(before)?;
                self.push(member)?;
            }
        }
        self.push(&list[copied..])?;
        Ok(changed)
    }
}
