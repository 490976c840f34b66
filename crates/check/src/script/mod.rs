//! What a check says and expects: steps, and one run of them over a connection that somebody else has.
//!
//! A file a kind: [`tcp`], [`http`], and the services whose answers are known by heart: [`redis`], [`mysql`],
//! [`pgsql`], [`smtp`], [`ldap`], [`tls`].

pub mod agent;
mod h2;
pub mod http;
pub mod ldap;
pub mod mysql;
pub mod pgsql;
pub mod redis;
pub mod smtp;
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
pub use step::{Connect, ConnectTls, Expect, Pattern, PortOf, Send, Sent, Setting, Step, Text, Value, Words};

/// Bytes of an answer that are looked at, at most; what comes after them is not waited for.
pub const MOST_BYTES: usize = 16 << 10;

/// How often an answer is looked at as it comes; then only for each [`MANY_BYTES`], and at its end. A server
/// that sends byte for byte must not have its answer searched anew for each.
const MOST_LOOKS: u32 = 256;
const MANY_BYTES: usize = 1 << 10;

/// What is done for a check, in order.
#[derive(Debug)]
pub struct Script {
    steps: Vec<Step>,
    /// Answers are HTTP's.
    http: bool,
    /// `http-check disable-on-404`
    disable_on_404: bool,
    /// How answers may bend the rules of HTTP.
    lenient: Leniency,
    /// Its steps are the file's, so a timeout says at which of them.
    told: bool,
}

/// Services whose answers are known by heart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Redis: its answer to a PING.
    Redis,
    /// MySQL: what it says first; with `login`, its answer to one, too.
    Mysql {
        /// A login was sent.
        login: bool,
    },
    /// PostgreSQL: its answer to a startup message.
    Pgsql,
    /// SMTP: its answer to this.
    Smtp(smtp::Part),
    /// LDAP: its answer to an anonymous bind.
    Ldap,
    /// TLS: any answer to a hello.
    Tls,
    /// An agent: any line.
    Agent,
}

impl Service {
    /// `last`: no more is looked at.
    fn judge(self, input: &[u8], last: bool) -> Judgement {
        match self {
            Self::Redis => redis::judge(input, last),
            Self::Mysql { login } => mysql::judge(login, input, last),
            Self::Pgsql => pgsql::judge(input, last),
            Self::Smtp(part) => smtp::judge(part, input, last),
            Self::Ldap => ldap::judge(input, last),
            Self::Tls => tls::judge(input, last),
            Self::Agent => agent::judge(input, last),
        }
    }

    /// What an empty answer comes to, where it is told as such; other services judge it as an answer.
    fn empty(self) -> Option<Status> {
        match self {
            Self::Redis | Self::Pgsql | Self::Smtp(_) | Self::Ldap => None,
            Self::Tls => Some(Status::L6Rsp),
            Self::Mysql { .. } | Self::Agent => Some(Status::L7Rsp),
        }
    }
}

/// Evaluates what steps have of the expression language. Whoever makes the check does: it knows the
/// connection, the variables and the lane.
pub trait Evaluate {
    /// What the format makes.
    fn text(&mut self, format: &Format, seen: CheckInput<'_>) -> Vec<u8>;
    /// The number that the expression says, if it says one.
    fn number(&mut self, expression: &Expression, seen: CheckInput<'_>) -> Option<i64>;
    /// Sets a variable, or forgets it.
    fn set(&mut self, setting: &Setting, seen: CheckInput<'_>);
    /// What `http-check send-state` tells.
    fn state(&mut self) -> Vec<u8>;
}

/// For scripts without expressions: whatever is asked for is empty.
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

/// What came of an answer so far, as expressions see it.
#[derive(Clone, Copy, Debug)]
pub struct CheckInput<'a> {
    /// HTTP: its head.
    pub head: Option<&'a Head>,
    /// HTTP: its body. Else all that came.
    pub bytes: &'a [u8],
    /// The answers are HTTP's.
    pub http: bool,
}

impl CheckInput<'_> {
    /// The bytes, as expressions read them; empty where there is no memory left.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        let _ = chain.append(self.bytes); // an answer that nobody can look at says nothing
        chain
    }
}

impl Words {
    /// The text at this moment.
    pub(crate) fn get<'w>(&'w self, seen: CheckInput<'_>, by: &mut dyn Evaluate) -> Cow<'w, [u8]> {
        match self {
            Self::Fixed(bytes) => Cow::Borrowed(bytes),
            Self::Format(format) => Cow::Owned(by.text(format, seen)),
        }
    }
}

