//! Steps of a script: what the file says of each.

use super::Service;
use super::http::StatusRanges;
use crate::status::Status;
use manylane_expr::{Expression, Format, Regex, VariableId, When};
use std::net::SocketAddr;

/// One step.
#[derive(Debug)]
pub enum Step {
    /// A connection is opened.
    Connect(Connect),
    /// Something is sent.
    Send(Send),
    /// What comes back must be so.
    Expect(Box<Expect>),
    /// A variable is set or forgotten.
    Set(Setting),
}

impl Step {
    /// The connection as the server's own are, which no line of the file asks for.
    pub fn connect() -> Self {
        Self::Connect(Connect { own: true, ..Connect::default() })
    }

    /// The same, which is not reset at its end.
    pub fn polite() -> Self {
        Self::Connect(Connect { own: true, linger: true, ..Connect::default() })
    }

    /// These bytes are sent.
    pub fn send(bytes: impl Into<Box<[u8]>>) -> Self {
        Self::Send(Send { what: Sent::Bytes(bytes.into()), comment: None, number: 0 })
    }

    /// What comes back must be so.
    pub fn expect(expect: Expect) -> Self {
        Self::Expect(Box::new(expect))
    }
}

impl Step {
    /// Whether it has something of the expression language, which may ask what its connection is.
    pub(super) fn evaluates(&self) -> bool {
        let made = |words: &Option<Words>| words.as_ref().is_some_and(Words::is_made);
        match self {
            Self::Connect(connect) => matches!(connect.port, Some(PortOf::Of(_))),
            Self::Send(send) => match &send.what {
                Sent::Bytes(_) => false,
                Sent::Format(_) | Sent::Hex(_) => true,
                Sent::Request(request) => request.evaluates(),
            },
            Self::Expect(expect) => {
                let pattern = match &expect.pattern {
                    Pattern::Made(_) | Pattern::MadeHex(_) => true,
                    Pattern::Field { name, value, .. } => {
                        name.is_made() || value.as_ref().is_some_and(Text::is_made)
                    }
                    _ => false,
                };
                pattern || expect.code.is_some() || made(&expect.on_success) || made(&expect.on_error)
            }
            Self::Set(_) => true,
        }
    }
}

/// `connect`
#[derive(Debug, Default)]
pub struct Connect {
    /// As the server's own connections are: they may begin with a header. `default`, or nobody wrote the
    /// step.
    pub own: bool,
    /// `port`
    pub port: Option<PortOf>,
    /// `addr`; without a port where that is 0.
    pub address: Option<SocketAddr>,
    /// `send-proxy`: it begins with the header of the PROXY protocol.
    pub header: bool,
    /// `linger`: its end is told in the usual way; else it is reset.
    pub linger: bool,
    /// `ssl`: it speaks TLS, and so.
    pub tls: Option<ConnectTls>,
    /// `proto`: whether it speaks HTTP/2. None: as the server's checks do where it is one of the server's
    /// own, else it does not.
    pub http2: Option<bool>,
    /// Says what the step is for.
    pub comment: Option<Box<str>>,
    /// Its number among the file's steps, from 1; 0 when the file has no such step.
    pub number: usize,
}

/// How a connection of a check speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectTls {
    /// `sni`: the name that it asks for.
    pub name: Option<Box<str>>,
    /// `alpn`: protocols, separated by commas.
    pub protocols: Option<Box<str>>,
}

/// Which port.
#[derive(Debug)]
pub enum PortOf {
    /// This one.
    Fixed(u16),
    /// What the expression says.
    Of(Box<Expression>),
}

/// `send` and its like.
#[derive(Debug)]
pub struct Send {
    /// What is sent.
    pub what: Sent,
    /// Says what the step is for.
    pub comment: Option<Box<str>>,
    /// As [`Connect::number`].
    pub number: usize,
}

/// What is sent.
#[derive(Debug)]
pub enum Sent {
    /// These bytes.
    Bytes(Box<[u8]>),
    /// What the format makes: `send-lf`.
    Format(Format),
    /// The bytes of what the format makes in hexadecimal: `send-binary-lf`.
    Hex(Format),
    /// A request.
    Request(Box<super::HttpRequest>),
}

/// A text that the file says, or that is made when it is needed.
#[derive(Debug)]
pub enum Words {
    /// These.
    Fixed(Box<[u8]>),
    /// What the format makes.
    Format(Format),
}

impl Default for Words {
    fn default() -> Self {
        Self::Fixed(Box::default())
    }
}

impl<B: AsRef<[u8]>> From<B> for Words {
    fn from(bytes: B) -> Self {
        Self::Fixed(bytes.as_ref().into())
    }
}

impl Words {
    pub(super) fn is_made(&self) -> bool {
        self.fixed().is_none()
    }

    /// Them, where they do not depend on a moment.
    pub fn fixed(&self) -> Option<&[u8]> {
        match self {
            Self::Fixed(bytes) => Some(bytes),
            Self::Format(format) => format.constant(),
        }
    }
}

/// `set-var`, `set-var-fmt`, `unset-var`
#[derive(Debug)]
pub struct Setting {
    /// The variable.
    pub id: VariableId,
    /// Whether it is set, which may depend on what it is.
    pub when: When,
    /// To what.
    pub to: Value,
}

/// What a variable is set to.
#[derive(Debug)]
pub enum Value {
    /// What the expression says.
    Of(Box<Expression>),
    /// What the format makes.
    Format(Format),
    /// It has no value any more.
    Nothing,
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
    /// `min-recv`: no fewer bytes are looked at, unless no more come; and what is not in them is not waited
    /// for.
    pub least: Option<usize>,
    /// `ok-status`: what it comes to if it is so, and this was the last step.
    pub ok: Option<Status>,
    /// `error-status`: what it comes to if it is not so.
    pub error: Option<Status>,
    /// `tout-status`: what it comes to if no answer comes in time.
    pub timeout: Option<Status>,
    /// `on-success`: what is told if it is so, and this was the last step.
    pub on_success: Option<Words>,
    /// `on-error`: what is told if it is not so.
    pub on_error: Option<Words>,
    /// `status-code`: the code that is told, whatever it is.
    pub code: Option<Box<Expression>>,
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
            code: None,
        }
    }
}

/// What is looked for in an answer: in all bytes that came since the last were sent, or in HTTP in the body.
#[derive(Debug)]
pub enum Pattern {
    /// These bytes somewhere.
    Bytes(Box<[u8]>),
    /// The same, which the file has in hexadecimal.
    Binary(Box<[u8]>),
    /// Something that this matches.
    Regex(Regex),
    /// What the format makes, somewhere: `string-lf`.
    Made(Format),
    /// The bytes of what the format makes in hexadecimal, somewhere: `binary-lf`.
    MadeHex(Format),
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
    Is(Words),
    /// It begins with this.
    Begins(Words),
    /// It ends with this.
    Ends(Words),
    /// This is in it.
    Has(Words),
    /// This matches it.
    Matches(Regex),
}

impl Text {
    fn is_made(&self) -> bool {
        match self {
            Self::Is(words) | Self::Begins(words) | Self::Ends(words) | Self::Has(words) => words.is_made(),
            Self::Matches(_) => false,
        }
    }
}
