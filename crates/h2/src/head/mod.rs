//! Heads: fields of header blocks into [`Head`]s, with all of RFC 9113's rules, and the reverse.
//!
//! What comes is put into the form of HTTP/1, as `manylane-http` keeps heads, so that a message goes on to a
//! server of that version without being written anew.

mod authority;
mod receive;
mod send;

pub(crate) use receive::{Collector, Expected};
pub(crate) use send::{FIELD, Sent, list_size, request, response, trailers};

use manylane_buf::Segment;
use manylane_http::Head;

/// The scheme of a request.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
    /// Another one.
    Other(Segment),
    /// A CONNECT has none.
    None,
}

impl Scheme {
    /// As it is written.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Http => b"http",
            Self::Https => b"https",
            Self::Other(scheme) => scheme,
            Self::None => b"",
        }
    }
}

/// A request that came.
#[derive(Debug)]
pub struct Request {
    /// Method, path and query as the target, and the fields. `Host` is its first field, made of the
    /// authority without a port that the scheme has anyway. The target of a CONNECT is its authority. An
    /// extended CONNECT is a GET here, as an upgrade of HTTP/1 is.
    pub head: Head,
    /// The scheme.
    pub scheme: Scheme,
    /// The protocol that an extended CONNECT asks for (RFC 8441), `websocket` for one.
    pub protocol: Option<Segment>,
    /// What `Content-Length` says. The data is held to it.
    pub length: Option<u64>,
}

/// A response that came, interim or final.
#[derive(Debug)]
pub struct Response {
    /// Status, its usual reason, and the fields.
    pub head: Head,
    /// What `Content-Length` says. The data is held to it where there is any.
    pub length: Option<u64>,
}
