//! Steps of a script, as the file describes them.

use super::Service;
use super::http::StatusRanges;
use crate::status::Status;
use manylane_expr::{Expression, Format, Regex, SetConditions, VariableId};
use std::net::SocketAddr;

/// One step of a script.
#[derive(Debug)]
pub enum Step {
    /// Opens a connection.
    Connect(Connect),
    /// Sends something.
    Send(Send),
    /// Expects something in the answer.
    Expect(Box<Expect>),
    /// Sets or unsets a variable.
    Set(Setting),
}

impl Step {
    /// Opens a connection like the server's own; no line of the file asks for it.
    pub fn connect() -> Self {
        Self::Connect(Connect { own: true, ..Connect::default() })
    }

    /// Opens the same connection, which is closed normally at its end.
    pub fn polite() -> Self {
        Self::Connect(Connect { own: true, linger: true, ..Connect::default() })
    }

    /// Sends these bytes.
    pub fn send(bytes: impl Into<Box<[u8]>>) -> Self {
        Self::Send(Send { what: SendSource::Bytes(bytes.into()), comment: None, number: 0 })
    }

    /// Expects something in the answer.
    pub fn expect(expect: Expect) -> Self {
        Self::Expect(Box::new(expect))
    }
}

impl Step {
    /// Returns whether the step contains an expression, which may ask for properties of its connection.
    pub(super) fn evaluates(&self) -> bool {
        let made = |words: &Option<TextSource>| words.as_ref().is_some_and(TextSource::is_made);
        match self {
            Self::Connect(connect) => matches!(connect.port, Some(PortSource::Of(_))),
            Self::Send(send) => match &send.what {
                SendSource::Bytes(_) => false,
                SendSource::Format(_) | SendSource::Hex(_) => true,
                SendSource::Request(request) => request.evaluates(),
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
    /// True for a connection like the server's own, which may begin with a header. Set by `default`, or if
    /// the step is not in the file.
    pub own: bool,
    /// `port`
    pub port: Option<PortSource>,
    /// `addr`; port 0 stands for no port.
    pub address: Option<SocketAddr>,
    /// `send-proxy`: begins with the header of the PROXY protocol.
    pub header: bool,
    /// `via-socks4`: goes through the SOCKS4 proxy of the server, if it has one.
    pub via_socks4: bool,
    /// `linger`: closes normally; otherwise the connection is reset.
    pub linger: bool,
    /// `ssl`: uses TLS with these settings.
    pub tls: Option<ConnectTls>,
    /// `proto`: true for HTTP/2. `None`: like the server's checks if it is one of the server's own,
    /// otherwise not.
    pub http2: Option<bool>,
    /// Comment about the purpose of the step.
    pub comment: Option<Box<str>>,
    /// Number among the steps of the file, from 1; 0 if the file has no such step.
    pub number: usize,
}

/// Settings of TLS for a connection of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectTls {
    /// `sni`: server name to ask for.
    pub name: Option<Box<str>>,
    /// `alpn`: protocols, separated by commas.
    pub protocols: Option<Box<str>>,
}

/// Source of a port.
#[derive(Debug)]
pub enum PortSource {
    /// A fixed port.
    Fixed(u16),
    /// The value of an expression.
    Of(Box<Expression>),
}

/// `send` and its like.
#[derive(Debug)]
pub struct Send {
    /// Bytes to send.
    pub what: SendSource,
    /// Comment about the purpose of the step.
    pub comment: Option<Box<str>>,
    /// See [`Connect::number`].
    pub number: usize,
}

/// Source of the bytes to send.
#[derive(Debug)]
pub enum SendSource {
    /// Fixed bytes.
    Bytes(Box<[u8]>),
    /// The text that the format makes: `send-lf`.
    Format(Format),
    /// The bytes that the format makes as hexadecimal digits: `send-binary-lf`.
    Hex(Format),
    /// An HTTP request.
    Request(Box<super::HttpRequest>),
}

/// A text that is fixed, or made when it is needed.
#[derive(Debug)]
pub enum TextSource {
    /// A fixed text.
    Fixed(Box<[u8]>),
    /// The text that the format makes.
    Format(Format),
}

impl Default for TextSource {
    fn default() -> Self {
        Self::Fixed(Box::default())
    }
}

impl<B: AsRef<[u8]>> From<B> for TextSource {
    fn from(bytes: B) -> Self {
        Self::Fixed(bytes.as_ref().into())
    }
}

impl TextSource {
    pub(super) fn is_made(&self) -> bool {
        self.fixed().is_none()
    }

    /// Returns the text, if it is the same at every moment.
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
    /// Condition for setting the variable, which may depend on its value.
    pub when: SetConditions,
    /// The new value.
    pub to: Value,
}

/// Source of a variable's value.
#[derive(Debug)]
pub enum Value {
    /// The value of an expression.
    Of(Box<Expression>),
    /// The text that the format makes.
    Format(Format),
    /// No value: the variable is unset.
    Nothing,
}

/// An expectation.
#[derive(Debug)]
pub struct Expect {
    /// Pattern to look for.
    pub pattern: Pattern,
    /// True if the pattern must not match.
    pub negated: bool,
    /// Comment about the purpose of the step.
    pub comment: Option<Box<str>>,
    /// Number among the steps of the file, from 1.
    pub number: usize,
    /// `min-recv`: number of bytes to wait for, unless the answer ends earlier. The pattern is then tried
    /// once, without waiting for more.
    pub least: Option<usize>,
    /// `ok-status`: status if the expectation is met in the last step.
    pub ok: Option<Status>,
    /// `error-status`: status if the expectation is not met.
    pub error: Option<Status>,
    /// `tout-status`: status if no answer comes in time.
    pub timeout: Option<Status>,
    /// `on-success`: text if the expectation is met in the last step.
    pub on_success: Option<TextSource>,
    /// `on-error`: text if the expectation is not met.
    pub on_error: Option<TextSource>,
    /// `status-code`: code to report in any case.
    pub code: Option<Box<Expression>>,
}

impl Expect {
    /// Creates an expectation of this pattern, for the step with this number.
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

/// Pattern to look for: in all bytes that came since the last send, or in HTTP in the body.
#[derive(Debug)]
pub enum Pattern {
    /// These bytes, anywhere.
    Bytes(Box<[u8]>),
    /// These bytes, which the file has in hexadecimal, anywhere.
    Binary(Box<[u8]>),
    /// A match of this expression.
    Regex(Regex),
    /// The text that the format makes, anywhere: `string-lf`.
    Made(Format),
    /// The bytes that the format makes as hexadecimal digits, anywhere: `binary-lf`.
    MadeHex(Format),
    /// HTTP: one of these statuses.
    Status(StatusRanges),
    /// HTTP: a status that this expression matches.
    StatusRegex(Regex),
    /// A match of this expression in the bytes as hexadecimal digits, in upper case.
    HexRegex(Regex),
    /// HTTP: a header field that matches the name and, if given, the value.
    Field {
        /// Name, in lower case.
        name: Text,
        /// Value.
        value: Option<Text>,
        /// True to compare the whole value with its commas; false to compare each member of the list.
        whole: bool,
    },
    /// The good answer of a service.
    Service(Service),
}

/// Comparison of a text.
#[derive(Debug)]
pub enum Text {
    /// The text equals this.
    Is(TextSource),
    /// The text begins with this.
    Begins(TextSource),
    /// The text ends with this.
    Ends(TextSource),
    /// The text contains this.
    Has(TextSource),
    /// The expression matches the text.
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
