//! One list of rules after another: what they do to a head, and what they decide.

use super::answer::{self, Answer, End};
use super::facts::{Facts, Moment, backend_named};
use super::memory::LogLevel;
use super::normalize::NoTarget;
use crate::generation::{
    Action, Addressed, Change, ConnectionAction, Made, NameMatch, Replaced, Rule, Target, TimeoutOf,
};
use manylane_expr::{Condition, Expression, Format, Regex, Type, Value, VariableId, When, Writer};
use manylane_http::{EditError, Head, List, Version};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What a list of rules decided, or asks for before it goes on.
pub(crate) enum Verdict {
    /// All rules were looked at, or one allowed.
    Continue,
    /// An answer of the proxy's own.
    Answer(End, Answer),
    /// The request is no good.
    Bad,
    /// The connection is closed without an answer.
    Reject,
    /// The same, and the client is not told.
    Drop,
    /// The list goes on after this time.
    Pause(Duration),
    /// The list goes on when the body is there, or so much of it, or after this time.
    Body {
        time: Duration,
        least: usize,
    },
    /// The list goes on when this interim response was sent.
    Hint(Box<Head>),
    /// The list goes on when a line was logged.
    Log,
}

/// Which list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Request,
    Response,
    AfterResponse,
}

/// A list of rules, and how far it was looked at.
pub(crate) struct Walk<'r> {
    rules: &'r [Rule<Action>],
    at: usize,
    list: Which,
    /// An edit that cannot be done ends it.
    strict: bool,
    /// An interim response that more rules may add to.
    hint: Option<Box<Head>>,
}

impl<'r> Walk<'r> {
    fn new(rules: &'r [Rule<Action>], list: Which) -> Self {
        Self { rules, at: 0, list, strict: true, hint: None }
    }

    /// `http-request`
    pub(crate) fn request(rules: &'r [Rule<Action>]) -> Self {
        Self::new(rules, Which::Request)
    }

    /// `http-response`
    pub(crate) fn response(rules: &'r [Rule<Action>]) -> Self {
        Self::new(rules, Which::Response)
    }

    /// What there is to look at: `head` is the message whose rules these are.
    fn moment<'m>(&self, moment: Moment<'m>, head: &'m Head) -> Moment<'m> {
        match self.list {
            Which::Request => Moment { request: Some(head), ..moment },
            Which::Response | Which::AfterResponse => Moment { response: Some(head), ..moment },
        }
    }
}

fn holds(facts: &Facts<'_>, moment: Moment<'_>, condition: &Option<Condition>) -> bool {
    match condition {
        None => true,
        Some(condition) => facts.with(moment, |env, scratch| condition.holds(env, scratch)),
    }
}

/// Whether one of them holds.
pub(crate) fn any_holds(facts: &Facts<'_>, moment: Moment<'_>, conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| facts.with(moment, |env, scratch| condition.holds(env, scratch)))
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    Accepted,
    Rejected,
    /// Rejected, and the client is not told.
    Dropped,
}

/// Whether a new connection is accepted.
pub(crate) fn connection(facts: &Facts<'_>, rules: &[Rule<ConnectionAction>]) -> Entrance {
    for rule in rules {
        let moment = Moment::default();
        if !holds(facts, moment, &rule.condition) {
            continue;
        }
        match &rule.action {
            ConnectionAction::Accept => return Entrance::Accepted,
            ConnectionAction::Reject => return Entrance::Rejected,
            ConnectionAction::SilentDrop => return Entrance::Dropped,
            ConnectionAction::SetVar(id, value, when) => set_var(facts, moment, *id, value, *when),
            ConnectionAction::UnsetVar(id) => facts.with(moment, |env, _| {
                env.variables.set(*id, None);
            }),
            ConnectionAction::SetAddress(which, expression) => set_address(facts, moment, *which, expression),
        }
    }
    Entrance::Accepted
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
            Self::Named(format) => facts.text(moment, format, |name| find(name?)),
        }
    }

    /// The number of the backend that a rule chooses.
    pub(crate) fn backend(rules: &[Rule<Self>], facts: &Facts<'_>, moment: Moment<'_>) -> Option<usize> {
        Self::choose(rules, facts, moment, |name| backend_named(&facts.local.generation, name))
    }
}

