//! The last messages that broke the protocol, for `show errors`: a request of each frontend, a response of
//! each backend's servers.

use manylane_buf::Chain;
use manylane_expr::Timestamp;
use manylane_h1::Relaxed;
use manylane_sync::{LockClass, Mutex};
use std::net::SocketAddr;

static INVALID: LockClass = LockClass::new("invalid messages", LockClass::LEAF);

/// Bytes of a message that are kept at most.
pub const MOST_KEPT: usize = 16_384;

/// A message that broke the protocol.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// When.
    pub date: Timestamp,
    /// How many came before it, of this proxy.
    pub number: u64,
    /// What had been received: from the message's beginning, or where its body is wrong, from the part that
    /// could not be read on.
    pub bytes: Box<[u8]>,
    /// How much that was; all of it is kept up to [`MOST_KEPT`].
    pub received: usize,
    /// The first byte that is wrong.
    pub position: usize,
    /// What is wrong.
    pub why: &'static str,
    /// It was let pass (`option accept-unsafe-violations-in-http-request` or `-response`).
    pub passed: bool,
    /// The client.
    pub source: Option<SocketAddr>,
    /// The other proxy's name and number: of a response, the frontend; of a request whose body is wrong, the
    /// backend that it was for.
    pub other: Option<(Box<str>, u32)>,
    /// The server's name and number, of a response.
    pub server: Option<(Box<str>, u32)>,
}

/// What broke the protocol, before it is known whose it is.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) error: manylane_h1::Error,
    bytes: Box<[u8]>,
    received: usize,
    passed: bool,
}

impl Found {
    /// What was let pass.
    #[cold]
    pub(crate) fn passed(relaxed: &Relaxed) -> Self {
        let received = relaxed.received.len();
        let bytes = relaxed.received[..received.min(MOST_KEPT)].into();
        Self { error: relaxed.error, bytes, received, passed: true }
    }

    /// `received`: of a head, all of it; of a body, what could not be read on.
    #[cold]
    pub(crate) fn new(received: &Chain, error: manylane_h1::Error) -> Box<Self> {
        let mut bytes = Vec::with_capacity(received.len().min(MOST_KEPT));
        for segment in received.segments() {
            let room = MOST_KEPT - bytes.len();
            bytes.extend_from_slice(&segment.as_slice()[..segment.len().min(room)]);
        }
        Box::new(Self { error, bytes: bytes.into(), received: received.len(), passed: false })
    }
}

/// The last one of a proxy.
#[derive(Debug)]
pub struct LastInvalid(Mutex<(u64, Option<Invalid>)>);

impl Default for LastInvalid {
    fn default() -> Self {
        Self(Mutex::new(&INVALID, (0, None)))
    }
}

impl LastInvalid {
    /// Keeps what was received of a message, in place of the one before.
    #[cold]
    pub(crate) fn keep(&self, found: &Found, source: Option<SocketAddr>, of: impl FnOnce(&mut Invalid)) {
        let mut invalid = Invalid {
            date: crate::session::now(),
            number: 0,
            bytes: found.bytes.clone(),
            received: found.received,
            position: found.error.position,
            why: found.error.problem.sentence(),
            passed: found.passed,
            source,
            other: None,
            server: None,
        };
        of(&mut invalid);
        let mut last = self.0.lock();
        invalid.number = last.0;
        last.0 += 1;
        let before = last.1.replace(invalid);
        drop(last);
        drop(before); // outside of the lock
    }

    /// How many there were, and the last one.
    pub fn last(&self) -> (u64, Option<Invalid>) {
        self.0.lock().clone()
    }
}
