//! Errors: the codes of RFC 9113, and each problem with its code and a sentence.

use crate::hpack;
use std::fmt;

/// An error code (RFC 9113, 7) in RST_STREAM and GOAWAY.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(u32);

macro_rules! reasons {
    ($($constant:ident $code:literal $name:literal $what:literal)*) => {
        impl Reason {
            $(#[doc = $what] pub const $constant: Self = Self($code);)*

            /// Returns the code's name in the RFC; `None` for an unknown code.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some($name),)* _ => None }
            }
        }
    };
}

reasons! {
    NO_ERROR 0x0 "NO_ERROR" "All is well."
    PROTOCOL_ERROR 0x1 "PROTOCOL_ERROR" "The peer has broken a rule that has no code of its own."
    INTERNAL_ERROR 0x2 "INTERNAL_ERROR" "The sender of the code has an internal error."
    FLOW_CONTROL_ERROR 0x3 "FLOW_CONTROL_ERROR" "The peer has sent more than a window allows, or made one \
        too large."
    SETTINGS_TIMEOUT 0x4 "SETTINGS_TIMEOUT" "The peer has not acknowledged settings in time."
    STREAM_CLOSED 0x5 "STREAM_CLOSED" "A frame came for a stream that its sender had ended."
    FRAME_SIZE_ERROR 0x6 "FRAME_SIZE_ERROR" "A frame has a size that its kind cannot have."
    REFUSED_STREAM 0x7 "REFUSED_STREAM" "Nothing was done with the stream: it may be tried again."
    CANCEL 0x8 "CANCEL" "The stream is not needed any more."
    COMPRESSION_ERROR 0x9 "COMPRESSION_ERROR" "A header block cannot be read."
    CONNECT_ERROR 0xa "CONNECT_ERROR" "The connection that a CONNECT has made was reset or closed abnormally."
    ENHANCE_YOUR_CALM 0xb "ENHANCE_YOUR_CALM" "The peer makes more work than it should."
    INADEQUATE_SECURITY 0xc "INADEQUATE_SECURITY" "The transport is not safe enough."
    HTTP_1_1_REQUIRED 0xd "HTTP_1_1_REQUIRED" "The request has to be made over HTTP/1.1."
}

impl Reason {
    /// Creates a reason from any code; unknown codes are kept (RFC 9113, 7).
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// Returns the code.
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! problems {
    ($($name:ident $reason:ident $sentence:literal)*) => {
        /// A problem with the peer's input. Each is the peer's fault, except for [`NoMemory`](Self::NoMemory)
        /// and [`Aborted`](Self::Aborted).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Problem {
            $(#[doc = $sentence] $name,)*
        }

        impl Problem {
            /// Returns one sentence for people.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// Returns whether the peer is at fault.
            pub fn is_of_peer(self) -> bool {
                !matches!(self, Self::NoMemory | Self::Aborted)
            }

            /// Returns the code that this side sends to the peer.
            pub fn reason(self) -> Reason {
                match self { $(Self::$name => Reason::$reason,)* }
            }

            /// Returns all problems, for tables.
            pub fn all() -> &'static [Self] {
                &[$(Self::$name),*]
            }
        }
    };
}

