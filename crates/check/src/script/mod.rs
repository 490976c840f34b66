//! Scripts of checks: steps that send and expect, and one run of them over a connection of the caller.
//!
//! Each kind has a file: [`tcp`], [`http`], and the services with fixed dialogues: [`redis`], [`mysql`],
//! [`pgsql`], [`smtp`], [`ldap`], [`spop`], [`tls`].

pub mod agent;
mod h2;
pub mod http;
pub mod ldap;
pub mod mysql;
pub mod pgsql;
pub mod redis;
pub mod smtp;
pub mod spop;
mod step;
pub mod tcp;
pub mod tls;

use crate::status::{CheckResult, Status};
use http::Answer;
use manylane_buf::{Chain, Segment};
use manylane_expr::{Expression, Format};
use manylane_h1::Leniency;
use manylane_http::Head;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

pub use http::{HttpRequest, StatusRanges};
pub use step::{
    Connect, ConnectTls, Expect, Pattern, PortSource, Send, SendSource, Setting, Step, Text, TextSource,
    Value,
};

/// Largest number of bytes of an answer that are examined; the check does not wait for bytes behind them.
pub const MOST_BYTES: usize = 16 << 10;

/// Number of times that an answer is examined as it comes. After that, it is examined only for each
/// [`MANY_BYTES`], and at its end: a server that sends single bytes must not cause a search for each.
const MAX_JUDGEMENTS: u32 = 256;
const MANY_BYTES: usize = 1 << 10;

/// The steps of a check, in order.
#[derive(Debug)]
pub struct Script {
    steps: Vec<Step>,
    /// True if the answers are HTTP.
    http: bool,
    /// `http-check disable-on-404`
    disable_on_404: bool,
    /// Relaxations of the rules of HTTP for answers.
    lenient: Leniency,
    /// True if the steps come from the file, so that a timeout names its step.
    names_steps: bool,
}

/// Services with fixed dialogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Redis: its answer to a PING.
    Redis,
    /// MySQL: its greeting; with `login`, also its answer to a login.
    Mysql {
        /// True if a login was sent.
        login: bool,
    },
    /// PostgreSQL: its answer to a startup message.
    Pgsql,
    /// SMTP: its answer in this part of the dialogue.
    Smtp(smtp::Part),
    /// LDAP: its answer to an anonymous bind.
    Ldap,
    /// SPOP: the HELLO of an agent.
    Spop,
    /// TLS: any answer to a hello.
    Tls,
    /// An agent: any line.
    Agent,
}

impl Service {
    /// Judges an answer. `last` says that no more of it is examined.
    fn judge(self, input: &[u8], last: bool) -> Judgement {
        match self {
            Self::Redis => redis::judge(input, last),
            Self::Mysql { login } => mysql::judge(login, input, last),
            Self::Pgsql => pgsql::judge(input, last),
            Self::Smtp(part) => smtp::judge(part, input, last),
            Self::Ldap => ldap::judge(input, last),
            Self::Spop => spop::judge(input, last),
            Self::Tls => tls::judge(input, last),
            Self::Agent => agent::judge(input, last),
        }
    }

    /// Returns the status of an empty answer, if that is reported as such; other services judge it like any
    /// answer.
    fn empty(self) -> Option<Status> {
        match self {
            Self::Redis | Self::Pgsql | Self::Smtp(_) | Self::Ldap => None,
            Self::Tls => Some(Status::L6Rsp),
            Self::Mysql { .. } | Self::Spop | Self::Agent => Some(Status::L7Rsp),
        }
    }
}