/// Where and how a connection is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// To this port.
    pub port: Option<u16>,
    /// To this address.
    pub address: Option<SocketAddr>,
    /// With what the server's own begin with.
    pub own: bool,
    /// With the header of the PROXY protocol.
    pub header: bool,
    /// The number of its step, where that says how it speaks TLS.
    pub tls: Option<usize>,
    /// It ends in the usual way; else it is reset.
    pub linger: bool,
    /// Nothing is waited for before something is sent, or before it ends.
    pub speaks_first: bool,
}

/// What a run waits for.
#[derive(Debug)]
pub enum Ask<'s> {
    /// A new connection; then [`Exchange::connected`].
    Connect(Target),
    /// These bytes to be sent; then [`Exchange::sent`].
    Send(Cow<'s, [u8]>),
    /// The same beside what is waited for, which goes on: nothing is told of it.
    Pass(Vec<u8>),
    /// Bytes, or the end of them: [`Exchange::received`].
    Receive,
    /// Nothing more.
    Done(CheckResult),
}

/// One run of a script.
#[derive(Debug)]
pub struct Exchange<'s> {
    script: &'s Script,
    at: usize,
    /// The server serves, which `disable-on-404` wants to know.
    serves: bool,
    /// What came since the last bytes were sent, without HTTP.
    input: Vec<u8>,
    answer: Option<Answer>,
    /// No more will come.
    ended: bool,
    /// The status code of the last answer.
    code: Option<u16>,
    /// How often the answer was looked at.
    looks: u32,
    /// Bytes that came since it was.
    unseen: usize,
    /// What a service said that is well.
    good: Option<CheckResult>,
    /// The last step that does more than to set a variable.
    last: usize,
    /// HTTP: the server may leave the connection open.
    keeps: bool,
    /// HTTP: the method of the last request.
    method: Option<Box<[u8]>>,
    /// Connections as the server's own are of HTTP/2.
    own_h2: bool,
    /// The connection that comes next speaks HTTP/2, since TLS has agreed on it.
    agreed_h2: bool,
    /// The connection, where it is of HTTP/2.
    h2: Option<Box<h2::Session>>,
}

/// Whether an answer is as it should be.
pub(crate) enum Judgement {
    /// That is not known yet.
    Wait,
    /// It is.
    Good,
    /// It is, and this is what the check comes to if nothing else is wrong.
    Well(CheckResult),
    /// It is not, or need not be.
    Over(CheckResult),
}

impl Script {
    /// That a connection can be made.
    pub fn connect() -> Self {
        Self::of(vec![Step::connect()])
    }

    /// These steps over TCP. One that begins with no connection gets one.
    pub fn new(mut steps: Vec<Step>) -> Self {
        if !matches!(steps.iter().find(|step| !matches!(step, Step::Set(_))), Some(Step::Connect(_))) {
            steps.insert(0, Step::connect());
        }
        Self { steps, http: false, disable_on_404: false, lenient: Leniency::NONE, told: true }
    }

    /// The same for a service, whose steps nobody has written.
    fn of(service: Vec<Step>) -> Self {
        Self { told: false, ..Self::new(service) }
    }

    /// Whether it speaks HTTP.
    pub fn is_http(&self) -> bool {
        self.http
    }

    /// Whether a connection of the server's own, on which requests were sent, does for all of it.
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

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether a step has something of the expression language. Else nobody asks what its connections are.
    pub fn evaluates(&self) -> bool {
        self.steps.iter().any(Step::evaluates)
    }

    /// Whether it makes one connection and resets it.
    pub fn only_connects(&self) -> bool {
        matches!(&*self.steps, [Step::Connect(connect)] if !connect.linger && !connect.header)
    }

    /// Runs it once. `serves`: the server has not gone down.
    pub fn run(&self, serves: bool) -> Exchange<'_> {
        Exchange {
            script: self,
            at: 0,
            serves,
            input: Vec::new(),
            answer: None,
            ended: false,
            code: None,
            looks: 0,
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
    /// What is run.
    pub fn script(&self) -> &'s Script {
        self.script
    }

