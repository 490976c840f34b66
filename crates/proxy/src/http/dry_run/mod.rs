//! Evaluates the rules of a frontend and of the backend that it chooses on one request, and reports what each
//! does: `manylane test`. Nothing is sent, bound or counted outside of the process that asks.
//!
//! The compiled rules run one at a time through the same functions that serve requests. `DryRun`'s `absent`
//! has the inputs that a dry run lacks: a stick table's entries, a server's state, a response. A rule whose
//! condition depends on one of them is passed over.

mod backend;
mod report;

pub use report::{Candidate, Effect, End, Input, Outcome, Report, Step};

use super::answer::{self, Made};
use crate::explain::{Effects, Line, line_of};
use crate::tcp::looks_like_request;
use manylane_buf::Chain;
use manylane_config::table::Ruleset;
use manylane_config::tree::Mode;
use manylane_expr::{Condition, Data, Direction, Needs, Type, VariableId, cast};
use manylane_h1::{Body, BodyReader, From, Progress, Request, RequestParser, restrict_names};
use manylane_http::{Head, Kind, Known};
use manylane_lanes::{Local, Peers, Scopes};
use manylane_plan::clock::now;
use manylane_plan::generation::{
    Action, Backend, Frontend, Generation, Http, Listener, Rule, Rules, Setting,
};
use manylane_rules::{Answer, EvalContext, EvalPhase, Verdict, Walk, apply, backend_of, takes_streams};
use manylane_tls::Info;
use report::text;
use std::net::SocketAddr;
use std::rc::Rc;
use std::slice;

/// How the evaluation continues after a rule that matched.
enum Next<T> {
    Rule,
    EndOfList,
    End(T),
}

/// How a rule ended the request.
enum Decided {
    Answer(Answer),
    Closed(String),
}

struct DryRun<'a> {
    local: &'a Rc<Local>,
    generation: &'a Generation,
    frontend: &'a Frontend,
    listener: &'a Listener,
    backend: Option<&'a Backend>,
    /// Name of the proxy whose rules run.
    name: &'a str,
    scopes: Box<Scopes>,
    peers: Peers,
    tls: Option<Info>,
    /// Inputs of rules that the dry run does not have.
    absent: Needs,
    /// Variables whose values depend on what is absent.
    uncertain: Vec<(VariableId, Needs)>,
    request: Option<Request>,
    /// The head that bytes in TCP mode begin with.
    inspected: Option<Head>,
    response: Option<Head>,
    /// Set where there may be no head.
    side: Option<Direction>,
    /// The connection speaks HTTP.
    http: bool,
    /// The request's body, or all bytes in TCP mode.
    body: Chain,
    /// Length that the request announces.
    announced: Option<u64>,
    /// A failed edit ends the request.
    strict: bool,
    steps: Vec<Step>,
}

/// Runs `input` through the rules of `local`'s generation, on the calling lane.
///
/// # Errors
/// A sentence: there is no memory, or the input is not complete.
///
/// # Panics
/// If the generation has no such frontend or listener.
pub fn dry_run(local: &Rc<Local>, input: &Input) -> Result<Report, String> {
    let generation = &*local.generation;
    let frontend = &generation.frontends[input.frontend];
    let listener = &frontend.listeners[input.listener];
    let mut absent = Needs::RESPONSE
        | Needs::SERVER
        | Needs::TABLE
        | Needs::STATE
        | Needs::NAMES
        | Needs::RANDOM
        | Needs::HANDSHAKE;
    for (there, needs) in [
        (input.source.is_some(), Needs::SOURCE),
        (input.destination.is_some(), Needs::DESTINATION),
        (!listener.accept_proxy && listener.netscaler.is_none(), Needs::PROXY_HEADER),
    ] {
        if !there {
            absent |= needs;
        }
    }
    let mut run = DryRun {
        local,
        generation,
        frontend,
        listener,
        backend: None,
        name: &frontend.name,
        scopes: Box::default(),
        peers: Peers {
            source: input.source,
            destination: input.destination,
            link_source: input.source,
            link_destination: input.destination,
            accepted: now(),
            ..Peers::default()
        },
        tls: listener.tls.as_ref().map(|_| Info { name: input.server_name.clone(), ..Info::default() }),
        absent,
        uncertain: Vec::new(),
        request: None,
        inspected: None,
        response: None,
        side: None,
        http: frontend.mode == Mode::Http,
        body: Chain::new(),
        announced: None,
        strict: true,
        steps: Vec::new(),
    };
    let end = run.run(&input.bytes)?;
    let head = match &mut run.request {
        Some(request) if matches!(end, End::Server { .. }) => lines(&mut request.head),
        _ => Vec::new(),
    };
    Ok(Report { steps: run.steps, head, end })
}