problems! {
    // -- the connection
    Preface PROTOCOL_ERROR "the connection does not begin with the preface of HTTP/2"
    NoSettings PROTOCOL_ERROR "the first frame is not SETTINGS"
    FrameSize FRAME_SIZE_ERROR "a frame has a size that its kind cannot have"
    TooLargeFrame FRAME_SIZE_ERROR "a frame is larger than SETTINGS_MAX_FRAME_SIZE"
    Padding PROTOCOL_ERROR "a frame has more padding than bytes"
    NoStream PROTOCOL_ERROR "a frame that needs a stream has the stream identifier 0"
    StreamNotAllowed PROTOCOL_ERROR "a frame of the connection has a stream identifier other than 0"
    IdleStream PROTOCOL_ERROR "a frame is for a stream that has not begun"
    ClosedStream STREAM_CLOSED "a frame is for a stream that its sender has ended"
    WrongStream PROTOCOL_ERROR "a stream identifier that its sender cannot use"
    Push PROTOCOL_ERROR "a PUSH_PROMISE although SETTINGS_ENABLE_PUSH is 0"
    Interrupted PROTOCOL_ERROR "a header block is interrupted by another frame"
    StrayContinuation PROTOCOL_ERROR "a CONTINUATION follows no header block"
    Compression COMPRESSION_ERROR "a header block cannot be decompressed"
    BadSetting PROTOCOL_ERROR "a setting has a value that it cannot have"
    WindowSetting FLOW_CONTROL_ERROR "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31 - 1"
    TooManySettings ENHANCE_YOUR_CALM "a SETTINGS frame has more than 64 settings"
    GoawayRaised PROTOCOL_ERROR "a GOAWAY allows more streams than the one before"
    PriorityUpdateFromServer PROTOCOL_ERROR "a server sends PRIORITY_UPDATE"
    // -- flow control
    ConnectionWindow FLOW_CONTROL_ERROR "more data than the connection's window allows"
    StreamWindow FLOW_CONTROL_ERROR "more data than the stream's window allows"
    WindowOverflow FLOW_CONTROL_ERROR "a window is made larger than 2^31 - 1"
    ZeroUpdate PROTOCOL_ERROR "a WINDOW_UPDATE of 0"
    // -- messages
    OwnDependency PROTOCOL_ERROR "a stream is to depend on itself"
    NotAtEnd PROTOCOL_ERROR "a second header block does not end the message"
    EndedInterim PROTOCOL_ERROR "an interim response ends the stream"
    DataBeforeHead PROTOCOL_ERROR "data comes before the head"
    UpperCase PROTOCOL_ERROR "a field's name has letters in upper case"
    BadName PROTOCOL_ERROR "a field's name is empty or has a character that a token cannot have"
    BadValue PROTOCOL_ERROR "a field's value has a control character, or a blank at an end"
    ConnectionField PROTOCOL_ERROR "a field that only connections of HTTP/1 have"
    BadTe PROTOCOL_ERROR "TE has a value other than 'trailers'"
    LatePseudo PROTOCOL_ERROR "a pseudo-header behind a field"
    TwicePseudo PROTOCOL_ERROR "a pseudo-header comes twice"
    UnknownPseudo PROTOCOL_ERROR "a pseudo-header that the message cannot have"
    MissingPseudo PROTOCOL_ERROR "a pseudo-header that the message must have is missing"
    BadMethod PROTOCOL_ERROR "the method is not a token"
    BadScheme PROTOCOL_ERROR ":scheme is not a URI scheme"
    BadPath PROTOCOL_ERROR "expected a path of URI characters that begins with a slash, or '*' with OPTIONS"
    BadAuthority PROTOCOL_ERROR "the authority or Host is not a host with an optional port"
    NoHost PROTOCOL_ERROR "there is neither an authority nor Host"
    OtherHost PROTOCOL_ERROR "Host is not the authority, or there are two"
    ConnectTarget PROTOCOL_ERROR "a CONNECT without a host and port, or with a scheme or path"
    NoConnectProtocol PROTOCOL_ERROR "an extended CONNECT, which was not offered"
    BadStatus PROTOCOL_ERROR "the status is not a number from 100 to 999, or is 101"
    BadLength PROTOCOL_ERROR "Content-Length is not one number below 2^63"
    WrongLength PROTOCOL_ERROR "the data is not as long as Content-Length says"
    BadTrailer PROTOCOL_ERROR "a trailer field that would change framing or routing"
    TooLargeHead PROTOCOL_ERROR "a head is larger than the limit, or has too many fields"
    ConnectSwitch PROTOCOL_ERROR "SETTINGS_ENABLE_CONNECT_PROTOCOL changes from 1 to 0"
    TooManyStreams REFUSED_STREAM "more streams at a time than SETTINGS_MAX_CONCURRENT_STREAMS"
    // -- attacks
    TooLargeBlock ENHANCE_YOUR_CALM "a header block is larger than the limit"
    DecodedBlock ENHANCE_YOUR_CALM "a header block decodes to more than the limit"
    ContinuationFlood ENHANCE_YOUR_CALM "a header block comes in too many CONTINUATION frames"
    Resets ENHANCE_YOUR_CALM "too many streams are reset in a short time"
    CheapFrames ENHANCE_YOUR_CALM "too many frames that ask for an answer or change nothing"
    UnreadAnswers ENHANCE_YOUR_CALM "the peer asks for answers and does not read them"
    Glitches ENHANCE_YOUR_CALM "the peer's glitches have reached the threshold"
    // -- on this side
    NoMemory INTERNAL_ERROR "no memory"
    Aborted INTERNAL_ERROR "the connection was ended on this side"
}

impl From<hpack::Error> for Problem {
    fn from(error: hpack::Error) -> Self {
        match error {
            hpack::Error::TooMuch => Self::DecodedBlock,
            hpack::Error::NoMemory => Self::NoMemory,
            _ => Self::Compression,
        }
    }
}

impl From<manylane_buf::Error> for Problem {
    fn from(_: manylane_buf::Error) -> Self {
        Self::NoMemory
    }
}

impl From<manylane_pool::AllocError> for Problem {
    fn from(_: manylane_pool::AllocError) -> Self {
        Self::NoMemory
    }
}

/// An error that ends the connection. The output that is left contains the GOAWAY for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The problem.
    pub problem: Problem,
    /// The code that this side sends to the peer.
    pub reason: Reason,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.problem.sentence())
    }
}

impl std::error::Error for ConnectionError {}

/// A fault, by how far it reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Ends the connection.
    Connection(Problem),
    /// Ends the stream of the frame.
    Stream(Problem),
}

impl<P: Into<Problem>> From<P> for Fault {
    fn from(problem: P) -> Self {
        Self::Connection(problem.into())
    }
}

/// Reason why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The stream has ended, or was reset.
    Closed,
    /// The stream is in another state: this would be a second head, data before a head, or something behind
    /// the end.
    Order,
    /// No stream may begin now: the peer's limit is reached, the numbers are used up, or the connection ends.
    NoStream,
    /// The peer does not accept heads of this size.
    TooLarge,
    /// The data does not match the `Content-Length` of its head. The stream is unchanged; it cannot be
    /// completed, so reset it.
    WrongLength,
    /// The head cannot be written in HTTP/2; the sentence says why.
    Invalid(&'static str),
    /// The lane's pools have no memory. The connection has failed.
    NoMemory,
    /// The connection failed earlier.
    Failed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the stream has ended",
            Self::Order => "expected one head, and data or trailers only behind it",
            Self::NoStream => "no further stream may begin on this connection now",
            Self::TooLarge => "the peer does not take heads of this size",
            Self::WrongLength => "the data is not as long as Content-Length says",
            Self::Invalid(what) => what,
            Self::NoMemory => "no memory for a frame",
            Self::Failed => "the connection has failed",
        })
    }
}

impl std::error::Error for SendError {}