/// Goes on with a list over `head`. `moment` has what else is there.
///
/// # Errors
/// When an edit cannot be done.
pub(crate) fn apply(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    walk: &mut Walk<'_>,
    head: &mut Head,
) -> Result<Verdict, EditError> {
    while let Some(rule) = walk.rules.get(walk.at) {
        // Hints of one run of rules without conditions go together.
        if !(matches!(rule.action, Action::EarlyHint(..)) && rule.condition.is_none())
            && let Some(hint) = walk.hint.take()
        {
            return Ok(Verdict::Hint(hint));
        }
        walk.at += 1;
        if !holds(facts, walk.moment(moment, head), &rule.condition) {
            continue;
        }
        match one(facts, moment, walk, &rule.action, head) {
            Ok(None) if rule.condition.is_some() && walk.hint.is_some() => {
                return Ok(walk.hint.take().map_or(Verdict::Continue, Verdict::Hint));
            }
            Ok(None) => {}
            Ok(Some(verdict)) => return Ok(verdict),
            Err(error) if walk.strict => return Err(error),
            Err(_) => {}
        }
    }
    Ok(walk.hint.take().map_or(Verdict::Continue, Verdict::Hint))
}

/// Runs the lists of `http-after-response` over a response.
///
/// # Errors
/// When an edit cannot be done.
pub(crate) fn after_response<'r>(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    lists: impl IntoIterator<Item = &'r [Rule<Action>]>,
    head: &mut Head,
) -> Result<(), EditError> {
    for rules in lists {
        let mut walk = Walk::new(rules, Which::AfterResponse);
        // What would have it wait or answer may not stand in these lists.
        apply(facts, moment, &mut walk, head)?;
    }
    Ok(())
}

/// Bytes of a text that a rule makes, at most.
const LONGEST: usize = 8192;

