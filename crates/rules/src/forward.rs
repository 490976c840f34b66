//! `option forwarded`: adds the field to a request.

use super::text::Text;
use super::{EvalContext, EvalPhase};
use manylane_expr::{Writer, is_forwarded};
use manylane_http::{EditError, Head, List};
use manylane_plan::generation::Forwarded;

/// Adds the field to a request. As in HAProxy, the element is appended to the last `Forwarded` field. If an
/// existing field is invalid, the element gets a line of its own: behind an open quote it would become part
/// of the client's text.
pub fn forward(
    forwarded: &Forwarded,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    head: &mut Head,
) -> Result<(), EditError> {
    let mut text = Text::new();
    let (mut last, mut valid) = (None, true);
    while let Some(id) = head.find(b"forwarded", last) {
        valid &= head.field(id).is_some_and(|field| List::new(field.value).all(is_forwarded));
        last = Some(id);
    }
    let last = last.filter(|_| valid);
    let before = last.and_then(|id| head.field(id)).map(|field| field.value);
    let phase = EvalPhase { request: Some(head), ..phase };
    eval.with(phase, |env, scratch| {
        let mut out = Writer::new(scratch.take(super::text::LONGEST));
        let begun = match before {
            Some(before) => out.put(before).and_then(|()| out.push(b',')),
            None => Some(()),
        };
        let written = begun.and_then(|()| forwarded.write(env, scratch, &mut out));
        text.set(written.and_then(|()| out.into_written()))
    })?;
    match last {
        Some(id) => head.replace_value(id, text.bytes()),
        None => head.add_field(b"forwarded", text.bytes()),
    }
}
