//! What a check says and expects: steps, and one run of them over a connection that somebody else has.
//!
//! A file a kind: [`tcp`], [`http`], and the services whose answers are known by heart: [`redis`], [`mysql`], [`pgsql`], [`smtp`], [`ldap`], [`tls`].

pub mod agent;
pub mod http;
pub mod ldap;
pub mod mysql;
pub mod pgsql;
pub mod redis;
pub mod smtp;
pub mod tcp;
pub mod tls;

use crate::status::{Status, Verdict};
use http::Answer;
use manylane_buf::Segment;
use manylane_expr::Regex;
use std::fmt;

pub use http::{HttpRequest, StatusRanges};

/// Bytes of an answer that are looked at, at most; what comes after them is not waited for.
pub const MOST_BYTES: usize = 16 << 10;

/// How often an answer is looked at as it comes; then only for each [`MANY_BYTES`], and at its end. A server that sends byte for byte must not have
/// its answer searched anew for each.
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
    /// Its steps are the file's, so a timeout says at which of them.
    told: bool,
}

/// One step.
#[derive(Debug)]
pub enum Step {
    /// A connection is opened.
    Connect {
        /// `port`, if it says one.
        port: Option<u16>,
        /// As the server's own connections are: they may begin with a header.
        own: bool,
    },
    /// These bytes are sent.
    Send(Box<[u8]>),
    /// What comes back must be so.
    Expect(Expect),
}

/// What must be, or must not be.
#[derive(Debug)]
pub struct Expect {
    /// What is looked for.
    pub pattern: Pattern,
    /// It must not be there.
    pub negated: bool,
    /// Says what the step is for.
    pub comment: Option<Box<str>>,
    /// Its number among the file's steps, from 1.
    pub number: usize,
    /// `min-recv`: no fewer bytes are looked at, unless no more come; and what is not in them is not waited for.
    pub least: Option<usize>,
    /// `ok-status`: what it comes to if it is so, and this was the last step.
    pub ok: Option<Status>,
    /// `error-status`: what it comes to if it is not so.
    pub error: Option<Status>,
    /// `tout-status`: what it comes to if no answer comes in time.
    pub timeout: Option<Status>,
    /// `on-success`: what is told if it is so, and this was the last step.
    pub on_success: Option<Box<str>>,
    /// `on-error`: what is told if it is not so.
    pub on_error: Option<Box<str>>,
}

impl Expect {
    /// What must be, as the step of this number, and nothing more of it.
    pub fn new(pattern: Pattern, number: usize) -> Self {
        Self {
            pattern,
            negated: false,
            comment: None,
            number,
            least: None,
            ok: None,
            error: None,
            timeout: None,
            on_success: None,
            on_error: None,
        }
    }

    /// What is told if it is not so: what the file says, or else `why`.
    fn error_told(&self, why: impl FnOnce() -> String) -> String {
        self.on_error.as_ref().map_or_else(why, |told| told.to_string())
    }
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

    /// What an empty answer comes to.
    fn empty(self) -> Status {
        match self {
            Self::Redis | Self::Smtp(smtp::Part::Hello | smtp::Part::Quit) => Status::L7Sts,
            Self::Tls => Status::L6Rsp,
            _ => Status::L7Rsp,
        }
    }
}

/// What is looked for in an answer: in all bytes that came since the last were sent, or in HTTP in the body.
#[derive(Debug)]
pub enum Pattern {
    /// These bytes somewhere, and how they are shown.
    Bytes(Box<[u8]>, Box<str>),
    /// Something that this matches.
    Regex(Regex),
    /// HTTP: one of these statuses.
    Status(StatusRanges),
    /// HTTP: a status that this matches.
    StatusRegex(Regex),
    /// Something that this matches in the bytes as hexadecimal digits, in upper case.
    HexRegex(Regex),
    /// HTTP: a header field of such a name, with such a value if one is asked for.
    Field {
        /// Its name, in lower case.
        name: Text,
        /// Its value.
        value: Option<Text>,
        /// All of the value, commas too; else a member of the list that it is.
        whole: bool,
    },
    /// The good answer of a service.
    Service(Service),
}

/// What a text is compared with.
#[derive(Debug)]
pub enum Text {
    /// It is this.
    Is(Box<[u8]>),
    /// It begins with this.
    Begins(Box<[u8]>),
    /// It ends with this.
    Ends(Box<[u8]>),
    /// This is in it.
    Has(Box<[u8]>),
    /// This matches it.
    Matches(Regex),
}

impl Text {
    fn fits(&self, text: &[u8]) -> bool {
        match self {
            Self::Is(all) => text == &**all,
            Self::Begins(with) => text.starts_with(with),
            Self::Ends(with) => text.ends_with(with),
            Self::Has(part) => contains(text, part),
            Self::Matches(regex) => regex.matches(text),
        }
    }
}

/// What a run waits for.
#[derive(Debug)]
pub enum Ask<'s> {
    /// A new connection, as [`Step::Connect`] says; then [`Exchange::connected`].
    Connect {
        /// To this port.
        port: Option<u16>,
        /// With what the server's own begin with.
        own: bool,
    },
    /// These bytes to be sent; then [`Exchange::sent`].
    Send(&'s [u8]),
    /// Bytes, or the end of them: [`Exchange::received`].
    Receive,
    /// Nothing more.
    Done(Verdict),
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
    good: Option<Verdict>,
}

