//! Runs lists of rules and returns their decisions.

use super::answer::{self, Answer};
use super::context::{EvalContext, EvalPhase};
use super::edit::{edit, normalize};
use super::once::{Once, Repeat};
use super::set::{millis, set};
use super::text::Text;
use manylane_balance::{Index, Servers};
use manylane_config::table::Ruleset;
use manylane_expr::{Condition, Truth, VariableId};
use manylane_http::{EditError, Form, Head, Version};
use manylane_lanes::backend_named;
use manylane_plan::generation::{
    Action, DropMode, End, Frontend, Persist, Preamble, Question, Rule, Target, TimeSource,
};
use manylane_sync::Arc;
use manylane_sync::atomic::Ordering;
use std::time::Duration;

/// Decision of a list of rules, or what it needs before it continues. The table of keywords says which
/// actions a list may have, and so which of these it may return.
pub enum Verdict {
    /// No rule objects: the list has ended, or a rule accepts the message or the connection.
    Accept,
    /// The proxy responds itself.
    Answer(End, Answer),
    /// The request is invalid.
    Bad,
    /// The connection closes without a response.
    Reject,
    /// The connection is dropped, and the client is not told.
    Drop(DropMode),
    /// The connection to the server closes; the client gets the data received so far.
    Close,
    /// The connection continues in HTTP, of this version if there is one.
    SwitchMode(Option<Version>),
    /// An edit failed, and the list is strict.
    Failed(EditError),
    /// The list begins again when more bytes have arrived. Only where [`EvalPhase::may_grow`] is set.
    Wait,
    /// The list continues; this header comes before the connection's first bytes.
    Expect(Preamble),
    /// The list continues after this time.
    Pause(Duration),
    /// The list continues when the body, or `least` bytes of it, has arrived, or after this time.
    Body {
        /// Longest wait.
        time: Duration,
        /// Bytes that are enough.
        least: usize,
    },
    /// The list continues when the TLS handshake behind early data is complete.
    Handshake,
    /// The list continues when this interim response was sent.
    Hint(Box<Head>),
    /// The list continues when a line was logged.
    Log,
    /// The list continues when the question was answered, with or without an address.
    Resolve {
        /// Number of the `resolvers` section.
        section: usize,
        /// Where the address goes.
        variable: VariableId,
        /// What is asked.
        question: Arc<Question>,
    },
    /// The list continues after other tasks have run: `tune.max-rules-at-once`.
    Turn,
}

/// A list of rules, and the position in it.
pub struct Walk<'r> {
    rules: &'r [Rule],
    at: usize,
    list: Ruleset,
    /// A failed edit ends the list.
    strict: bool,
    /// An interim response that later rules may extend.
    hint: Option<Box<Head>>,
    /// Set if the list may begin again.
    once: Option<&'r Once>,
}

impl<'r> Walk<'r> {
    /// Begins a list.
    pub fn new(list: Ruleset, rules: &'r [Rule]) -> Self {
        Self { rules, at: 0, list, strict: true, hint: None, once: None }
    }

    /// Begins a list that is run anew after each [`Verdict::Wait`].
    pub fn repeated(list: Ruleset, rules: &'r [Rule], once: &'r Once) -> Self {
        Self { once: Some(once), ..Self::new(list, rules) }
    }