/// Evaluates the expressions of steps. The caller that makes the check implements it, because it knows the
/// connection, the variables and the lane.
pub trait Evaluate {
    /// Returns the text that the format makes.
    fn text(&mut self, format: &Format, input: CheckInput<'_>) -> Vec<u8>;
    /// Returns the number that the expression yields, if it yields one.
    fn number(&mut self, expression: &Expression, input: CheckInput<'_>) -> Option<i64>;
    /// Sets or unsets a variable.
    fn set(&mut self, setting: &Setting, input: CheckInput<'_>);
    /// Returns the state for `http-check send-state`.
    fn state(&mut self) -> Vec<u8>;
}

/// For scripts without expressions: every value is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExpressions;

impl Evaluate for NoExpressions {
    fn text(&mut self, _: &Format, _: CheckInput<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn number(&mut self, _: &Expression, _: CheckInput<'_>) -> Option<i64> {
        None
    }

    fn set(&mut self, _: &Setting, _: CheckInput<'_>) {}

    fn state(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// The answer so far, as expressions see it.
#[derive(Clone, Copy, Debug)]
pub struct CheckInput<'a> {
    /// Head of an HTTP answer.
    pub head: Option<&'a Head>,
    /// Body of an HTTP answer; otherwise all received bytes.
    pub bytes: &'a [u8],
    /// True if the answers are HTTP.
    pub http: bool,
}

impl CheckInput<'_> {
    /// Returns the bytes as a chain for expressions; empty without memory.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        let _ = chain.append(self.bytes); // without memory, the answer is empty
        chain
    }
}

impl TextSource {
    /// Returns the text at this moment.
    pub(crate) fn get<'w>(&'w self, input: CheckInput<'_>, by: &mut dyn Evaluate) -> Cow<'w, [u8]> {
        match self {
            Self::Fixed(bytes) => Cow::Borrowed(bytes),
            Self::Format(format) => Cow::Owned(by.text(format, input)),
        }
    }
}

/// Target and properties of a connection to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Port, if it is not the server's.
    pub port: Option<u16>,
    /// Address, if it is not the server's.
    pub address: Option<SocketAddr>,
    /// True if the connection begins like the server's own connections.
    pub own: bool,
    /// True if the connection begins with the header of the PROXY protocol.
    pub header: bool,
    /// True if the connection goes through the SOCKS4 proxy of the server.
    pub via_socks4: bool,
    /// Number of its step, if that has settings for TLS.
    pub tls: Option<usize>,
    /// True if the connection is closed normally; false if it is reset.
    pub linger: bool,
    /// True if something is sent, or the connection closed, before anything is received.
    pub speaks_first: bool,
}

/// The next action of a run.
#[derive(Debug)]
pub enum NextAction<'s> {
    /// Open a new connection; then call [`Exchange::connected`].
    Connect(Target),
    /// Send these bytes; then call [`Exchange::sent`].
    Send(Cow<'s, [u8]>),
    /// Send these bytes while the exchange goes on receiving; call nothing afterwards.
    Pass(Vec<u8>),
    /// Receive bytes, or their end; then call [`Exchange::received`].
    Receive,
    /// The check is over.
    Done(CheckResult),
}

/// One run of a script.
#[derive(Debug)]
pub struct Exchange<'s> {
    script: &'s Script,
    at: usize,
    /// True if the server serves, for `disable-on-404`.
    serves: bool,
    /// Bytes received since the last send, without HTTP.
    input: Vec<u8>,
    answer: Option<Answer>,
    /// True if no more bytes will come.
    ended: bool,
    /// Status code of the last answer.
    code: Option<u16>,
    /// Number of times that the answer was examined.
    judgements: u32,
    /// Number of bytes received since then.
    unseen: usize,
    /// Result of a service that passed.
    good: Option<CheckResult>,
    /// Last step that does more than set a variable.
    last: usize,
    /// HTTP: true if the server may keep the connection open.
    keeps: bool,
    /// HTTP: method of the last request.
    method: Option<Box<[u8]>>,
    /// True if the server's own connections use HTTP/2.
    own_h2: bool,
    /// True if TLS has negotiated HTTP/2 for the next connection.
    agreed_h2: bool,
    /// The HTTP/2 session, if the connection uses HTTP/2.
    h2: Option<Box<h2::Session>>,
}

/// Judgement of an answer.
pub(crate) enum Judgement {
    /// The answer is not complete enough.
    Wait,
    /// The answer is as expected.
    Good,
    /// The answer is as expected; this is the result of the check if nothing else fails.
    Well(CheckResult),
    /// The check is over, with this result.
    Over(CheckResult),
}

impl Script {
    /// Creates a script that only connects.
    pub fn connect() -> Self {
        Self::of(vec![Step::connect()])
    }

    /// Creates a script with these steps over TCP. A connection is added if the first step is none.
    pub fn new(mut steps: Vec<Step>) -> Self {
        if !matches!(steps.iter().find(|step| !matches!(step, Step::Set(_))), Some(Step::Connect(_))) {
            steps.insert(0, Step::connect());
        }
        Self { steps, http: false, disable_on_404: false, lenient: Leniency::NONE, names_steps: true }
    }

    /// Creates the script of a service, whose steps are not in the file.
    fn of(service: Vec<Step>) -> Self {
        Self { names_steps: false, ..Self::new(service) }
    }

    /// Returns whether the answers are HTTP.
    pub fn is_http(&self) -> bool {
        self.http
    }

    /// Returns whether the whole script can run on one of the server's own connections that has served
    /// requests.
    pub fn reuses(&self) -> bool {
        let mut connects = self.steps.iter().filter_map(|step| match step {
            Step::Connect(connect) => Some(connect),
            _ => None,
        });
        let plain = |connect: &Connect| {
            connect.own && connect.port.is_none() && connect.address.is_none() && !connect.header
        };
        self.http && connects.next().is_some_and(plain) && connects.next().is_none()
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether a step contains an expression. If none does, the properties of its connections are not
    /// needed.
    pub fn evaluates(&self) -> bool {
        self.steps.iter().any(Step::evaluates)
    }

    /// Returns whether the script makes one connection and resets it, and does nothing else.
    pub fn only_connects(&self) -> bool {
        matches!(&*self.steps, [Step::Connect(connect)] if !connect.linger && !connect.header)
    }

    /// Begins a run. `serves` says that the server is not down.
    pub fn run(&self, serves: bool) -> Exchange<'_> {
        Exchange {
            script: self,
            at: 0,
            serves,
            input: Vec::new(),
            answer: None,
            ended: false,
            code: None,
            judgements: 0,
            unseen: 0,
            good: None,
            last: 0,
            method: None,
            keeps: false,
            own_h2: false,
            agreed_h2: false,
            h2: None,
        }
    }
}

impl<'s> Exchange<'s> {
    /// Returns the script.
    pub fn script(&self) -> &'s Script {
        self.script
    }

    /// Returns how many bytes of plain memory the answer takes, beside the pools' memory.
    #[doc(hidden)] // for `tests/drips.rs`
    pub fn plain_memory(&self) -> usize {
        self.input.capacity() + self.answer.as_ref().map_or(0, Answer::plain_memory)
    }

    /// Returns the next action.
    pub fn ask(&mut self, by: &mut dyn Evaluate) -> NextAction<'s> {
        let script = self.script;
        while let Some(step) = script.steps.get(self.at) {
            if !matches!(step, Step::Set(_)) {
                self.last = self.at;
            }
            match step {
                Step::Connect(connect) => return NextAction::Connect(self.target(connect, by)),
                Step::Send(send) => match self.bytes(send, by) {
                    // The other steps go on as if something had been sent.
                    Ok(bytes) if bytes.is_empty() => self.begin(),
                    Ok(bytes) => return NextAction::Send(bytes),
                    Err(result) => return NextAction::Done(result),
                },
                Step::Set(setting) => {
                    by.set(setting, self.input());
                    self.at += 1;
                }
                Step::Expect(expect) => match self.judge(expect, by) {
                    Judgement::Wait => {
                        let output = self.h2.as_mut().map(|h2| h2.output()).unwrap_or_default();
                        return if output.is_empty() {
                            NextAction::Receive
                        } else {
                            NextAction::Pass(output)
                        };
                    }
                    Judgement::Good => self.at += 1,
                    Judgement::Well(result) => {
                        self.good = Some(result);
                        self.at += 1;
                    }
                    Judgement::Over(mut result) => {
                        let code = expect.code.as_ref().and_then(|code| by.number(code, self.input()));
                        if let (Some(code), true) = (code, result.status.has_code()) {
                            result.code = Some(code);
                        }
                        return NextAction::Done(result);
                    }
                },
            }
        }
        NextAction::Done(self.success(by))
    }