/// Does one action.
fn one(
    facts: &Facts<'_>,
    moment: Moment<'_>,
    walk: &mut Walk<'_>,
    action: &Action,
    head: &mut Head,
) -> Result<Option<Verdict>, EditError> {
    let now = walk.moment(moment, head);
    let memory = &facts.scopes.memory;
    // A number that an expression gives.
    let number = |expression: &Expression| facts.with(now, |env, scratch| expression.eval_int(env, scratch));
    match action {
        Action::Allow => {
            walk.at = walk.rules.len();
        }
        Action::Deny(status) => return Ok(Some(Verdict::Answer(End::Denied, Answer::Usual(*status)))),
        Action::Reply(end, reply) => {
            return answer::reply(facts, now, reply).map(|answer| Some(Verdict::Answer(*end, answer)));
        }
        Action::Auth(realm) => {
            let absolute = head.target_parts().form == manylane_http::Form::Absolute;
            let of_proxy = absolute && facts.frontend.http.request_limits.proxy_header;
            let answer = answer::challenge(realm, of_proxy);
            return Ok(Some(Verdict::Answer(End::Answered, answer)));
        }
        Action::Redirect(redirect) => {
            let answer = answer::redirect(facts, now, redirect)?;
            return Ok(answer.map(|answer| Verdict::Answer(End::Answered, answer)));
        }
        Action::Reject => return Ok(Some(Verdict::Reject)),
        Action::SilentDrop => return Ok(Some(Verdict::Drop)),
        Action::Pause(Change::Fixed(time)) => return Ok(Some(Verdict::Pause(*time))),
        Action::Pause(Change::Of(expression)) => {
            return Ok(number(expression).and_then(millis).map(Verdict::Pause));
        }
        Action::WaitForBody(time, least) => {
            return Ok(Some(Verdict::Body { time: *time, least: *least }));
        }
        Action::DoLog => return Ok(Some(Verdict::Log)),
        Action::StrictMode(on) => walk.strict = *on,
        Action::EarlyHint(name, format) => {
            let mut hint = match walk.hint.take() {
                Some(hint) => hint,
                None => Box::new(Head::response(Version::HTTP_11, 103, None)?),
            };
            facts.text(now, format, |text| hint.add_field(&**name, text.ok_or(EditError::Full)?))?;
            walk.hint = Some(hint);
        }
        Action::SetVar(id, value, when) => set_var(facts, now, *id, value, *when),
        Action::UnsetVar(id) => facts.with(now, |env, _| {
            env.variables.set(*id, None);
        }),
        Action::Capture(expression, slot) => capture(facts, now, walk.list, expression, *slot),
        Action::SetLogLevel(level) => memory.log_level.set(level.map_or(LogLevel::Silent, LogLevel::Set)),
        Action::SetTimeout(of, change) => {
            let time = match change {
                Change::Fixed(time) => Some(*time),
                Change::Of(expression) => number(expression).and_then(millis),
            };
            if let Some(time) = time.filter(|time| !time.is_zero()) {
                let set = match of {
                    TimeoutOf::Client => &memory.client_timeout,
                    TimeoutOf::Server => &memory.server_timeout,
                    TimeoutOf::Tunnel => &memory.tunnel_timeout,
                };
                set.set(Some(time));
            }
        }
        Action::SetPriorityClass(expression) => {
            if let Some(n) = number(expression) {
                memory.priority_class.set(n.clamp(-2047, 2047) as i16);
            }
        }
        Action::SetPriorityOffset(expression) => {
            if let Some(n) = number(expression) {
                memory.priority_offset.set(n.clamp(-524_287, 524_287) as i32);
            }
        }
        Action::SetRetries(expression) => {
            if let Some(n) = number(expression) {
                memory.retries.set(Some(n.clamp(0, 100) as u32));
            }
        }
        Action::SetNice(nice) => {
            let _ = facts.local.here().set_nice(*nice); // its range was checked
        }
        Action::DisableRepetition => memory.no_repetition.set(true),
        Action::SetAddress(which, expression) => set_address(facts, now, *which, expression),
        Action::ChangeList { reference, how, key, value } => {
            let mut name = Text::new();
            facts.text(now, key, |text| name.set(text))?;
            let mut to = Text::new();
            if let Some(value) = value {
                facts.text(now, value, |text| to.set(text))?;
            }
            // What the list refuses it stays without, as in HAProxy.
            let _ = how.change(reference, name.bytes(), to.bytes());
        }
        Action::DelHeader(name) => {
            head.remove_fields(&**name);
        }
        Action::DelHeaders(how) => {
            delete(facts, moment, walk, head, how);
        }
        Action::SetStatus(status, reason) => head.set_status(*status, reason.as_deref())?,
        Action::SetHeader(name, format) => {
            edit(facts, now, format)?.done(|value| head.set_field(&**name, value))?;
        }
        Action::AddHeader(name, format) => {
            edit(facts, now, format)?.done(|value| head.add_field(&**name, value))?;
        }
        Action::SetMethod(format) => edit(facts, now, format)?.done(|value| head.set_method(value))?,
        Action::SetPath(format) => edit(facts, now, format)?.done(|value| head.set_path(value))?,
        Action::SetPathq(format) => edit(facts, now, format)?.done(|value| head.set_pathq(value))?,
        Action::SetQuery(format) => edit(facts, now, format)?.done(|value| head.set_query(value))?,
        Action::SetUri(format) => edit(facts, now, format)?.done(|value| head.set_uri(value))?,
        Action::ReplaceHeader(name, regex, format) | Action::ReplaceValue(name, regex, format) => {
            let template = edit(facts, now, format)?;
            let by_members = matches!(action, Action::ReplaceValue(..));
            let mut at = head.find(&**name, None);
            while let Some(id) = at {
                at = head.find(&**name, Some(id));
                let Some(field) = head.field(id) else { continue };
                let (mut new, moment) = (Text::new(), walk.moment(moment, head));
                let changed = if by_members {
                    new.members_replaced(facts, moment, regex, &template, field.value)?
                } else {
                    new.replaced(facts, moment, regex, &template, field.value)?
                };
                if changed {
                    head.replace_value(id, new.bytes())?;
                }
            }
        }
        Action::ReplaceTarget(part, regex, format) => {
            let template = edit(facts, now, format)?;
            let mut new = Text::new();
            let whole = head.target();
            let pathq = pathq(head);
            let subject = match part {
                Replaced::Path => head.path(),
                Replaced::Pathq => pathq,
                Replaced::Uri => Some(whole),
            };
            let Some(subject) = subject else { return Ok(None) };
            if new.replaced(facts, now, regex, &template, subject)? {
                match part {
                    Replaced::Path => head.set_path(new.bytes())?,
                    Replaced::Pathq => head.set_pathq(new.bytes())?,
                    Replaced::Uri => head.set_uri(new.bytes())?,
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
                    return Ok(Some(Verdict::Bad));
                }
            }
        }
    }
    Ok(None)
}