const NO_MEMORY: &str = "there is no memory for the request";

/// The lines of a head as they are sent.
fn lines(head: &mut Head) -> Vec<String> {
    let mut out = Chain::new();
    if manylane_h1::write_head(head, &mut out, None).is_err() {
        return Vec::new();
    }
    let bytes: Vec<u8> = out.segments().flat_map(|segment| segment.iter().copied()).collect();
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).map(text).collect()
}

/// Fields and first line of a head, to find what a rule changes.
struct Snapshot {
    line: String,
    fields: Vec<(String, String)>,
}

impl Snapshot {
    fn of(head: &Head) -> Self {
        let line = match head.kind() {
            Kind::Response => format!("{} {}", head.status(), text(head.reason())),
            _ => format!("{} {}", text(head.method()), text(head.target())),
        };
        let fields = head.fields().map(|field| (text(field.name), text(field.value))).collect();
        Self { line, fields }
    }

    /// Returns the differences of a later snapshot.
    fn changes(mut self, later: Self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.line != later.line {
            effects.push(Effect::Line(later.line));
        }
        let mut added = Vec::new();
        for field in later.fields {
            match self.fields.iter().position(|before| *before == field) {
                Some(at) => drop(self.fields.remove(at)),
                None => added.push(Effect::Added(field.0, field.1)),
            }
        }
        effects.extend(self.fields.into_iter().map(|(name, value)| Effect::Removed(name, value)));
        effects.extend(added);
        effects
    }
}