    fn target(&self, connect: &Connect, by: &mut dyn Evaluate) -> Target {
        let port = match &connect.port {
            Some(PortSource::Fixed(port)) => Some(*port),
            Some(PortSource::Of(expression)) => {
                by.number(expression, self.input()).and_then(|port| u16::try_from(port).ok())
            }
            None => None,
        };
        Target {
            port: port.filter(|port| *port != 0),
            address: connect.address,
            own: connect.own,
            header: connect.header,
            via_socks4: connect.via_socks4,
            tls: connect.tls.as_ref().map(|_| connect.number),
            linger: connect.linger || self.ends_with_bytes(),
            speaks_first: matches!(
                self.script.steps[self.at + 1..].iter().find(|step| !matches!(step, Step::Set(_))),
                None | Some(Step::Send(_))
            ),
        }
    }

    /// Returns whether the last step on the next connection sends something, which a reset might discard.
    fn ends_with_bytes(&self) -> bool {
        let rest = self.script.steps.get(self.at + 1..).unwrap_or_default();
        let own = rest.iter().take_while(|step| !matches!(step, Step::Connect(_)));
        matches!(own.filter(|step| !matches!(step, Step::Set(_))).last(), Some(Step::Send(_)))
    }

    /// Returns the bytes that a step sends.
    fn bytes(&mut self, send: &'s Send, by: &mut dyn Evaluate) -> Result<Cow<'s, [u8]>, CheckResult> {
        match &send.what {
            SendSource::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            SendSource::Format(format) => Ok(Cow::Owned(by.text(format, self.input()))),
            SendSource::Hex(format) => {
                let hex = by.text(format, self.input());
                if hex.is_empty() {
                    return Ok(Cow::Owned(hex));
                }
                tcp::from_hex(&hex).map(|bytes| Cow::Owned(bytes.into())).map_err(|_| {
                    let info =
                        format!("tcp-check send : failed to build log-format string at step {}", send.number);
                    CheckResult::new(Status::L7Rsp, info)
                })
            }
            SendSource::Request(request) if self.h2.is_some() => {
                // HAProxy treats this as a failure of the connection, without details.
                let failed = || CheckResult::new(Status::SockErr, "");
                let (head, body) = request.made_h2(self.input(), by).map_err(|_| failed())?;
                let Some(h2) = &mut self.h2 else { return Err(failed()) };
                h2.request(&head, &body).map_err(|_| failed())?;
                Ok(Cow::Owned(h2.output()))
            }
            SendSource::Request(request) => {
                let mut keeps = self.keeps;
                let bytes = request.made(self.input(), &mut keeps, by);
                self.keeps = keeps;
                self.method = Some(bytes.split(|byte| *byte == b' ').next().unwrap_or_default().into());
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Returns the answer so far.
    fn input(&self) -> CheckInput<'_> {
        match &self.answer {
            Some(answer) => CheckInput { head: answer.head(), bytes: answer.body(), http: true },
            None => CheckInput { head: None, bytes: &self.input, http: self.script.http },
        }
    }

    fn success(&self, by: &mut dyn Evaluate) -> CheckResult {
        if let Some(result) = &self.good {
            return result.clone();
        }
        let usual = if self.script.names_steps && !self.script.http { "(tcp-check)" } else { "" };
        let (status, info, code) = match self.script.steps.get(self.last) {
            Some(Step::Connect(connect)) => {
                return CheckResult::new(Status::L4Ok, if connect.number > 0 { "(tcp-check)" } else { "" });
            }
            Some(Step::Send(_) | Step::Set(_)) | None => (Status::L7Ok, None, None), // nothing has judged it
            Some(Step::Expect(expect)) => {
                let info =
                    expect.on_success.as_ref().map(|info| CheckResult::shown(&info.get(self.input(), by)));
                let code = expect.code.as_ref().and_then(|code| by.number(code, self.input()));
                (expect.ok.unwrap_or(Status::L7Ok), info, code)
            }
        };
        let usual_code = if self.script.http { self.code.map(i64::from) } else { Some(0) };
        let code = code.or(usual_code);
        CheckResult {
            status,
            code: code.filter(|_| status.has_code()),
            info: info.unwrap_or_else(|| usual.into()),
        }
    }

    fn judge(&mut self, expect: &Expect, by: &mut dyn Evaluate) -> Judgement {
        let ended =
            self.ended || self.input.len() >= MOST_BYTES || self.answer.as_ref().is_some_and(Answer::is_over);
        if self.judgements >= MAX_JUDGEMENTS && self.unseen < MANY_BYTES && !ended {
            return Judgement::Wait;
        }
        (self.judgements, self.unseen) = (self.judgements + 1, 0);
        if !self.script.http {
            return tcp::judge(expect, self.input(), ended, by);
        }
        let Some(answer) = &mut self.answer else { return Judgement::Wait };
        let judged = answer.judge(expect, self.script.disable_on_404 && self.serves, by);
        self.code = answer.code().or(self.code);
        judged
    }

    /// HTTP: asks the server to keep the connection open for further use.
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// Returns whether the connection can be used again: the answer was complete, and the server keeps it
    /// open.
    pub fn is_reusable(&self) -> bool {
        self.keeps && self.answer.as_ref().is_some_and(Answer::is_reusable)
    }

    /// HTTP: states that the server's own connections use HTTP/2.
    pub fn speak_h2(&mut self) {
        self.own_h2 = true;
    }

    /// Continues after a connection was opened.
    pub fn connected(&mut self) {
        let agreed = std::mem::take(&mut self.agreed_h2);
        let h2 = match self.script.steps.get(self.at) {
            Some(Step::Connect(connect)) => connect.http2.unwrap_or(agreed || (connect.own && self.own_h2)),
            _ => false,
        };
        self.h2 = if h2 { h2::Session::new() } else { None };
        self.begin();
    }

    /// Says that TLS has negotiated HTTP/2 for the next connection.
    pub fn agreed_on_h2(&mut self) {
        self.agreed_h2 = self.script.http;
    }

    /// Continues after the bytes were sent.
    pub fn sent(&mut self) {
        self.begin();
    }

    fn begin(&mut self) {
        self.at += 1;
        self.input.clear();
        self.ended = false;
        (self.judgements, self.unseen) = (0, 0);
        self.answer = self.script.http.then(|| match &self.h2 {
            Some(_) => Answer::of_h2(),
            None => Answer::new(self.method.as_deref().unwrap_or_default(), self.script.lenient),
        });
    }

    /// Handles received bytes, or their end.
    pub fn received(&mut self, segment: Option<Segment>) {
        self.unseen += segment.as_ref().map_or(0, |segment| segment.len());
        match (segment, &mut self.answer) {
            (Some(segment), Some(answer)) => match &mut self.h2 {
                Some(h2) => h2.receive(&segment, answer),
                None => answer.feed(&segment),
            },
            (None, Some(answer)) => answer.end(),
            (Some(segment), None) => {
                let room = MOST_BYTES - self.input.len().min(MOST_BYTES);
                self.input.extend_from_slice(&segment[..segment.len().min(room)]);
            }
            (None, None) => self.ended = true,
        }
    }

    /// Handles a connection that broke while the run waited for an answer. Returns whether there is an answer
    /// to judge: the received bytes then count as all of it, because servers often end like that after their
    /// answer.
    pub fn cut(&mut self) -> bool {
        let some = match &self.answer {
            Some(answer) => answer.head().is_some(),
            None => !self.input.is_empty(),
        };
        if some {
            self.received(None);
        }
        some
    }

    /// Returns the first line of the received bytes, if it is complete. Without HTTP.
    pub fn line(&self) -> Option<&[u8]> {
        agent::line(&self.input)
    }

    /// Returns the result if the time is over.
    pub fn timed_out(&self) -> CheckResult {
        let status = match self.script.steps.get(self.at) {
            Some(Step::Connect(_)) | None => Status::L4Tout,
            Some(Step::Expect(expect)) => expect.timeout.unwrap_or(Status::L7Tout),
            Some(Step::Send(_) | Step::Set(_)) => Status::L7Tout,
        };
        CheckResult::new(status, self.current_step())
    }

    /// Returns the result if the connection cannot be made or breaks; `why` is the system's error.
    pub fn broke(&self, why: impl fmt::Display) -> CheckResult {
        let status = match self.script.steps.get(self.at) {
            Some(Step::Connect(_)) | None => Status::L4Con,
            Some(_) => Status::SockErr,
        };
        CheckResult::new(status, format!("{why}{}", self.current_step()))
    }

    /// Names the current step, for steps of `tcp-check` in the file.
    fn current_step(&self) -> String {
        if !self.script.names_steps || self.script.http {
            return String::new();
        }
        let (number, what, comment) = match self.script.steps.get(self.at) {
            Some(Step::Connect(Connect { number: 0, .. })) => {
                return " at initial connection step of tcp-check".into();
            }
            Some(Step::Connect(connect)) => {
                let port = match &connect.port {
                    Some(PortSource::Fixed(port)) => format!(" port {port}"),
                    _ => String::new(),
                };
                (connect.number, format!("connect{port}"), &connect.comment)
            }
            Some(Step::Send(send)) => (send.number, "send".into(), &send.comment),
            Some(Step::Expect(expect)) => {
                (expect.number, format!("expect {}", expect.pattern), &expect.comment)
            }
            Some(Step::Set(_)) | None => return String::new(),
        };
        let comment = comment.as_ref().map_or(String::new(), |comment| format!(" comment: '{comment}'"));
        format!(" at step {number} of tcp-check ({what}){comment}")
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "string '{}'", String::from_utf8_lossy(bytes)),
            Self::Binary(bytes) => write!(f, "binary '{}'", String::from_utf8_lossy(&tcp::to_hex(bytes))),
            Self::Regex(_) => f.write_str("regex"),
            Self::HexRegex(_) => f.write_str("binary regex"),
            Self::Made(_) => f.write_str("log-format string"),
            Self::MadeHex(_) => f.write_str("log-format binary"),
            Self::Status(_) => f.write_str("HTTP status codes"),
            Self::StatusRegex(_) => f.write_str("HTTP status regex"),
            Self::Field { .. } => f.write_str("HTTP header pattern"),
            Self::Service(_) => f.write_str("custom function"),
        }
    }
}

/// Returns whether `bytes` contain `what`.
pub(crate) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    what.is_empty() || bytes.windows(what.len()).any(|window| window == what)
}
