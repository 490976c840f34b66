//! One list of rules after another: what they do to a head, and what they decide.

use super::facts::{Facts, Moment, backend_named};
use crate::generation::{Action, ConnectionAction, Redirect, RedirectKind, Reply, Rule, Target};
use manylane_buf::Chain;
use manylane_expr::{Condition, Format};
use manylane_http::{EditError, Head, Known, Version};

/// What a list of rules decided.
pub(crate) enum Verdict {
    /// Nothing, or to allow.
    Continue,
    /// An answer of the proxy's own.
    Answer(Answer),
}

/// An answer that rules made.
pub(crate) enum Answer {
    /// The usual one with this status.
    Usual(u16),
    /// This one: its head, without fields about framing and the connection, and its body.
    Own(Box<Head>, Chain),
}

fn holds(facts: &Facts<'_>, moment: Moment<'_>, condition: &Option<Condition>) -> bool {
    match condition {
        None => true,
        Some(condition) => facts.with(moment, |env, scratch| condition.holds(env, scratch)),
    }
}

/// Whether a new connection is accepted.
pub(crate) fn connection(facts: &Facts<'_>, rules: &[Rule<ConnectionAction>]) -> bool {
    let first = rules.iter().find(|rule| holds(facts, Moment::default(), &rule.condition));
    first.is_none_or(|rule| rule.action == ConnectionAction::Accept)
}