    /// Continues behind a [`Verdict::Turn`], at the position that [`at`](Self::at) returned.
    pub fn starting_at(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// Returns the position.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns true if the rules are those of a stream.
    fn is_of_stream(&self) -> bool {
        !matches!(self.list, Ruleset::TcpRequestConnection | Ruleset::TcpRequestSession)
    }
}

/// Returns the position of the first of `rules` that applies: one without a condition, or whose condition
/// holds, or may hold with more bytes ([`Truth::Wait`]). All conditions see the same environment, which costs
/// more to make than most conditions to evaluate.
fn first_that_applies<A>(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    rules: &[Rule<A>],
) -> Option<(usize, Truth)> {
    if rules.first()?.condition.is_none() {
        return Some((0, Truth::Pass));
    }
    eval.with(phase, |env, scratch| {
        rules.iter().enumerate().find_map(|(at, rule)| match &rule.condition {
            None => Some((at, Truth::Pass)),
            Some(condition) => match condition.eval(env, &mut scratch.reborrow()) {
                Truth::Fail => None,
                truth => Some((at, truth)),
            },
        })
    })
}

pub(super) fn holds(eval: &EvalContext<'_>, phase: EvalPhase<'_>, condition: &Option<Condition>) -> bool {
    match condition {
        None => true,
        Some(condition) => eval.with(phase, |env, scratch| condition.holds(env, scratch)),
    }
}

/// Returns true if one of the conditions holds.
pub fn any_holds(eval: &EvalContext<'_>, phase: EvalPhase<'_>, conditions: &[Condition]) -> bool {
    !conditions.is_empty()
        && eval.with(phase, |env, scratch| {
            conditions.iter().any(|condition| condition.holds(env, &mut scratch.reborrow()))
        })
}

/// Returns the action of the first rule that applies.
#[inline]
pub fn first_persist(
    rules: &[Rule<Persist>],
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> Option<Persist> {
    first_that_applies(eval, phase, rules).map(|(at, _)| rules[at].action)
}

/// Returns the server that `use-server` chooses. If the server of a rule is down, later rules decide,
/// unless servers are used even if they are down (`obeyed`: `option persist`, `force-persist`). A rule
/// that makes a name that no server has ends the search, as in HAProxy.
pub fn chosen_server(
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
pub fn chosen_backend(frontend: &Frontend, eval: &EvalContext<'_>, phase: EvalPhase<'_>) -> Option<usize> {
    let takes = |number: &usize| takes_streams(*number, frontend, eval, phase);
    let mut rules = &frontend.rules.use_backend[..];
    while let Some((at, _)) = first_that_applies(eval, phase, rules) {
        match backend_of(&rules[at].action, eval, phase) {
            None => break,
            Some(number) if takes(&number) => return Some(number),
            Some(_) => rules = &rules[at + 1..],
        }
    }
    frontend.default_backend.filter(takes)
}

/// Returns whether a frontend may choose the backend: it is published, or `force-be-switch` holds.
pub fn takes_streams(
    number: usize,
    frontend: &Frontend,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> bool {
    eval.local.generation.backends[number].published.load(Ordering::Relaxed)
        || any_holds(eval, phase, &frontend.rules.force_switch)
}

/// Returns the number of the backend that a target names, if there is one of a name that it makes.
pub fn backend_of(target: &Target, eval: &EvalContext<'_>, phase: EvalPhase<'_>) -> Option<usize> {
    match target {
        Target::Fixed(number) => Some(*number),
        Target::Named(format) => {
            eval.text(phase, format, |name| backend_named(&eval.local.generation, name?))
        }
    }
}

/// Runs a list from its position on. `head` is its message, if there is one; `phase` has the other inputs.
pub fn apply(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    walk: &mut Walk<'_>,
    mut head: Option<&mut Head>,
) -> Verdict {
    let mut left = match walk.list {
        // These lists cannot yield.
        Ruleset::TcpRequestConnection | Ruleset::TcpRequestSession | Ruleset::HttpAfterResponse => u32::MAX,
        _ => eval.local.generation.process.rules_at_once,
    };
    let rules = walk.rules;
    while let Some(rule) = rules.get(walk.at) {
        if left == 0 {
            return Verdict::Turn;
        }
        // Consecutive hints without conditions go into one interim response.
        if !(matches!(rule.action, Action::EarlyHint(..)) && rule.condition.is_none())
            && let Some(hint) = walk.hint.take()
        {
            return Verdict::Hint(hint);
        }
        let rest = &rules[walk.at..];
        let rest = &rest[..rest.len().min(left as usize)];
        let found = first_that_applies(eval, phase.about(walk.list, head.as_deref()), rest);
        let evaluated = found.map_or(rest.len(), |(at, _)| at + 1);
        walk.at += evaluated;
        left -= evaluated as u32;
        let Some((at, truth)) = found else { continue };
        let rule = &rest[at];
        let outcome = match truth {
            Truth::Wait => Ok(Some(Verdict::Wait)),
            _ => one(eval, phase, walk, &rule.action, head.as_deref_mut()),
        };
        match outcome {
            Ok(None) if rule.condition.is_some() && walk.hint.is_some() => break,
            Ok(None) => {}
            Ok(Some(outcome)) => {
                match outcome {
                    Verdict::Wait => walk.at = 0,
                    Verdict::Accept
                    | Verdict::Answer(..)
                    | Verdict::Reject
                    | Verdict::Drop(_)
                    | Verdict::Close
                    | Verdict::SwitchMode(_)
                        if walk.is_of_stream() =>
                    {
                        eval.scopes.memory.last_rule.set(rule.line);
                    }
                    _ => {}
                }
                return outcome;
            }
            Err(error) => {
                eval.rewrite_failed(phase);
                if walk.strict {
                    return Verdict::Failed(error);
                }
            }
        }
    }
    walk.hint.take().map_or(Verdict::Accept, Verdict::Hint)
}

/// Runs the lists of `http-after-response` on a response. `log` writes a line, for `do-log`.
///
/// # Errors
/// An edit failed.
pub fn after_response<'r>(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    lists: impl IntoIterator<Item = &'r [Rule]>,
    head: &mut Head,
    log: &dyn Fn(),
) -> Result<(), EditError> {
    for rules in lists {
        let mut walk = Walk::new(Ruleset::HttpAfterResponse, rules);
        loop {
            match apply(eval, phase, &mut walk, Some(head)) {
                Verdict::Log => log(),
                Verdict::Failed(error) => return Err(error),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Runs one action. `None` continues with the next rule.
fn one(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    walk: &mut Walk<'_>,
    action: &Action,
    head: Option<&mut Head>,
) -> Result<Option<Verdict>, EditError> {
    if let Some(once) = walk.once {
        match once.repeat(eval, phase.about(walk.list, head.as_deref()), walk.at - 1, action) {
            Repeat::Run => {}
            Repeat::Skip => return Ok(None),
            Repeat::Wait => return Ok(Some(Verdict::Wait)),
        }
    }
    // From here on expressions do not wait; a value that is not there is not set.
    let now = EvalPhase { may_grow: false, ..phase.about(walk.list, head.as_deref()) };
    Ok(Some(match action {
        Action::Set(setting) => {
            set(eval, now, setting);
            return Ok(None);
        }
        Action::Edit(how) => {
            if let Some(head) = head {
                edit(eval, phase, walk.list, head, how)?;
            }
            return Ok(None);
        }
        Action::Accept => Verdict::Accept,
        Action::Reject => Verdict::Reject,
        Action::SilentDrop(silence) => Verdict::Drop(*silence),
        Action::Expect(preamble) => Verdict::Expect(*preamble),
        Action::Close => Verdict::Close,
        Action::SwitchMode(version) => Verdict::SwitchMode(*version),
        Action::Deny(status) => Verdict::Answer(End::Denied, Answer::Usual(*status)),
        Action::Metrics => {
            let target = now.request.map_or(&[][..], Head::target);
            let query = memchr::memchr(b'?', target).map_or(&[][..], |mark| &target[mark + 1..]);
            Verdict::Answer(End::Answered, Answer::Metrics(query.into()))
        }
        Action::Reply(end, reply) => Verdict::Answer(*end, answer::reply(eval, now, reply)?),
        Action::Auth(realm) => {
            eval.parties().client_error();
            let absolute = now.request.is_some_and(|head| head.target_parts().form == Form::Absolute);
            let of_proxy = absolute && eval.frontend.http.request_limits.proxy_header;
            Verdict::Answer(End::Answered, answer::challenge(realm, of_proxy))
        }
        Action::Redirect(redirect) => {
            let answer = answer::redirect(eval, now, redirect)?;
            return Ok(answer.map(|answer| Verdict::Answer(End::Answered, answer)));
        }
        Action::NormalizeUri(how) => {
            let Some(head) = head else { return Ok(None) };
            return Ok(if normalize(head, how)? { None } else { Some(Verdict::Bad) });
        }
        Action::Pause(TimeSource::Fixed(time)) => Verdict::Pause(*time),
        Action::Pause(TimeSource::Of(expression)) => {
            let number = eval.with(now, |env, scratch| expression.eval_int(env, scratch));
            return Ok(number.and_then(millis).map(Verdict::Pause));
        }
        Action::WaitForBody(time, least) => Verdict::Body { time: *time, least: *least },
        // Also behind a handshake that is complete by now: the request may still tell of early data.
        Action::WaitForHandshake => return Ok(eval.tls.map(|_| Verdict::Handshake)),
        Action::Resolve(lookup) => {
            return Ok(eval.question(now, lookup).map(|question| Verdict::Resolve {
                section: lookup.section,
                variable: lookup.variable,
                question: Arc::new(question),
            }));
        }
        Action::DoLog => Verdict::Log,
        Action::StrictMode(on) => {
            walk.strict = *on;
            return Ok(None);
        }
        Action::EarlyHint(name, format) => {
            let mut hint = match walk.hint.take() {
                Some(hint) => hint,
                None => Box::new(Head::response(Version::HTTP_11, 103, None)?),
            };
            eval.text(now, format, |text| hint.add_field(&**name, text.ok_or(EditError::Full)?))?;
            walk.hint = Some(hint);
            return Ok(None);
        }
        Action::ChangeList { reference, how, key, value } => {
            let (mut name, mut to) = (Text::new(), Text::new());
            name.format(eval, now, key)?;
            if let Some(value) = value {
                to.format(eval, now, value)?;
            }
            // A list that refuses the change stays as it is, as in HAProxy.
            let _ = how.change(reference, name.bytes(), to.bytes());
            manylane_lanes::replaced();
            return Ok(None);
        }
    }))
}