fn millis(n: i64) -> Option<Duration> {
    u64::try_from(n).ok().map(Duration::from_millis)
}

/// Path and query with its question mark, as they stand in the target.
fn pathq(head: &Head) -> Option<&[u8]> {
    let target = head.target();
    let path = head.path()?;
    let start = path.as_ptr().addr() - target.as_ptr().addr();
    target.get(start..)
}

/// A text of a rule's. It may be of the very bytes that are changed, so it is a copy.
struct Text {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Text {
    fn new() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn set(&mut self, text: Option<&[u8]>) -> Result<(), EditError> {
        self.length = 0;
        self.push(text.ok_or(EditError::Full)?)
    }

    fn push(&mut self, more: &[u8]) -> Result<(), EditError> {
        let end = self.length + more.len();
        self.bytes.get_mut(self.length..end).ok_or(EditError::Full)?.copy_from_slice(more);
        self.length = end;
        Ok(())
    }

    fn done(self, change: impl FnOnce(&[u8]) -> Result<(), EditError>) -> Result<(), EditError> {
        change(self.bytes())
    }

    /// Adds what `template` makes of `old`; whether `regex` matches it.
    fn replaced(
        &mut self,
        facts: &Facts<'_>,
        moment: Moment<'_>,
        regex: &Regex,
        template: &Self,
        old: &[u8],
    ) -> Result<bool, EditError> {
        facts.with(moment, |_, scratch| {
            if !regex.is_match(old, scratch) {
                return Ok(false);
            }
            let new = regex.expand(old, template.bytes(), scratch).ok_or(EditError::Full)?;
            self.push(new).map(|()| true)
        })
    }