    /// What it waits for.
    pub fn ask(&mut self, by: &mut dyn Evaluate) -> Ask<'s> {
        let script = self.script;
        while let Some(step) = script.steps.get(self.at) {
            if !matches!(step, Step::Set(_)) {
                self.last = self.at;
            }
            match step {
                Step::Connect(connect) => return Ask::Connect(self.target(connect, by)),
                Step::Send(send) => match self.bytes(send, by) {
                    // The rest of the steps goes on as if something had been sent.
                    Ok(bytes) if bytes.is_empty() => self.begin(),
                    Ok(bytes) => return Ask::Send(bytes),
                    Err(verdict) => return Ask::Done(verdict),
                },
                Step::Set(setting) => {
                    by.set(setting, self.seen());
                    self.at += 1;
                }
                Step::Expect(expect) => match self.judge(expect, by) {
                    Judgement::Wait => {
                        let output = self.h2.as_mut().map(|h2| h2.output()).unwrap_or_default();
                        return if output.is_empty() { Ask::Receive } else { Ask::Pass(output) };
                    }
                    Judgement::Good => self.at += 1,
                    Judgement::Well(verdict) => {
                        self.good = Some(verdict);
                        self.at += 1;
                    }
                    Judgement::Over(mut verdict) => {
                        let code = expect.code.as_ref().and_then(|code| by.number(code, self.seen()));
                        if let (Some(code), true) = (code, verdict.status.has_code()) {
                            verdict.code = Some(code);
                        }
                        return Ask::Done(verdict);
                    }
                },
            }
        }
        Ask::Done(self.success(by))
    }

    fn target(&self, connect: &Connect, by: &mut dyn Evaluate) -> Target {
        let port = match &connect.port {
            Some(PortOf::Fixed(port)) => Some(*port),
            Some(PortOf::Of(expression)) => {
                by.number(expression, self.seen()).and_then(|port| u16::try_from(port).ok())
            }
            None => None,
        };
        Target {
            port: port.filter(|port| *port != 0),
            address: connect.address,
            own: connect.own,
            header: connect.header,
            tls: connect.tls.as_ref().map(|_| connect.number),
            linger: connect.linger || self.ends_with_bytes(),
            speaks_first: matches!(
                self.script.steps[self.at + 1..].iter().find(|step| !matches!(step, Step::Set(_))),
                None | Some(Step::Send(_))
            ),
        }
    }

    /// Whether the last thing of the connection that comes is to send something, which a reset might take
    /// back.
    fn ends_with_bytes(&self) -> bool {
        let rest = self.script.steps.get(self.at + 1..).unwrap_or_default();
        let own = rest.iter().take_while(|step| !matches!(step, Step::Connect(_)));
        matches!(own.filter(|step| !matches!(step, Step::Set(_))).last(), Some(Step::Send(_)))
    }

    /// What a step sends.
    fn bytes(&mut self, send: &'s Send, by: &mut dyn Evaluate) -> Result<Cow<'s, [u8]>, CheckResult> {
        match &send.what {
            Sent::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Sent::Format(format) => Ok(Cow::Owned(by.text(format, self.seen()))),
            Sent::Hex(format) => {
                let hex = by.text(format, self.seen());
                if hex.is_empty() {
                    return Ok(Cow::Owned(hex));
                }
                tcp::from_hex(&hex).map(|bytes| Cow::Owned(bytes.into())).map_err(|_| {
                    let told =
                        format!("tcp-check send : failed to build log-format string at step {}", send.number);
                    CheckResult::new(Status::L7Rsp, told)
                })
            }
            Sent::Request(request) if self.h2.is_some() => {
                // To HAProxy this is a failure of the connection, of which it says no more.
                let failed = || CheckResult::new(Status::SockErr, "");
                let (head, body) = request.made_h2(self.seen(), by).map_err(|_| failed())?;
                let Some(h2) = &mut self.h2 else { return Err(failed()) };
                h2.request(&head, &body).map_err(|_| failed())?;
                Ok(Cow::Owned(h2.output()))
            }
            Sent::Request(request) => {
                let mut keeps = self.keeps;
                let bytes = request.made(self.seen(), &mut keeps, by);
                self.keeps = keeps;
                self.method = Some(bytes.split(|byte| *byte == b' ').next().unwrap_or_default().into());
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// What came so far.
    fn seen(&self) -> CheckInput<'_> {
        match &self.answer {
            Some(answer) => CheckInput { head: answer.head(), bytes: answer.body(), http: true },
            None => CheckInput { head: None, bytes: &self.input, http: self.script.http },
        }
    }

    fn success(&self, by: &mut dyn Evaluate) -> CheckResult {
        if let Some(verdict) = &self.good {
            return verdict.clone();
        }
        let usual = if self.script.told && !self.script.http { "(tcp-check)" } else { "" };
        let (status, told, code) = match self.script.steps.get(self.last) {
            Some(Step::Connect(connect)) => {
                return CheckResult::new(Status::L4Ok, if connect.number > 0 { "(tcp-check)" } else { "" });
            }
            Some(Step::Send(_) | Step::Set(_)) | None => (Status::L7Ok, None, None), // nothing has judged it
            Some(Step::Expect(expect)) => {
                let told =
                    expect.on_success.as_ref().map(|told| CheckResult::shown(&told.get(self.seen(), by)));
                let code = expect.code.as_ref().and_then(|code| by.number(code, self.seen()));
                (expect.ok.unwrap_or(Status::L7Ok), told, code)
            }
        };
        let usual_code = if self.script.http { self.code.map(i64::from) } else { Some(0) };
        let code = code.or(usual_code);
        CheckResult {
            status,
            code: code.filter(|_| status.has_code()),
            info: told.unwrap_or_else(|| usual.into()),
        }
    }

    fn judge(&mut self, expect: &Expect, by: &mut dyn Evaluate) -> Judgement {
        let ended =
            self.ended || self.input.len() >= MOST_BYTES || self.answer.as_ref().is_some_and(Answer::is_over);
        if self.looks >= MOST_LOOKS && self.unseen < MANY_BYTES && !ended {
            return Judgement::Wait;
        }
        (self.looks, self.unseen) = (self.looks + 1, 0);
        if !self.script.http {
            return tcp::judge(expect, self.seen(), ended, by);
        }
        let Some(answer) = &mut self.answer else { return Judgement::Wait };
        let judged = answer.judge(expect, self.script.disable_on_404 && self.serves, by);
        self.code = answer.code().or(self.code);
        judged
    }

    /// HTTP: the connection is to be used for more than this.
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// Whether the connection is good for more: the answer came as a whole, and the server leaves it open.
    pub fn is_reusable(&self) -> bool {
        self.keeps && self.answer.as_ref().is_some_and(Answer::is_reusable)
    }

    /// HTTP: the server's own connections speak HTTP/2.
    pub fn speak_h2(&mut self) {
        self.own_h2 = true;
    }

    /// There is a connection.
    pub fn connected(&mut self) {
        let agreed = std::mem::take(&mut self.agreed_h2);
        let h2 = match self.script.steps.get(self.at) {
            Some(Step::Connect(connect)) => connect.http2.unwrap_or(agreed || (connect.own && self.own_h2)),
            _ => false,
        };
        self.h2 = if h2 { h2::Session::new() } else { None };
        self.begin();
    }

    /// The connection that comes next has agreed on HTTP/2 within TLS.
    pub fn agreed_on_h2(&mut self) {
        self.agreed_h2 = self.script.http;
    }

    /// The bytes were sent.
    pub fn sent(&mut self) {
        self.begin();
    }

    fn begin(&mut self) {
        self.at += 1;
        self.input.clear();
        self.ended = false;
        (self.looks, self.unseen) = (0, 0);
        self.answer = self.script.http.then(|| match &self.h2 {
            Some(_) => Answer::of_h2(),
            None => Answer::new(self.method.as_deref().unwrap_or_default(), self.script.lenient),
        });
    }

    /// These bytes came, or the end.
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

    /// The connection broke while an answer was waited for. Whether there is one to look at: what came is
    /// then all of it, since a server that has said what it wanted to often ends so.
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

    /// The first line of what came, if it has an end: without HTTP.
    pub fn line(&self) -> Option<&[u8]> {
        agent::line(&self.input)
    }

    /// What it comes to when the time is over.
    pub fn timed_out(&self) -> CheckResult {
        let status = match self.script.steps.get(self.at) {
            Some(Step::Connect(_)) | None => Status::L4Tout,
            Some(Step::Expect(expect)) => expect.timeout.unwrap_or(Status::L7Tout),
            Some(Step::Send(_) | Step::Set(_)) => Status::L7Tout,
        };
        CheckResult::new(status, self.place())
    }

    /// What it comes to when the connection cannot be made, or breaks, which the system calls `why`.
    pub fn broke(&self, why: impl fmt::Display) -> CheckResult {
        let status = match self.script.steps.get(self.at) {
            Some(Step::Connect(_)) | None => Status::L4Con,
            Some(_) => Status::SockErr,
        };
        CheckResult::new(status, format!("{why}{}", self.place()))
    }

    /// At which step it is, for steps of `tcp-check` that the file has.
    fn place(&self) -> String {
        if !self.script.told || self.script.http {
            return String::new();
        }
        let (number, what, comment) = match self.script.steps.get(self.at) {
            Some(Step::Connect(Connect { number: 0, .. })) => {
                return " at initial connection step of tcp-check".into();
            }
            Some(Step::Connect(connect)) => {
                let port = match &connect.port {
                    Some(PortOf::Fixed(port)) => format!(" port {port}"),
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

/// Where `what` begins in `bytes`.
pub(crate) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    what.is_empty() || bytes.windows(what.len()).any(|window| window == what)
}
