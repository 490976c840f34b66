//! Reasons to refuse a message.

use std::fmt;

/// A refused message: the status to answer, the position, and the reason.
///
/// The input still has all bytes of the message from its first one on, so that they can be kept for
/// `show errors`. Of a body, it has the part that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Status to answer the client: 400, 405, 413, 414, 422, 431, 500 or 505 for a request, 502 or 500 for a
    /// response. The connection cannot be used any more.
    pub status: u16,
    /// Offset of the first wrong byte in the input.
    pub position: usize,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.problem.sentence(), self.position)
    }
}

impl std::error::Error for Error {}

macro_rules! problems {
    ($($name:ident $status:literal $sentence:literal)*) => {
        /// A problem of a message.
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

            /// Returns the status to answer a request with this problem.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Returns all problems, for tables.
            pub fn all() -> &'static [Self] {
                &[$(Self::$name),*]
            }
        }
    };
}

problems! {
    BareCr 400 "a carriage return that no line feed follows"
    BareLf 400 "a line feed that no carriage return precedes"
    Control 400 "a control character where text is expected"
    BadMethod 400 "the method is missing or has a character that a token cannot have"
    BadTarget 400 "the target is missing or has a character that a URI cannot have"
    TargetForm 400 "expected a path, an absolute URI, '*' with OPTIONS, or a host and port with CONNECT"
    ExtraSpace 400 "more than one space in the first line"
    NoVersion 400 "the first line has no version (HTTP/0.9)"
    BadVersion 400 "the version is not written as HTTP/ and two digits with a dot between them"
    OtherVersion 505 "the version is not one of HTTP/1"
    Http2 405 "the beginning of an HTTP/2 connection where HTTP/1 is expected"
    BadStatus 400 "the status is not a number of three digits from 100 to 999"
    BadReason 400 "expected a space or the end of the line behind the status"
    EmptyLine 400 "too many empty lines before a message"
    Folded 400 "a field is continued on the next line (obs-fold)"
    SpaceBeforeColon 400 "a space between a field's name and its colon"
    NoColon 400 "a field's line has no colon"
    EmptyName 400 "a field has no name"
    BadName 400 "a field's name has a character that a token cannot have"
    TooLongTarget 414 "the first line is larger than a head may be"
    TooLarge 431 "the head is larger than tune.bufsize less tune.maxrewrite"
    TooManyFields 431 "the head has more fields than tune.http.maxhdr allows"
    BadLength 400 "the value of Content-Length is not one decimal number below 2^63"
    TwoLengths 400 "there is more than one Content-Length"
    LengthAndCoding 400 "there are both Content-Length and Transfer-Encoding"
    BadCoding 400 "expected 'chunked' in Transfer-Encoding, once, last and without parameters"
    OtherCoding 422 "a transfer coding that is not chunked"
    CodingBefore11 400 "Transfer-Encoding in a message whose version is below 1.1"
    BodyForbidden 400 "a framed body where the message cannot have one"
    OldPayload 413 "a GET, HEAD or DELETE of HTTP/1.0 with a body"
    TwoHosts 400 "there is more than one Host"
    NoHost 400 "a request of HTTP/1.1 without Host"
    BadHost 400 "the value of Host is not a host with an optional port"
    OtherHost 400 "Host is not the host of the target"
    TooManyOptions 400 "Connection names more than 64 fields"
    UnaskedSwitch 400 "a 101 response to a request without an upgrade"
    NoSwitch 400 "a 101 response without 'Connection: upgrade'"
    NoWebSocketKey 400 "an upgrade to WebSocket without a Sec-WebSocket-Key of 16 bytes"
    NoWebSocketAccept 400 "a switch to WebSocket without the right Sec-WebSocket-Accept"
    BadChunkSize 400 "a chunk's size is missing or is not hexadecimal"
    HugeChunk 400 "a chunk's size does not fit into 63 bits"
    BadExtension 400 "a chunk's extension has forbidden bytes or is too long"
    BadChunkEnd 400 "a chunk's data is not followed by an end of line"
    TooLargeTrailers 431 "the trailers are larger than a head may be"
    BadTrailer 400 "a trailer field that would change framing or routing"
    Early 400 "the body ended before all of it was there"
    NoMemory 500 "no memory"
}