/// Whether an answer is as it should be.
pub(crate) enum Judgement {
    /// That is not known yet.
    Wait,
    /// It is.
    Good,
    /// It is, and this is what the check comes to if nothing else is wrong.
    Well(Verdict),
    /// It is not, or need not be.
    Over(Verdict),
}

impl Script {
    /// That a connection can be made.
    pub fn connect() -> Self {
        Self::new(vec![Step::Connect { port: None, own: true }])
    }

    /// These steps over TCP. One that begins with no connection gets one.
    pub fn new(mut steps: Vec<Step>) -> Self {
        if !matches!(steps.first(), Some(Step::Connect { .. })) {
            steps.insert(0, Step::Connect { port: None, own: true });
        }
        Self { steps, http: false, disable_on_404: false, told: true }
    }

    /// The same for a service, whose steps nobody has written.
    fn of(service: Vec<Step>) -> Self {
        Self { told: false, ..Self::new(service) }
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
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
        }
    }
}

impl<'s> Exchange<'s> {
    /// What it waits for.
    pub fn ask(&mut self) -> Ask<'s> {
        let script = self.script;
        while let Some(step) = script.steps.get(self.at) {
            match step {
                &Step::Connect { port, own } => return Ask::Connect { port, own },
                Step::Send(bytes) => return Ask::Send(bytes),
                Step::Expect(expect) => match self.judge(expect) {
                    Judgement::Wait => return Ask::Receive,
                    Judgement::Good => self.at += 1,
                    Judgement::Well(verdict) => {
                        self.good = Some(verdict);
                        self.at += 1;
                    }
                    Judgement::Over(verdict) => return Ask::Done(verdict),
                },
            }
        }
        Ask::Done(self.success())
    }

    fn success(&self) -> Verdict {
        if let Some(verdict) = &self.good {
            return verdict.clone();
        }
        let (status, told) = match self.script.steps.last() {
            Some(Step::Connect { .. }) | None => return Verdict::new(Status::L4Ok, ""),
            Some(Step::Send(_)) => (Status::L7Ok, None), // nothing has judged it
            Some(Step::Expect(expect)) => (expect.ok.unwrap_or(Status::L7Ok), expect.on_success.clone()),
        };
        let (code, usual) = if self.script.http { (self.code, "") } else { (Some(0), "(tcp-check)") };
        Verdict {
            status,
            code: code.filter(|_| status.has_code()),
            info: told.unwrap_or_else(|| usual.into()),
        }
    }

    fn judge(&mut self, expect: &Expect) -> Judgement {
        let ended =
            self.ended || self.input.len() >= MOST_BYTES || self.answer.as_ref().is_some_and(Answer::is_over);
        if self.looks >= MOST_LOOKS && self.unseen < MANY_BYTES && !ended {
            return Judgement::Wait;
        }
        (self.looks, self.unseen) = (self.looks + 1, 0);
        if !self.script.http {
            return tcp::judge(expect, &self.input, ended);
        }
        let Some(answer) = &mut self.answer else { return Judgement::Wait };
        let judged = answer.judge(expect, self.script.disable_on_404 && self.serves);
        self.code = answer.code().or(self.code);
        judged
    }

    /// There is a connection.
    pub fn connected(&mut self) {
        self.begin();
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
        self.answer = self.script.http.then(|| Answer::new(self.script.steps.get(self.at.wrapping_sub(1))));
    }

    /// These bytes came, or the end.
    pub fn received(&mut self, segment: Option<Segment>) {
        self.unseen += segment.as_ref().map_or(0, |segment| segment.len());
        match (segment, &mut self.answer) {
            (Some(segment), Some(answer)) => answer.feed(&segment),
            (None, Some(answer)) => answer.end(),
            (Some(segment), None) => {
                let room = MOST_BYTES - self.input.len().min(MOST_BYTES);
                self.input.extend_from_slice(&segment[..segment.len().min(room)]);
            }
            (None, None) => self.ended = true,
        }
    }

    /// The first line of what came, if it has an end: without HTTP.
    pub fn line(&self) -> Option<&[u8]> {
        agent::line(&self.input)
    }

    /// What it comes to when the time is over.
    pub fn timed_out(&self) -> Verdict {
        match self.script.steps.get(self.at) {
            Some(Step::Connect { .. }) | None => Verdict::new(Status::L4Tout, ""),
            Some(Step::Expect(expect)) => {
                let what = match self.script.http || !self.script.told {
                    true => String::new(),
                    false => format!(" at step {} of tcp-check (expect {})", expect.number, expect.pattern),
                };
                Verdict::new(expect.timeout.unwrap_or(Status::L7Tout), what)
            }
            Some(Step::Send(_)) => Verdict::new(Status::L7Tout, ""),
        }
    }

    /// What it comes to when the connection cannot be made, or breaks, which the system calls `why`.
    pub fn broke(&self, why: impl fmt::Display) -> Verdict {
        let status = match self.script.steps.get(self.at) {
            Some(Step::Connect { .. }) | None => Status::L4Con,
            Some(_) => Status::L7Rsp,
        };
        Verdict::new(status, why.to_string())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(_, shown) => write!(f, "string '{shown}'"),
            Self::Regex(_) | Self::HexRegex(_) => f.write_str("regex"),
            Self::Status(_) | Self::StatusRegex(_) => f.write_str("status"),
            Self::Field { .. } => f.write_str("header"),
            Self::Service(_) => f.write_str("service"),
        }
    }
}

/// Where `what` begins in `bytes`.
pub(crate) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    what.is_empty() || bytes.windows(what.len()).any(|window| window == what)
}
