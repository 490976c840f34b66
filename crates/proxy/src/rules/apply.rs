//! Runs lists of rules on a head and returns their decisions.

use super::answer::{self, Answer};
use super::context::{EvalContext, EvalPhase};
use super::log::Record;
use super::set::{millis, set};
use super::text::{LONGEST, Text};
use crate::lane::backend_named;
use manylane_balance::{Index, Servers};
use manylane_config::tree::LogStep;
use manylane_expr::{Condition, Format, VariableId, Writer};
use manylane_http::{EditError, Head, Version};
use manylane_plan::generation::{
    Action, ConnectionAction, DropMode, End, Frontend, NameMatch, NoTarget, Persist, Question, Rule, Target,
    TargetPart, TimeSource,
};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sync::Arc;
use manylane_sync::atomic::Ordering;
use std::time::Duration;

/// Decision of a list of rules, or what it needs before it continues.
pub(crate) enum RuleOutcome {
    /// No rule objects: the list has ended, or a rule allows the message.
    Continue,
    /// The proxy responds itself.
    Answer(End, Answer),
    /// The request is invalid.
    Bad,
    /// The connection closes without a response.
    Reject,
    /// The connection is dropped, and the client is not told.
    Drop(DropMode),
    /// The list continues after this time.
    Pause(Duration),
    /// The list continues when the body, or `least` bytes of it, has arrived, or after this time.
    Body { time: Duration, least: usize },
    /// The list continues when the TLS handshake behind early data is complete.
    Handshake,
    /// The list continues when this interim response was sent.
    Hint(Box<Head>),
    /// The list continues when a line was logged.
    Log,
    /// The list continues when the question was answered, with or without an address.
    Resolve { section: usize, variable: VariableId, question: Arc<Question> },
    /// The list continues after other tasks have run: `tune.max-rules-at-once`.
    Turn,
}

/// Kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleListKind {
    Request,
    Response,
    AfterResponse,
}

/// A list of rules, and the position in it.
pub(crate) struct Walk<'r> {
    rules: &'r [Rule<Action>],
    at: usize,
    list: RuleListKind,
    /// A failed edit ends the list.
    strict: bool,
    /// An interim response that later rules may extend.
    hint: Option<Box<Head>>,
}

impl<'r> Walk<'r> {
    fn new(rules: &'r [Rule<Action>], list: RuleListKind) -> Self {
        Self { rules, at: 0, list, strict: true, hint: None }
    }

    /// Begins a list of `http-request` rules.
    pub(crate) fn request(rules: &'r [Rule<Action>]) -> Self {
        Self::new(rules, RuleListKind::Request)
    }

    /// Begins a list of `http-response` rules.
    pub(crate) fn response(rules: &'r [Rule<Action>]) -> Self {
        Self::new(rules, RuleListKind::Response)
    }

    /// Returns the phase with `head` as the message that the rules edit.
    fn phase<'m>(&self, phase: EvalPhase<'m>, head: &'m Head) -> EvalPhase<'m> {
        match self.list {
            RuleListKind::Request => EvalPhase { request: Some(head), ..phase },
            RuleListKind::Response | RuleListKind::AfterResponse => {
                EvalPhase { response: Some(head), ..phase }
            }
        }
    }
}

/// Returns the position of the first of `rules` that applies: one without a condition, or whose condition
/// holds. All conditions see the same environment, which costs more to make than most conditions to evaluate.
fn first_that_applies<A>(eval: &EvalContext<'_>, phase: EvalPhase<'_>, rules: &[Rule<A>]) -> Option<usize> {
    if rules.first()?.condition.is_none() {
        return Some(0);
    }
    eval.with(phase, |env, scratch| {
        let mut holds = |condition: &Condition| condition.holds(env, &mut scratch.reborrow());
        rules.iter().position(|rule| rule.condition.as_ref().is_none_or(&mut holds))
    })
}

pub(super) fn holds(eval: &EvalContext<'_>, phase: EvalPhase<'_>, condition: &Option<Condition>) -> bool {
    match condition {
        None => true,
        Some(condition) => eval.with(phase, |env, scratch| condition.holds(env, scratch)),
    }
}

/// Returns true if one of the conditions holds.
pub(crate) fn any_holds(eval: &EvalContext<'_>, phase: EvalPhase<'_>, conditions: &[Condition]) -> bool {
    !conditions.is_empty()
        && eval.with(phase, |env, scratch| {
            conditions.iter().any(|condition| condition.holds(env, &mut scratch.reborrow()))
        })
}

/// Headers that a connection begins with, as its rules say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greets {
    /// A PROXY header.
    pub(crate) proxy: bool,
    /// NetScaler's, behind that.
    pub(crate) netscaler: bool,
}

/// Decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    Accepted(Greets),
    Rejected,
    /// The connection is dropped, and the client is not told.
    Dropped(DropMode),
}

/// Whether a new connection is accepted.
pub(crate) fn connection(
    eval: &EvalContext<'_>,
    rules: &[Rule<ConnectionAction>],
    step: LogStep,
) -> Entrance {
    let mut greets = Greets::default();
    for rule in rules {
        let phase = EvalPhase::default();
        if !holds(eval, phase, &rule.condition) {
            continue;
        }
        match &rule.action {
            ConnectionAction::Accept => break,
            ConnectionAction::Reject => return Entrance::Rejected,
            ConnectionAction::SilentDrop(silence) => return Entrance::Dropped(*silence),
            ConnectionAction::ExpectProxy => greets.proxy = true,
            ConnectionAction::ExpectNetScaler => greets.netscaler = true,
            ConnectionAction::DoLog => {
                let mut record = Record::new(eval.local.here().now());
                // As in HAProxy: there is no request yet, and the line shows the stream as refused.
                record.status = Some(0);
                record.ended = Termination::new(Cause::Refused, Phase::Request);
                record.write(step, eval);
            }
            ConnectionAction::Set(setting) => set(eval, phase, setting),
        }
    }
    Entrance::Accepted(greets)
}

