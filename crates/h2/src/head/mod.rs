//! Heads: turns the fields of header blocks into [`Head`]s, by all rules of RFC 9113, and the reverse.
//!
//! A received head gets the form of HTTP/1, in which `manylane-http` keeps heads, so that a message goes on
//! to an HTTP/1 server without being rewritten.

mod authority;
mod receive;
mod send;

pub(crate) use receive::{Collector, Expected};
pub(crate) use send::{FIELD, Sent, list_size, request, response, trailers};

use manylane_buf::Segment;
use manylane_http::Head;

/// Scheme of a request.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
    /// Another scheme.
    Other(Segment),
    /// No scheme: the request is a CONNECT.
    None,
}

impl Scheme {
    /// Returns the scheme as written.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Http => b"http",
            Self::Https => b"https",
            Self::Other(scheme) => scheme,
            Self::None => b"",
        }
    }
}

/// A received request.
#[derive(Debug)]
pub struct Request {
    /// Method, target (path and query), and fields. Its first field is `Host`, made of the authority without
    /// the scheme's default port. The target of a CONNECT is its authority. An extended CONNECT becomes a
    /// GET, like an upgrade of HTTP/1.
    pub head: Head,
    /// Scheme of the request.
    pub scheme: Scheme,
    /// Protocol of an extended CONNECT (RFC 8441), such as `websocket`.
    pub protocol: Option<Segment>,
    /// Value of `Content-Length`. The connection checks the data against it.
    pub length: Option<u64>,
}

/// A received response, interim or final.
#[derive(Debug)]
pub struct Response {
    /// Status, its usual reason, and fields.
    pub head: Head,
    /// Value of `Content-Length`. The connection checks the data against it, if there is any.
    pub length: Option<u64>,
}
