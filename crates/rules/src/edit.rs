//! Edits of heads.

use super::context::{EvalContext, EvalPhase};
use super::text::{LONGEST, Text};
use manylane_config::table::Ruleset;
use manylane_expr::Writer;
use manylane_http::{EditError, Head};
use manylane_plan::generation::{Edit, NameMatch, NoTarget, Normalizer, TargetPart};

/// Applies an edit to `head`, the message of the list.
pub(super) fn edit(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    list: Ruleset,
    head: &mut Head,
    edit: &Edit,
) -> Result<(), EditError> {
    let now = phase.about(list, Some(head));
    let mut text = Text::new();
    match edit {
        Edit::DelHeader(name) => {
            head.remove_fields(&**name);
        }
        Edit::DelHeaders(how) => {
            delete(eval, phase, list, head, how);
        }
        Edit::SetStatus(status, reason) => head.set_status(*status, reason.as_deref())?,
        Edit::SetHeader(name, format) => {
            head.set_field(&**name, text.format(eval, now, format)?)?;
        }
        Edit::AddHeader(name, format) => {
            head.add_field(&**name, text.format(eval, now, format)?)?;
        }
        Edit::SetMethod(format) => head.set_method(text.format(eval, now, format)?)?,
        Edit::SetPath(format) => head.set_path(text.format(eval, now, format)?)?,
        Edit::SetPathq(format) => head.set_pathq(text.format(eval, now, format)?)?,
        Edit::SetQuery(format) => head.set_query(text.format(eval, now, format)?)?,
        Edit::SetUri(format) => head.set_uri(text.format(eval, now, format)?)?,
        Edit::ReplaceHeader(name, regex, format) | Edit::ReplaceValue(name, regex, format) => {
            text.format(eval, now, format)?;
            let template = &text;
            let by_members = matches!(edit, Edit::ReplaceValue(..));
            let mut at = head.find(&**name, None);
            while let Some(id) = at {
                at = head.find(&**name, Some(id));
                let Some(field) = head.field(id) else { continue };
                let (mut new, phase) = (Text::new(), phase.about(list, Some(head)));
                let changed = if by_members {
                    new.members_replaced(eval, phase, regex, template, field.value)?
                } else {
                    new.replaced(eval, phase, regex, template, field.value)?
                };
                if changed {
                    head.replace_value(id, new.bytes())?;
                }
            }
        }
        Edit::ReplaceTarget(part, regex, format) => {
            text.format(eval, now, format)?;
            let template = &text;
            let mut new = Text::new();
            let whole = head.target();
            let pathq = pathq(head);
            let subject = match part {
                TargetPart::Path => head.path(),
                TargetPart::Pathq => pathq,
                TargetPart::Uri => Some(whole),
            };
            let Some(subject) = subject else { return Ok(()) };
            if new.replaced(eval, now, regex, template, subject)? {
                match part {
                    TargetPart::Path => head.set_path(new.bytes())?,
                    TargetPart::Pathq => head.set_pathq(new.bytes())?,
                    TargetPart::Uri => head.set_uri(new.bytes())?,
                }
            }
        }
    }
    Ok(())
}

/// Normalizes the target of a request. Returns false if it is invalid.
pub(super) fn normalize(head: &mut Head, how: &Normalizer) -> Result<bool, EditError> {
    let Some(pathq) = pathq(head) else { return Ok(true) };
    let mut bytes = [0; LONGEST];
    let mut out = Writer::new(&mut bytes);
    match how.write(pathq, &mut out) {
        Ok(()) if out.written() == pathq => {}
        Ok(()) => head.set_pathq(out.written())?,
        Err(NoTarget::Full) => return Err(EditError::Full),
        Err(NoTarget::Broken) => return Ok(false),
    }
    Ok(true)
}

/// Returns path and query, with the question mark, as in the target.
fn pathq(head: &Head) -> Option<&[u8]> {
    let target = head.target();
    let path = head.path()?;
    let start = path.as_ptr().addr() - target.as_ptr().addr();
    target.get(start..)
}

fn delete(eval: &EvalContext<'_>, phase: EvalPhase<'_>, list: Ruleset, head: &mut Head, how: &NameMatch) {
    // Names are compared without case. The matching fields are collected first, since the head cannot change
    // while expressions read it.
    let mut doomed = [false; manylane_http::MAX_FIELDS];
    eval.with(phase.about(list, Some(head)), |_, scratch| {
        for (field, doomed) in head.fields().zip(&mut doomed) {
            *doomed = how.matches(field.name, scratch);
        }
    });
    let mut doomed = doomed.iter();
    head.remove_where(|_| doomed.next().copied().unwrap_or(false));
}