/// Returns the action of the first rule that applies.
pub(crate) fn first_persist(
    rules: &[Rule<Persist>],
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> Option<Persist> {
    first_that_applies(eval, phase, rules).map(|at| rules[at].action)
}

/// Returns the server that `use-server` chooses. If the server of a rule is down, later rules decide,
/// unless servers are used even if they are down (`obeyed`: `option persist`, `force-persist`). A rule
/// that makes a name that no server has ends the search, as in HAProxy.
pub(crate) fn chosen_server(
    rules: &[Rule<Target>],
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    servers: &Servers,
    obeyed: bool,
) -> Option<Index> {
    for rule in rules.iter().filter(|rule| holds(eval, phase, &rule.condition)) {
        let index = match &rule.action {
            Target::Fixed(number) => servers.index(*number),
            Target::Named(format) => {
                eval.text(phase, format, |name| servers.by_name(std::str::from_utf8(name?).ok()?))
            }
        }?;
        if obeyed || servers[index].state().serves_its_own() {
            return Some(index);
        }
    }
    None
}

/// Returns the number of the backend that a frontend chooses: that of the first `use_backend` that applies,
/// or its `default_backend`. Unpublished ones are passed over unless `force-be-switch` holds. A rule that
/// makes a name that no backend has leaves the choice to `default_backend`.
pub(crate) fn chosen_backend(
    frontend: &Frontend,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> Option<usize> {
    let takes = |number: &usize| takes_streams(*number, frontend, eval, phase);
    let mut rules = &frontend.rules.use_backend[..];
    while let Some(at) = first_that_applies(eval, phase, rules) {
        match backend_of(&rules[at].action, eval, phase) {
            None => break,
            Some(number) if takes(&number) => return Some(number),
            Some(_) => rules = &rules[at + 1..],
        }
    }
    frontend.default_backend.filter(takes)
}

/// Returns whether a frontend may choose the backend: it is published, or `force-be-switch` holds.
pub(crate) fn takes_streams(
    number: usize,
    frontend: &Frontend,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> bool {
    eval.local.generation.backends[number].published.load(Ordering::Relaxed)
        || any_holds(eval, phase, &frontend.rules.force_switch)
}

/// Returns the number of the backend that a target names, if there is one of a name that it makes.
pub(crate) fn backend_of(target: &Target, eval: &EvalContext<'_>, phase: EvalPhase<'_>) -> Option<usize> {
    match target {
        Target::Fixed(number) => Some(*number),
        Target::Named(format) => {
            eval.text(phase, format, |name| backend_named(&eval.local.generation, name?))
        }
    }
}

/// Continues a list on `head`. `phase` has the other inputs.
///
/// # Errors
/// An edit failed.
pub(crate) fn apply(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    walk: &mut Walk<'_>,
    head: &mut Head,
) -> Result<RuleOutcome, EditError> {
    let mut left = match walk.list {
        RuleListKind::Request | RuleListKind::Response => eval.local.generation.process.rules_at_once,
        RuleListKind::AfterResponse => u32::MAX, // here the list cannot yield
    };
    let rules = walk.rules;
    while let Some(rule) = rules.get(walk.at) {
        if left == 0 {
            return Ok(RuleOutcome::Turn);
        }
        // Consecutive hints without conditions go into one interim response.
        if !(matches!(rule.action, Action::EarlyHint(..)) && rule.condition.is_none())
            && let Some(hint) = walk.hint.take()
        {
            return Ok(RuleOutcome::Hint(hint));
        }
        let rest = &rules[walk.at..];
        let rest = &rest[..rest.len().min(left as usize)];
        let found = first_that_applies(eval, walk.phase(phase, head), rest);
        let evaluated = found.map_or(rest.len(), |at| at + 1);
        walk.at += evaluated;
        left -= evaluated as u32;
        let Some(rule) = found.map(|at| &rest[at]) else { continue };
        match one(eval, phase, walk, &rule.action, head) {
            Ok(None) if rule.condition.is_some() && walk.hint.is_some() => {
                return Ok(walk.hint.take().map_or(RuleOutcome::Continue, RuleOutcome::Hint));
            }
            Ok(None) if matches!(rule.action, Action::Allow) => eval.scopes.memory.last_rule.set(rule.line),
            Ok(None) => {}
            Ok(Some(outcome)) => {
                if matches!(outcome, RuleOutcome::Answer(..) | RuleOutcome::Reject | RuleOutcome::Drop(_)) {
                    eval.scopes.memory.last_rule.set(rule.line);
                }
                return Ok(outcome);
            }
            Err(error) => {
                eval.rewrite_failed(phase);
                if walk.strict {
                    return Err(error);
                }
            }
        }
    }
    Ok(walk.hint.take().map_or(RuleOutcome::Continue, RuleOutcome::Hint))
}

/// Runs the lists of `http-after-response` on a response. `log` writes a line, for `do-log`.
///
/// # Errors
/// An edit failed.
pub(crate) fn after_response<'r>(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    lists: impl IntoIterator<Item = &'r [Rule<Action>]>,
    head: &mut Head,
    log: &dyn Fn(),
) -> Result<(), EditError> {
    for rules in lists {
        let mut walk = Walk::new(rules, RuleListKind::AfterResponse);
        // The configuration refuses rules that wait or respond in these lists.
        while let RuleOutcome::Log = apply(eval, phase, &mut walk, head)? {
            log();
        }
    }
    Ok(())
}

/// Runs one action.
fn one(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    walk: &mut Walk<'_>,
    action: &Action,
    head: &mut Head,
) -> Result<Option<RuleOutcome>, EditError> {
    let now = walk.phase(phase, head);
    let mut text = Text::new();
    match action {
        Action::Allow => {
            walk.at = walk.rules.len();
        }
        Action::Deny(status) => return Ok(Some(RuleOutcome::Answer(End::Denied, Answer::Usual(*status)))),
        Action::Metrics => {
            let target = head.target();
            let query = memchr::memchr(b'?', target).map_or(&[][..], |mark| &target[mark + 1..]);
            return Ok(Some(RuleOutcome::Answer(End::Answered, Answer::Metrics(query.into()))));
        }
        Action::Reply(end, reply) => {
            return answer::reply(eval, now, reply).map(|answer| Some(RuleOutcome::Answer(*end, answer)));
        }
        Action::Auth(realm) => {
            eval.parties().client_error();
            let absolute = head.target_parts().form == manylane_http::Form::Absolute;
            let of_proxy = absolute && eval.frontend.http.request_limits.proxy_header;
            let answer = answer::challenge(realm, of_proxy);
            return Ok(Some(RuleOutcome::Answer(End::Answered, answer)));
        }
        Action::Redirect(redirect) => {
            let answer = answer::redirect(eval, now, redirect)?;
            return Ok(answer.map(|answer| RuleOutcome::Answer(End::Answered, answer)));
        }
        Action::Reject => return Ok(Some(RuleOutcome::Reject)),
        Action::SilentDrop(silence) => return Ok(Some(RuleOutcome::Drop(*silence))),
        Action::Pause(TimeSource::Fixed(time)) => return Ok(Some(RuleOutcome::Pause(*time))),
        Action::Pause(TimeSource::Of(expression)) => {
            let number = eval.with(now, |env, scratch| expression.eval_int(env, scratch));
            return Ok(number.and_then(millis).map(RuleOutcome::Pause));
        }
        Action::WaitForBody(time, least) => {
            return Ok(Some(RuleOutcome::Body { time: *time, least: *least }));
        }
        Action::WaitForHandshake => {
            // Also behind a handshake that is complete by now: the request may still tell of early data.
            return Ok(eval.tls.map(|_| RuleOutcome::Handshake));
        }
        Action::Resolve(lookup) => {
            return Ok(eval.question(now, lookup).map(|question| RuleOutcome::Resolve {
                section: lookup.section,
                variable: lookup.variable,
                question: Arc::new(question),
            }));
        }
        Action::DoLog => return Ok(Some(RuleOutcome::Log)),
        Action::StrictMode(on) => walk.strict = *on,
        Action::EarlyHint(name, format) => {
            let mut hint = match walk.hint.take() {
                Some(hint) => hint,
                None => Box::new(Head::response(Version::HTTP_11, 103, None)?),
            };
            eval.text(now, format, |text| hint.add_field(&**name, text.ok_or(EditError::Full)?))?;
            walk.hint = Some(hint);
        }
        Action::Set(setting) => set(eval, now, setting),
        Action::DisableRepetition => eval.scopes.memory.no_repetition.set(true),
        Action::ChangeList { reference, how, key, value } => {
            let name = edit(eval, now, key, &mut text)?;
            let mut to = Text::new();
            if let Some(value) = value {
                edit(eval, now, value, &mut to)?;
            }
            // A list that refuses the change stays as it is, as in HAProxy.
            let _ = how.change(reference, name, to.bytes());
            crate::lane::replaced();
        }
        Action::DelHeader(name) => {
            head.remove_fields(&**name);
        }
        Action::DelHeaders(how) => {
            delete(eval, phase, walk, head, how);
        }
        Action::SetStatus(status, reason) => head.set_status(*status, reason.as_deref())?,
        Action::SetHeader(name, format) => {
            head.set_field(&**name, edit(eval, now, format, &mut text)?)?;
        }
        Action::AddHeader(name, format) => {
            head.add_field(&**name, edit(eval, now, format, &mut text)?)?;
        }
        Action::SetMethod(format) => head.set_method(edit(eval, now, format, &mut text)?)?,
        Action::SetPath(format) => head.set_path(edit(eval, now, format, &mut text)?)?,
        Action::SetPathq(format) => head.set_pathq(edit(eval, now, format, &mut text)?)?,
        Action::SetQuery(format) => head.set_query(edit(eval, now, format, &mut text)?)?,
        Action::SetUri(format) => head.set_uri(edit(eval, now, format, &mut text)?)?,
        Action::ReplaceHeader(name, regex, format) | Action::ReplaceValue(name, regex, format) => {
            edit(eval, now, format, &mut text)?;
            let template = &text;
            let by_members = matches!(action, Action::ReplaceValue(..));
            let mut at = head.find(&**name, None);
            while let Some(id) = at {
                at = head.find(&**name, Some(id));
                let Some(field) = head.field(id) else { continue };
                let (mut new, phase) = (Text::new(), walk.phase(phase, head));
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
        Action::ReplaceTarget(part, regex, format) => {
            edit(eval, now, format, &mut text)?;
            let template = &text;
            let mut new = Text::new();
            let whole = head.target();
            let pathq = pathq(head);
            let subject = match part {
                TargetPart::Path => head.path(),
                TargetPart::Pathq => pathq,
                TargetPart::Uri => Some(whole),
            };
            let Some(subject) = subject else { return Ok(None) };
            if new.replaced(eval, now, regex, template, subject)? {
                match part {
                    TargetPart::Path => head.set_path(new.bytes())?,
                    TargetPart::Pathq => head.set_pathq(new.bytes())?,
                    TargetPart::Uri => head.set_uri(new.bytes())?,
                }
            }
        }
        Action::NormalizeUri(how) => {
            let Some(pathq) = pathq(head) else { return Ok(None) };
            let mut bytes = [0; LONGEST];
            let mut out = Writer::new(&mut bytes);
            match how.write(pathq, &mut out) {
                Ok(()) if out.written() == pathq => {}
                Ok(()) => head.set_pathq(out.written())?,
                Err(NoTarget::Full) => return Err(EditError::Full),
                Err(NoTarget::Broken) => {
                    return Ok(Some(RuleOutcome::Bad));
                }
            }
        }
    }
    Ok(None)
}

/// Returns path and query, with the question mark, as in the target.
fn pathq(head: &Head) -> Option<&[u8]> {
    let target = head.target();
    let path = head.path()?;
    let start = path.as_ptr().addr() - target.as_ptr().addr();
    target.get(start..)
}

/// Puts the text that a format makes into `text`.
fn edit<'t>(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    format: &Format,
    text: &'t mut Text,
) -> Result<&'t [u8], EditError> {
    eval.text(phase, format, |made| text.set(made))?;
    Ok(text.bytes())
}

fn delete(eval: &EvalContext<'_>, phase: EvalPhase<'_>, walk: &Walk<'_>, head: &mut Head, how: &NameMatch) {
    // Names are compared without case. The matching fields are collected first, since the head cannot change
    // while expressions read it.
    let mut doomed = [false; manylane_http::MAX_FIELDS];
    eval.with(walk.phase(phase, head), |_, scratch| {
        for (field, doomed) in head.fields().zip(&mut doomed) {
            *doomed = how.matches(field.name, scratch);
        }
    });
    let mut doomed = doomed.iter();
    head.remove_where(|_| doomed.next().copied().unwrap_or(false));
}
