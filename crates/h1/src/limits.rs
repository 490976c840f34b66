//! What is allowed.

use crate::leniency::Leniency;

/// Bounds on a message's head, and which rules are relaxed. One for each proxy; small enough to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a head as received: `tune.bufsize` less `tune.maxrewrite`, at most
    /// [`MAX_HEAD`](manylane_http::MAX_HEAD).
    pub head: usize,
    /// Most bytes of a head with its edits: `tune.bufsize`.
    pub room: usize,
    /// Most fields, plus one for the first line: `tune.http.maxhdr`.
    pub fields: usize,
    /// `option accept-unsafe-violations-in-http-request` or `-response`: names and targets may have most
    /// bytes, versions may be odd (HTTP/0.9 among them), and requests may have no `Host`. Nothing about
    /// framing is relaxed.
    pub relaxed: bool,
    /// What else is accepted that the strict parser refuses. If anything is, `relaxed` holds only for
    /// messages that the strict parser refuses, so that [`Relaxed`](crate::Relaxed) tells of these, too.
    pub lenient: Leniency,
    /// `h1-accept-payload-with-any-method`: GET, HEAD and DELETE of HTTP/1.0 may have bodies.
    pub old_payload: bool,
    /// `option http-use-proxy-header`: a request whose target is absolute tells with `Proxy-Connection` what
    /// others tell with `Connection`.
    pub proxy_header: bool,
    /// A request that offers to go on in HTTP/2 keeps what it [says](crate::Connection::h2c) of that.
    pub h2c: bool,
}

impl Limits {
    /// What is tried first: the same without any relaxation, if what it refuses is read leniently then.
    #[inline]
    pub(crate) fn first(&self) -> Self {
        Self { relaxed: self.relaxed && self.lenient.is_none(), lenient: Leniency::NONE, ..*self }
    }
}

impl Default for Limits {
    /// 15,360 bytes, 101 lines, strict.
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