impl<'a> DryRun<'a> {
    fn eval(&self) -> EvalContext<'_> {
        EvalContext {
            local: self.local,
            frontend: self.frontend,
            listener: self.listener,
            peers: self.peers,
            greeting: None,
            tls: self.tls.as_ref(),
            first_request: true,
            http: self.http,
            scopes: &self.scopes,
            course: None,
        }
    }

    fn phase(&self) -> EvalPhase<'_> {
        let announced = self.announced;
        let data = Data { bytes: Some(&self.body), complete: true, announced, is_body: self.http };
        EvalPhase {
            request: self.request.as_ref().map(|request| &request.head).or(self.inspected.as_ref()),
            response: self.response.as_ref(),
            backend: self.backend,
            request_data: data,
            side: self.side,
            ..EvalPhase::default()
        }
    }

    fn direction(&self) -> Direction {
        match self.response {
            Some(_) => Direction::Response,
            None => self.side.unwrap_or(Direction::Request),
        }
    }

    /// Returns the inputs that the current rules lack. Once the proxy has made a response, the rules have it.
    fn absent(&self) -> Needs {
        match self.response {
            Some(_) => self.absent.without(Needs::RESPONSE),
            None => self.absent,
        }
    }

    fn of_variable(&self, id: VariableId) -> Needs {
        let known = self.uncertain.iter().find(|(uncertain, _)| *uncertain == id);
        known.map_or(Needs::NONE, |(_, needs)| *needs)
    }

    /// Records that the value of a variable depends on absent inputs; with none, that it is certain.
    fn set_uncertain(&mut self, id: VariableId, needs: Needs) {
        self.uncertain.retain(|(uncertain, _)| *uncertain != id);
        if !needs.is_none() {
            self.uncertain.push((id, needs));
        }
    }

    /// Returns the absent inputs among the needs of an expression or an action.
    fn missing(&self, needs: impl FnOnce(&dyn Fn(VariableId) -> Needs) -> Needs) -> Needs {
        needs(&|id| self.of_variable(id)).of(self.direction()).and(self.absent())
    }

    fn judge(&self, condition: Option<&Condition>) -> Result<bool, Needs> {
        let Some(condition) = condition else { return Ok(true) };
        let variables = |id: VariableId| self.of_variable(id);
        self.eval()
            .with(self.phase(), |env, scratch| condition.judge(env, scratch, self.absent(), &variables))
    }

    /// Returns the current value of a variable.
    fn variable(&self, id: VariableId) -> Effect {
        let mut names = self.generation.expressions.names.iter();
        let name = names.find(|(_, known)| *known == id).map_or_else(String::new, |(name, _)| text(name));
        let value = self.eval().with(self.phase(), |env, scratch| {
            let mut scratch = scratch.reborrow();
            let value = env.variables.get(id, env.reader, &mut scratch)?;
            Some(text(cast(value, Type::Str, &mut scratch)?.bytes()?))
        });
        Effect::Variable(name, value)
    }

    /// Reports a step that is not a rule.
    fn step(&mut self, keyword: &'static str, outcome: Outcome, decides: bool, effects: Vec<Effect>) {
        self.steps.push(Step { proxy: self.name.into(), keyword, line: None, outcome, decides, effects });
    }

    /// Evaluates a list. `act` runs the action of a rule that matches, and gets the absent inputs that the
    /// action needs.
    fn list<A: Effects, T>(
        &mut self,
        keyword: &'static str,
        rules: &'a [Rule<A>],
        mut act: impl FnMut(&mut Self, &'a Rule<A>, Needs, &mut Vec<Effect>) -> Next<T>,
    ) -> Option<T> {
        let mut over = false;
        let mut end = None;
        for rule in rules {
            let mut effects = Vec::new();
            let judged = if over { None } else { Some(self.judge(rule.condition.as_ref())) };
            let outcome = match judged {
                None => Outcome::NotReached,
                Some(Ok(false)) => Outcome::NotMatched,
                Some(Ok(true)) => {
                    let missing = self.missing(|variables| rule.action.needs(variables));
                    let next = act(self, rule, missing, &mut effects);
                    if let Some(id) = rule.action.sets() {
                        self.set_uncertain(id, missing);
                        effects.push(self.variable(id));
                    }
                    // An action without a visible effect needs no remark about absent inputs.
                    if !missing.is_none() && (!effects.is_empty() || rule.action.ends().is_some()) {
                        effects.push(Effect::Unknown(missing));
                    }
                    over = !matches!(next, Next::Rule);
                    if let Next::End(what) = next {
                        end = Some(what);
                    }
                    Outcome::Matched
                }
                Some(Err(needs)) => {
                    if let Some(id) = rule.action.sets() {
                        self.set_uncertain(id, needs);
                    }
                    Outcome::Unknown(needs)
                }
            };
            let (line, decides) = (line_of(self.generation, rule), rule.action.ends().is_some());
            self.steps.push(Step { proxy: self.name.into(), keyword, line, outcome, decides, effects });
        }
        end
    }

    /// Reports the rules of a list that the request does not reach.
    fn not_reached<A: Effects>(&mut self, keyword: &'static str, rules: &[Rule<A>]) {
        for rule in rules {
            let line = line_of(self.generation, rule);
            let (outcome, decides) = (Outcome::NotReached, rule.action.ends().is_some());
            let proxy = self.name.into();
            self.steps.push(Step { proxy, keyword, line, outcome, decides, effects: Vec::new() });
        }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<End, String> {
        let (frontend, rules) = (self.frontend, &*self.frontend.rules);
        let end = match self.connection_rules(Ruleset::TcpRequestConnection, &rules.connection) {
            None => self.connection_rules(Ruleset::TcpRequestSession, &rules.session),
            end => {
                self.not_reached("tcp-request session", &rules.session);
                end
            }
        };
        let end = match end {
            None if self.http => self.parse(bytes)?,
            None => {
                self.body.append(bytes).map_err(|_| NO_MEMORY)?;
                self.inspected = looks_like_request(&self.body);
                self.side = Some(Direction::Request);
                None
            }
            end => end,
        };
        if let Some(end) = end {
            self.not_reached("tcp-request content", &rules.content);
            self.not_reached("http-request", &rules.request);
            self.not_reached("use_backend", &rules.use_backend);
            return Ok(end);
        }
        let was_http = self.http;
        let end = match self.closing_rules(Ruleset::TcpRequestContent, &rules.content) {
            None if self.http && !was_http => self.switch(bytes)?,
            end => end,
        };
        if let Some(end) = end {
            self.not_reached("http-request", &rules.request);
            self.not_reached("use_backend", &rules.use_backend);
            return Ok(end);
        }
        if self.http
            && let Some(end) = self.frontend_request(rules)?
        {
            self.not_reached("use_backend", &rules.use_backend);
            return Ok(end);
        }
        let chosen = self.list("use_backend", &rules.use_backend, |run, rule, missing, effects| {
            if !missing.is_none() {
                return Next::End(Err(End::Unknown { line: line_of(run.generation, rule), needs: missing }));
            }
            let found = backend_of(&rule.action, &run.eval(), run.phase());
            let Some(number) = found else {
                effects.push(Effect::Note("no backend has the resulting name".into()));
                return Next::End(Ok(None));
            };
            let name = &run.generation.backends[number].name;
            if !takes_streams(number, frontend, &run.eval(), run.phase()) {
                effects.push(Effect::Note(format!("backend '{name}' is not published")));
                return Next::Rule;
            }
            effects.push(Effect::Note(format!("the backend is '{name}'")));
            Next::End(Ok(found))
        });
        let chosen = match chosen.transpose() {
            Ok(chosen) => chosen.flatten(),
            Err(end) => return Ok(end),
        };
        let default = || {
            let number = frontend.default_backend.ok_or("there is no 'default_backend'")?;
            let takes = takes_streams(number, frontend, &self.eval(), self.phase());
            if takes { Ok(number) } else { Err("the backend of 'default_backend' is not published") }
        };
        let number = match chosen.map_or_else(default, Ok) {
            Ok(number) => number,
            Err(why) => {
                return self
                    .no_server(frontend.mode == Mode::Http, format!("no rule chooses a backend, and {why}"));
            }
        };
        let backend = &*self.generation.backends[number];
        if chosen.is_none() {
            let note = format!("the backend is '{}'", backend.name);
            self.step("default_backend", Outcome::Matched, true, vec![Effect::Note(note)]);
        }
        if backend.id != frontend.id {
            self.scopes.memory.leave_frontend();
        }
        self.backend = Some(backend);
        if backend.mode == Mode::Http && !self.http {
            let end = match self.switch(bytes)? {
                None => self.frontend_request(rules)?,
                end => end,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
        if self.http && backend.mode != Mode::Http {
            let how = format!("closes the connection: backend '{}' is not in 'mode http'", backend.name);
            return Ok(End::Closed { line: None, how });
        }
        self.name = &backend.name;
        self.in_backend(backend)
    }

    /// `tcp-request connection` and `tcp-request session`
    fn connection_rules(&mut self, list: Ruleset, rules: &'a [Rule]) -> Option<End> {
        let end = self.closing_rules(list, rules);
        let memory = &self.scopes.memory;
        let (source, destination) = (memory.source.take(), memory.destination.take());
        self.peers.source = source.or(self.peers.source);
        self.peers.destination = destination.or(self.peers.destination);
        if list == Ruleset::TcpRequestConnection {
            self.peers.link_source = source.or(self.peers.link_source);
            self.peers.link_destination = destination.or(self.peers.link_destination);
        }
        end
    }

    /// Rules that close a connection or let it pass.
    fn closing_rules(&mut self, list: Ruleset, rules: &'a [Rule]) -> Option<End> {
        match self.rules(list, rules)? {
            (line, Decided::Closed(how)) => Some(End::Closed { line, how }),
            (_, Decided::Answer(_)) => None,
        }
    }

    /// `set-src` and the like.
    fn tell_address(&self, setting: &Setting, effects: &mut Vec<Effect>) {
        if let Setting::Address(..) = setting {
            let memory = &self.scopes.memory;
            let show = |address: Option<SocketAddr>| address.map_or("not known".into(), |a| a.to_string());
            let source = memory.source.get().or(self.peers.source);
            let destination = memory.destination.get().or(self.peers.destination);
            effects.push(Effect::Note(format!(
                "the client's address is {}, its destination {}",
                show(source),
                show(destination)
            )));
        }
    }

    /// Changes the connection from TCP mode to HTTP.
    fn switch(&mut self, bytes: &[u8]) -> Result<Option<End>, String> {
        (self.http, self.inspected, self.side) = (true, None, None);
        self.body.clear();
        self.parse(bytes)
    }

    /// Parses the request. A message that is refused is an end.
    fn parse(&mut self, bytes: &[u8]) -> Result<Option<End>, String> {
        let limits = self.frontend.http.request_limits;
        let mut input = Chain::new();
        input.append(bytes).map_err(|_| NO_MEMORY)?;
        let refused = |error: manylane_h1::Error| End::Answer {
            line: None,
            status: error.status,
            head: Vec::new(),
            why: Some(format!("it is refused for {error}")),
        };
        let mut request = match RequestParser::new(limits).parse(&mut input) {
            Ok(Some(request)) => request,
            Ok(None) => {
                return Err(
                    "the request ends within its head: it expects an empty line behind the last field".into(),
                );
            }
            Err(error) => return Ok(Some(refused(error))),
        };
        if request.connection.h2c {
            request.end_offer().map_err(|error| error.to_string())?;
        }
        let mut reader = BodyReader::new(request.body, From::Client, limits);
        match reader.read(&mut input, &mut self.body) {
            Ok(Progress::Done(_)) => {}
            Ok(Progress::More) => {
                return Err("the request ends within its body: give all of it, or another length".into());
            }
            Err(error) => return Ok(Some(refused(error))),
        }
        let mut behind = input.segments().flat_map(|segment| segment.iter());
        if behind.any(|byte| !byte.is_ascii_whitespace()) {
            return Err("more bytes follow the request: give one request, with the length of its body".into());
        }
        if let Body::Length(length) = request.body {
            self.announced = Some(length);
        }
        let memory = &self.scopes.memory;
        memory.begun.set(now());
        memory.number.set(self.local.next_number());
        memory.remember(&request.head, self.generation.process.longest_line);
        memory.capture_request(&self.frontend.captures, &request.head);
        self.request = Some(request);
        Ok(None)
    }

    /// What a frontend does with a request before it chooses the backend.
    fn frontend_request(&mut self, rules: &'a Rules) -> Result<Option<End>, String> {
        let http = &self.frontend.http;
        let head = self.request.as_ref().map(|request| &request.head);
        let monitored = |uri| head.is_some_and(|head| super::pipeline::is_monitored(head, uri));
        if !http.monitor.as_deref().is_some_and(monitored) {
            return self.message_rules(rules, http);
        }
        let mut fails = Ok(false);
        for condition in &rules.monitor_fail {
            fails = match (fails, self.judge(Some(condition))) {
                (Ok(true), _) | (_, Ok(true)) => Ok(true),
                (Err(one), Err(other)) => Err(one | other),
                (Err(needs), Ok(false)) | (Ok(false), Err(needs)) => Err(needs),
                (Ok(false), Ok(false)) => Ok(false),
            };
        }
        self.step("monitor-uri", Outcome::Matched, true, Vec::new());
        self.not_reached("http-request", &rules.request);
        match fails {
            Ok(fails) => self.answered(None, None, Answer::Usual(if fails { 503 } else { 200 })).map(Some),
            Err(needs) => Ok(Some(End::Unknown { line: None, needs })),
        }
    }

    /// Runs `http-request` and the steps that follow it, in a frontend or in a backend.
    fn message_rules(&mut self, rules: &'a Rules, http: &'a Http) -> Result<Option<End>, String> {
        if http.asks_for_passwords && self.generation.hashes_passwords {
            self.find_password();
        }
        self.strict = true;
        match self.rules(Ruleset::HttpRequest, &rules.request) {
            None => {}
            Some((line, Decided::Answer(answer))) => return self.answered(line, None, answer).map(Some),
            Some((line, Decided::Closed(how))) => return Ok(Some(End::Closed { line, how })),
        }
        let Some(request) = &mut self.request else { return Ok(None) };
        if !restrict_names(&mut request.head, http.names) {
            let why = "'option http-restrict-req-hdr-names' rejects the name of a field".to_owned();
            return self.answered(None, Some(why), Answer::Usual(403)).map(Some);
        }
        if http.stats_at(&request.head).is_none() {
            return Ok(None);
        }
        let page = self.list("stats http-request", &rules.stats_request, |run, rule, _, effects| {
            run.rule(Ruleset::HttpRequest, rule, effects)
        });
        self.step("stats", Outcome::Matched, true, Vec::new());
        if let Some((line, Decided::Answer(answer))) = page {
            return self.answered(line, None, answer).map(Some);
        }
        let why = Some("the page of counters, for those who may see it".to_owned());
        Ok(Some(End::Answer { line: None, status: 200, head: Vec::new(), why }))
    }

    /// Hashes the password of the request, which rules ask for.
    fn find_password(&self) {
        let Some(request) = &self.request else { return };
        self.eval().with(self.phase(), |_, scratch| {
            let mut scratch = scratch.reborrow();
            let Some((user, password)) = manylane_expr::basic(&request.head, &mut scratch) else { return };
            for (number, list) in self.generation.userlists.iter().enumerate() {
                if list.takes_time(user, password) {
                    let right = list.knows(user, password, || None);
                    self.local.passwords.learn(number, user, password, right);
                }
            }
        });
    }

    /// Evaluates a list of rules with actions.
    fn rules(&mut self, list: Ruleset, rules: &'a [Rule]) -> Option<(Option<Line>, Decided)> {
        self.list(list.name(), rules, |run, rule, _, effects| run.rule(list, rule, effects))
    }

    /// One rule that matches.
    fn rule(
        &mut self,
        list: Ruleset,
        rule: &'a Rule,
        effects: &mut Vec<Effect>,
    ) -> Next<(Option<Line>, Decided)> {
        let line = line_of(self.generation, rule);
        // Taken out, since `apply` edits the message while `self.phase()` borrows the other inputs.
        let (mut request, mut inspected, mut response) = match list {
            Ruleset::HttpAfterResponse => (None, None, self.response.take()),
            _ => (self.request.take(), self.inspected.take(), None),
        };
        let mut head = request.as_mut().map(|request| &mut request.head);
        head = head.or(inspected.as_mut()).or(response.as_mut());
        let before = head.as_deref().map(Snapshot::of);
        let mut walk = Walk::new(list, slice::from_ref(rule));
        let outcome = apply(&self.eval(), self.phase(), &mut walk, head.as_deref_mut());
        if let (Some(before), Some(head)) = (before, head) {
            effects.extend(before.changes(Snapshot::of(head)));
        }
        match list {
            Ruleset::HttpAfterResponse => self.response = response,
            _ => (self.request, self.inspected) = (request, inspected),
        }
        let mut note = |text: String| effects.push(Effect::Note(text));
        match outcome {
            Verdict::Accept if matches!(rule.action, Action::Accept) => return Next::EndOfList,
            // This request is no early data, so no rule waits for the handshake.
            Verdict::Accept | Verdict::Turn | Verdict::Handshake | Verdict::Wait => {}
            Verdict::Answer(_, answer) => return Next::End((line, Decided::Answer(answer))),
            Verdict::Bad => return Next::End((line, Decided::Answer(Answer::Usual(400)))),
            Verdict::Reject | Verdict::Drop(_) | Verdict::Close => {
                return Next::End((line, Decided::Closed(rule.action.ends().unwrap_or_default())));
            }
            Verdict::SwitchMode(_) => {
                self.http = true;
                return Next::EndOfList;
            }
            Verdict::Expect(_) => self.absent |= Needs::PROXY_HEADER,
            Verdict::Pause(time) => note(format!("the rules wait for {time:?}")),
            Verdict::Body { .. } => note("the rules wait for the body".into()),
            Verdict::Hint(mut head) => note(format!("interim response: {}", lines(&mut head).join("; "))),
            Verdict::Log => note("a line is logged".into()),
            Verdict::Resolve { .. } => note("name servers are asked, and the rules wait".into()),
            Verdict::Failed(error) => {
                note(format!("the edit fails: {error}"));
                if self.strict && list == Ruleset::HttpRequest {
                    return Next::End((line, Decided::Answer(Answer::Usual(500))));
                }
            }
        }
        match &rule.action {
            Action::StrictMode(on) => self.strict = *on,
            Action::Set(setting) => self.tell_address(setting, effects),
            _ => {}
        }
        Next::Rule
    }

    /// The lists of rules for responses: those of the backend, then those of the frontend.
    fn of_responses(&self) -> impl Iterator<Item = (&'a str, &'a Rules)> + use<'a> {
        let (frontend, backend) = (self.frontend, self.backend);
        let own = backend.filter(|backend| !std::ptr::eq(&*backend.rules, &*frontend.rules));
        let own = own.map(|backend| (&*backend.name, &*backend.rules));
        own.into_iter().chain([(&*frontend.name, &*frontend.rules)])
    }

    /// A response of the proxy's own, behind `http-after-response`.
    fn answered(&mut self, line: Option<Line>, why: Option<String>, answer: Answer) -> Result<End, String> {
        let usual = |code| {
            let backend = self.backend.map(|backend| &backend.http);
            let all: Vec<_> = backend.into_iter().chain([&self.frontend.http]).collect();
            answer::usual(&all, Some((&self.eval(), self.phase())), code)
        };
        let made = match answer {
            Answer::Metrics(_) => {
                let why = Some("the metrics of the process".to_owned());
                return Ok(End::Answer { line, status: 200, head: Vec::new(), why });
            }
            Answer::Usual(code) => usual(code),
            Answer::Challenge(code, challenge) => usual(code).and_then(|mut made| {
                let name = if code == 407 { Known::PROXY_AUTHENTICATE } else { Known::WWW_AUTHENTICATE };
                made.head.add_field(name, &challenge).map_err(|_| answer::NoAnswer)?;
                Ok(made)
            }),
            Answer::Whole(_, message) => answer::whole(message),
            Answer::Own(head, body) => answer::sized(head.into_inner(), body),
        };
        let Ok(Made { head, .. }) = made else {
            let how = "the file of the answer is empty: closes the connection without a response".to_owned();
            return Ok(End::Closed { line, how });
        };
        self.scopes.memory.response.set(Some((head.version(), head.status())));
        self.response = Some(head);
        self.scopes.begin_response();
        for (name, rules) in self.of_responses() {
            self.name = name;
            self.strict = true;
            self.rules(Ruleset::HttpAfterResponse, &rules.after_response);
        }
        let Some(mut head) = self.response.take() else { return Err(NO_MEMORY.into()) };
        Ok(End::Answer { line, status: head.status(), head: lines(&mut head), why })
    }

    /// There is no server for the request.
    fn no_server(&mut self, http: bool, why: String) -> Result<End, String> {
        match http {
            true => self.answered(None, Some(why), Answer::Usual(503)),
            false => Ok(End::Closed { line: None, how: format!("closes the connection: {why}") }),
        }
    }
}
