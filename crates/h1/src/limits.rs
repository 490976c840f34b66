//! Limits of a parser.

use crate::leniency::Leniency;

/// Bounds on a message's head, and the rules that are relaxed. One for each proxy; small enough to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest size of a received head, in bytes: `tune.bufsize` less `tune.maxrewrite`, at most
    /// [`MAX_HEAD`](manylane_http::MAX_HEAD).
    pub head: usize,
    /// Largest size of a head with its edits, in bytes: `tune.bufsize`.
    pub room: usize,
    /// Largest number of fields, plus one for the first line: `tune.http.maxhdr`.
    pub fields: usize,
    /// `option accept-unsafe-violations-in-http-request` or `-response`: versions may be odd (HTTP/0.9 among
    /// them) and become 1.0 or 1.1, and requests need no `Host`, or have another one than their target, whose
    /// host they get. Handshakes of WebSocket need neither key nor `Sec-WebSocket-Accept`. It relaxes nothing
    /// about framing.
    pub relaxed: bool,
    /// Further relaxations of the strict parser. If there are any, `relaxed` applies only to messages that
    /// the strict parser refuses, so that [`Relaxed`](crate::Relaxed) reports those, too.
    pub lenient: Leniency,
    /// `h1-accept-payload-with-any-method`: GET, HEAD and DELETE of HTTP/1.0 may have bodies.
    pub old_payload: bool,
    /// `option http-use-proxy-header`: in a request with an absolute target, `Proxy-Connection` takes the
    /// place of `Connection`.
    pub proxy_header: bool,
    /// A request that offers HTTP/2 keeps the [fields](crate::Connection::h2c) of its offer.
    pub h2c: bool,
}

impl Limits {
    /// Returns the limits of the first attempt: without relaxations, if a second attempt reads leniently.
    #[inline]
    pub(crate) fn first(&self) -> Self {
        Self { relaxed: self.relaxed && self.lenient.is_none(), lenient: Leniency::NONE, ..*self }
    }
}

impl Default for Limits {
    /// Returns 15,360 bytes, 101 lines, strict.
    fn default() -> Self {
        Self {
            head: 15_360,
            room: 16_384,
            fields: 101,
            relaxed: false,
            lenient: Leniency::NONE,
            old_payload: false,
            proxy_header: false,
            h2c: false,
        }
    }
}