impl Target {
    /// The first of `rules` that applies: a number, if the name that it makes is there.
    pub(crate) fn choose(
        rules: &[Rule<Self>],
        facts: &Facts<'_>,
        moment: Moment<'_>,
        find: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<usize> {
        let rule = rules.iter().find(|rule| holds(facts, moment, &rule.condition))?;
        match &rule.action {
            Self::Fixed(number) => Some(*number),
            Self::Named(format) => facts.with(moment, |env, scratch| find(format.eval(env, scratch)?)),
        }
    }

    /// The number of the backend that a rule chooses.
    pub(crate) fn backend(rules: &[Rule<Self>], facts: &Facts<'_>, moment: Moment<'_>) -> Option<usize> {
        Self::choose(rules, facts, moment, |name| backend_named(&facts.local.generation, name))
    }
}

/// Which head the rules change.
fn subject<'m>(moment: Moment<'m>, head: &'m Head, response: bool) -> Moment<'m> {
    if response { Moment { response: Some(head), ..moment } } else { Moment { request: Some(head), ..moment } }
}

/// Runs a list over `head`, the request's or, with `response`, the response's. `moment` has what else is there.
///
/// # Errors
/// When an edit has no room.
pub(crate) fn apply(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    rules: &[Rule<Action>],
    head: &mut Head,
    response: bool,
) -> Result<Verdict, EditError> {
    for rule in rules {
        let now = subject(moment, head, response);
        if !holds(facts, now, &rule.condition) {
            continue;
        }
        match &rule.action {
            Action::Allow => return Ok(Verdict::Continue),
            Action::Deny(status) => return Ok(Verdict::Answer(Answer::Usual(*status))),
            Action::Reply(reply) => return self::reply(facts, now, reply).map(Verdict::Answer),
            Action::Redirect(redirect) => {
                if let Some(answer) = self::redirect(facts, now, redirect)? {
                    return Ok(Verdict::Answer(answer));
                }
            }
            Action::SetVar(id, expression) => facts.with(now, |env, scratch| {
                let mut scratch = scratch.reborrow();
                let value = expression.eval(env, &mut scratch).ok().map(|sample| sample.value);
                env.variables.set(*id, value);
            }),
            Action::SetVarFmt(id, format) => facts.with(now, |env, scratch| {
                let value = format.eval(env, scratch).map(manylane_expr::Value::Str);
                env.variables.set(*id, value);
            }),
            Action::UnsetVar(id) => facts.with(now, |env, _| {
                env.variables.set(*id, None);
            }),
            Action::DelHeader(name) => {
                head.remove_fields(&**name);
            }
            Action::SetStatus(status, reason) => head.set_status(*status, reason.as_deref())?,
            Action::SetHeader(name, format) => edit(facts, moment, head, response, format, |head, value| head.set_field(&**name, value))?,
            Action::AddHeader(name, format) => edit(facts, moment, head, response, format, |head, value| head.add_field(&**name, value))?,
            Action::SetMethod(format) => edit(facts, moment, head, response, format, Head::set_method)?,
            Action::SetPath(format) => edit(facts, moment, head, response, format, Head::set_path)?,
            Action::SetPathq(format) => edit(facts, moment, head, response, format, Head::set_pathq)?,
            Action::SetQuery(format) => edit(facts, moment, head, response, format, Head::set_query)?,
            Action::SetUri(format) => edit(facts, moment, head, response, format, Head::set_uri)?,
        }
    }
    Ok(Verdict::Continue)
}

/// Bytes of a text that a rule makes, at most.
const LONGEST: usize = 8192;

/// Makes a text and changes the head by it.
fn edit(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    head: &mut Head,
    response: bool,
    format: &Format,
    change: impl FnOnce(&mut Head, &[u8]) -> Result<(), EditError>,
) -> Result<(), EditError> {
    // The text may be of the very bytes that are changed, so it is copied first.
    let mut text = [0; LONGEST];
    let length = facts.with(subject(moment, head, response), |env, scratch| {
        let made = format.eval(env, scratch)?;
        text.get_mut(..made.len())?.copy_from_slice(made);
        Some(made.len())
    });
    change(head, &text[..length.ok_or(EditError::Full)?])
}

fn reply(facts: &Facts<'_>, moment: Moment<'_>, reply: &Reply) -> Result<Answer, EditError> {
    let mut head = Head::response(Version::HTTP_11, reply.status, None)?;
    let mut body = Chain::new();
    facts.with(moment, |env, scratch| {
        for (name, format) in &reply.fields {
            let mut scratch = scratch.reborrow();
            head.add_field(&**name, format.eval(env, &mut scratch).unwrap_or_default())?;
        }
        if let Some(format) = &reply.body {
            body.append(format.eval(env, scratch).unwrap_or_default()).map_err(|_| EditError::NoMemory)?;
        }
        Ok::<(), EditError>(())
    })?;
    if !reply.content_type.is_empty() {
        head.add_field(Known::CONTENT_TYPE, &reply.content_type)?;
    } else if !body.is_empty() {
        head.add_field(Known::CONTENT_TYPE, b"text/plain")?;
    }
    Ok(Answer::Own(Box::new(head), body))
}

/// None: the target is empty, and that is ignored.
fn redirect(facts: &Facts<'_>, moment: Moment<'_>, redirect: &Redirect) -> Result<Option<Answer>, EditError> {
    let target = facts.with(moment, |env, scratch| redirect.target.eval(env, scratch).map(<[u8]>::to_vec));
    let target = target.unwrap_or_default();
    if redirect.ignore_empty && target.is_empty() {
        return Ok(None);
    }
    let location = match (redirect.kind, moment.request) {
        (RedirectKind::Location, _) | (_, None) => target,
        (kind, Some(request)) => {
            let pathq = |request: &Head| -> Vec<u8> {
                let path = request.path().unwrap_or(b"/");
                let mut all = path.to_vec();
                if redirect.drop_query {
                    if redirect.append_slash && !all.ends_with(b"/") {
                        all.push(b'/');
                    }
                } else if let Some(query) = request.query() {
                    all.push(b'?');
                    all.extend_from_slice(query);
                }
                all
            };
            match kind {
                RedirectKind::Scheme => {
                    let host = request.host().unwrap_or_default();
                    [&target[..], b"://", host, &pathq(request)].concat()
                }
                _ if target == b"/" => pathq(request),
                _ => [target, pathq(request)].concat(),
            }
        }
    };
    let mut head = Head::response(Version::HTTP_11, redirect.code, None)?;
    head.add_field(Known::LOCATION, &location)?;
    if let Some(cookie) = &redirect.cookie {
        head.add_field(Known::SET_COOKIE, cookie)?;
    }
    // Permanent ones may be kept.
    if !matches!(redirect.code, 301 | 308) {
        head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
    }
    Ok(Some(Answer::Own(Box::new(head), Chain::new())))
}