    /// The same for each member of a list that commas separate; what is between them stays.
    fn members_replaced(
        &mut self,
        facts: &Facts<'_>,
        moment: Moment<'_>,
        regex: &Regex,
        template: &Self,
        list: &[u8],
    ) -> Result<bool, EditError> {
        let mut changed = false;
        let mut copied = 0;
        for member in List::new(list) {
            let start = member.as_ptr().addr() - list.as_ptr().addr();
            self.push(&list[copied..start])?;
            copied = start + member.len();
            if self.replaced(facts, moment, regex, template, member)? {
                changed = true;
            } else {
                self.push(member)?;
            }
        }
        self.push(&list[copied..])?;
        Ok(changed)
    }
}

/// The text that a format makes.
fn edit(facts: &Facts<'_>, moment: Moment<'_>, format: &Format) -> Result<Text, EditError> {
    let mut made = Text::new();
    facts.text(moment, format, |text| made.set(text))?;
    Ok(made)
}

fn delete(facts: &Facts<'_>, moment: Moment<'_>, walk: &Walk<'_>, head: &mut Head, how: &NameMatch) {
    // Names are compared without their case; which they are is found out first, since the head is looked at meanwhile.
    let mut doomed = [false; manylane_http::MAX_FIELDS];
    facts.with(walk.moment(moment, head), |_, scratch| {
        for (field, doomed) in head.fields().zip(&mut doomed) {
            *doomed = how.matches(field.name, scratch);
        }
    });
    let mut doomed = doomed.iter();
    head.remove_where(|_| doomed.next().copied().unwrap_or(false));
}

/// Sets a variable, if there is a value and the conditions hold.
pub(crate) fn set_var(facts: &Facts<'_>, moment: Moment<'_>, id: VariableId, value: &Made, when: When) {
    let work = |env: &manylane_expr::Env<'_>, scratch: &mut manylane_expr::Scratch<'_>| {
        let mut scratch = scratch.reborrow();
        let made = match value {
            Made::Of(expression) => expression.eval(env, &mut scratch).ok().map(|sample| sample.value),
            Made::Format(format) => format.eval(env, &mut scratch).map(Value::Str),
        };
        let Some(made) = made else { return };
        if when != When::ALWAYS {
            let mut scratch = scratch.reborrow();
            if !when.holds(env.variables.get(id, env.reader, &mut scratch), made) {
                return;
            }
        }
        env.variables.set(id, Some(made));
    };
    if let Made::Format(format) = value
        && format.has_aliases()
    {
        let log = facts.log_facts(moment.backend, moment.server);
        return facts.with(Moment { log: Some(&log), ..moment }, |env, scratch| work(env, scratch));
    }
    facts.with(moment, |env, scratch| work(env, scratch));
}

/// Keeps a text in a slot of the frontend's, if it has that many.
fn capture(facts: &Facts<'_>, moment: Moment<'_>, list: Which, expression: &Expression, slot: usize) {
    let (lengths, texts) = match list {
        Which::Request => (&facts.frontend.captures.request, &facts.scopes.memory.request),
        Which::Response | Which::AfterResponse => {
            (&facts.frontend.captures.response, &facts.scopes.memory.answer)
        }
    };
    let Some(&most) = lengths.get(slot) else { return };
    let mut kept = Text::new();
    let made = facts.with(moment, |env, scratch| {
        let mut scratch = scratch.reborrow();
        let text = expression.eval_text(env, &mut scratch)?;
        kept.set(Some(&text[..text.len().min(most).min(LONGEST)])).ok()
    });
    if made.is_some() {
        texts.borrow_mut().set(slot, kept.bytes());
    }
}

/// `set-src`, `set-dst` and the ports: a new address keeps the port, a new port the address.
fn set_address(facts: &Facts<'_>, moment: Moment<'_>, which: Addressed, expression: &Expression) {
    let memory = &facts.scopes.memory;
    let (cell, was, port) = match which {
        Addressed::Source => (&memory.source, facts.peers.source, false),
        Addressed::SourcePort => (&memory.source, facts.peers.source, true),
        Addressed::Destination => (&memory.destination, facts.peers.destination, false),
        Addressed::DestinationPort => (&memory.destination, facts.peers.destination, true),
    };
    let was = cell.get().or(was);
    let new = facts.with(moment, |env, scratch| {
        let mut scratch = scratch.reborrow();
        if port {
            let number = expression.eval_int(env, &mut scratch)?;
            let ip = was.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |was| was.ip());
            return Some(SocketAddr::new(ip, u16::try_from(number).ok()?));
        }
        let ip = expression.eval_as(Type::Addr, env, &mut scratch).ok()?.addr()?;
        Some(SocketAddr::new(ip, was.map_or(0, |was| was.port())))
    });
    if let Some(new) = new {
        cell.set(Some(new));
    }
}
