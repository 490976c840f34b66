//! Messages that broke the protocol, for `show errors`: requests of each frontend and responses of each
//! backend's servers. Keeps the last refused message, and one that was accepted (`option
//! accept-unsafe-violations-in-http-request`, `-response`), of which there may be a steady stream.

use manylane_buf::Chain;
use manylane_expr::Timestamp;
use manylane_h1::{Problem, Relaxed};
use manylane_mux::h2::Violation;
use manylane_stats::Tally;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{LockClass, Mutex, PerLane};
use std::net::SocketAddr;

static INVALID: LockClass = LockClass::new("invalid messages", LockClass::LEAF);

/// Most bytes that are kept of a message.
pub const MOST_KEPT: usize = 16_384;

/// A message that broke the protocol.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// When the message was received.
    pub date: Timestamp,
    /// How many messages of this proxy were kept before.
    pub number: u64,
    /// Received bytes: from the start of the message, or, if the body is invalid, from the part that could
    /// not be parsed.
    pub bytes: Box<[u8]>,
    /// Number of received bytes; all of them are kept up to [`MOST_KEPT`].
    pub received: usize,
    /// Position of the first invalid byte, 0 in HTTP/2.
    pub position: usize,
    /// The frame that was invalid, in HTTP/2; the bytes are its payload.
    pub frame: Option<Frame>,
    /// The violation.
    pub why: &'static str,
    /// Address of the client.
    pub source: Option<SocketAddr>,
    /// Name and number of the other proxy: of a response, the frontend; of a request whose body is invalid,
    /// the backend that it was for.
    pub other: Option<(Box<str>, u32)>,
    /// Name and number of the server, for a response.
    pub server: Option<(Box<str>, u32)>,
}

/// A frame of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of its kind in RFC 9113.
    pub name: &'static str,
    /// Its flags.
    pub flags: u8,
    /// Number of its stream, 0 for the connection.
    pub stream: u32,
}

/// A violation, before its proxy and server are known.
#[derive(Debug)]
pub struct Found {
    /// What is wrong.
    pub error: manylane_h1::Error,
    bytes: Box<[u8]>,
    received: usize,
}

impl Found {
    /// Stores a violation. `received` holds the whole head, or the part of a body that could not be parsed.
    #[cold]
    pub fn new(received: &Chain, error: manylane_h1::Error) -> Box<Self> {
        let mut bytes = Vec::with_capacity(received.len().min(MOST_KEPT));
        for segment in received.segments() {
            let room = MOST_KEPT - bytes.len();
            bytes.extend_from_slice(&segment.as_slice()[..segment.len().min(room)]);
        }
        Box::new(Self { error, bytes: bytes.into(), received: received.len() })
    }
}

/// Messages that a proxy keeps.
#[derive(Clone, Debug, Default)]
pub struct InvalidReport {
    /// How many messages were kept.
    pub total: u64,
    /// The last message that was refused.
    pub refused: Option<Invalid>,
    /// The first message that was accepted since the last report.
    pub accepted: Option<Invalid>,
}

/// A lane's counters, one for each [`Problem`], in their order.
type Tallies = Box<[Tally]>;

/// Invalid messages of a proxy.
#[derive(Debug)]
pub struct InvalidMessages {
    kept: Mutex<InvalidReport>,
    /// True if the next accepted message is to be kept: a report has read the last one, or there was none
    /// yet. Relaxed: two lanes may both see true and both keep their message.
    wanted: AtomicBool,
    accepted: PerLane<Tallies>,
    /// Messages that passed without the option, as by HAProxy.
    tolerated: PerLane<Tallies>,
}

impl Default for InvalidMessages {
    fn default() -> Self {
        let tallies = |_| Problem::all().iter().map(|_| Tally::new()).collect();
        Self {
            kept: Mutex::new(&INVALID, InvalidReport::default()),
            wanted: AtomicBool::new(true),
            accepted: PerLane::new(tallies),
            tolerated: PerLane::new(tallies),
        }
    }
}

impl InvalidMessages {
    /// Keeps a message that was refused, in place of the one before.
    #[cold]
    pub fn keep(&self, found: &Found, source: Option<SocketAddr>, of: impl FnOnce(&mut Invalid)) {
        let mut invalid = Invalid {
            date: crate::clock::now(),
            number: 0,
            bytes: found.bytes.clone(),
            received: found.received,
            position: found.error.position,
            frame: None,
            why: found.error.problem.sentence(),
            source,
            other: None,
            server: None,
        };
        of(&mut invalid);
        self.put(invalid, |kept| &mut kept.refused);
    }

    /// Keeps a frame of HTTP/2 that was refused, in place of the message before.
    #[cold]
    pub fn keep_frame(
        &self,
        violation: Violation,
        source: Option<SocketAddr>,
        server: Option<(Box<str>, u32)>,
    ) {
        let Violation { problem, frame: name, flags, stream, len, bytes } = violation;
        let invalid = Invalid {
            date: crate::clock::now(),
            number: 0,
            bytes: bytes.into(),
            received: len,
            position: 0,
            frame: Some(Frame { name, flags, stream }),
            why: problem.sentence(),
            source,
            other: None,
            server,
        };
        self.put(invalid, |kept| &mut kept.refused);
    }

    /// Counts a message that strict parsing would have refused, and keeps it if none was kept since the last
    /// report. Otherwise it takes no lock and allocates nothing, since every response of a server may be of
    /// this kind.
    #[cold]
    pub fn accept(&self, relaxed: &Relaxed, source: Option<SocketAddr>, of: impl FnOnce(&mut Invalid)) {
        let problem = relaxed.error.problem;
        self.accepted.own()[problem as usize].add(1);
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        self.wanted.store(false, Ordering::Relaxed);
        let mut invalid = Invalid {
            date: crate::clock::now(),
            number: 0,
            bytes: relaxed.received[..relaxed.received.len().min(MOST_KEPT)].into(),
            received: relaxed.received.len(),
            position: relaxed.error.position,
            frame: None,
            why: problem.sentence(),
            source,
            other: None,
            server: None,
        };
        of(&mut invalid);
        self.put(invalid, |kept| &mut kept.accepted);
    }

    /// Counts a message that passed without the option, and that `option http-strict-framing` would refuse.
    #[cold]
    pub fn tolerate(&self, relaxed: &Relaxed) {
        self.tolerated.own()[relaxed.error.problem as usize].add(1);
    }

    fn put(&self, mut invalid: Invalid, slot: impl FnOnce(&mut InvalidReport) -> &mut Option<Invalid>) {
        let mut kept = self.kept.lock();
        invalid.number = kept.total;
        kept.total += 1;
        let before = slot(&mut kept).replace(invalid);
        drop(kept);
        drop(before); // outside of the lock
    }

    /// Returns how many messages were kept.
    pub fn total(&self) -> u64 {
        self.kept.lock().total
    }

    /// Returns the kept messages for a report. The next accepted message then replaces the one here.
    pub fn report(&self) -> InvalidReport {
        let kept = self.kept.lock().clone();
        self.wanted.store(true, Ordering::Relaxed);
        kept
    }

    /// Returns how many messages were accepted that strict parsing would have refused, by their first
    /// violation. Leaves out violations that did not occur.
    pub fn accepted(&self) -> impl Iterator<Item = (Problem, u64)> {
        sums(&self.accepted)
    }

    /// Returns the same of messages that passed without the option.
    pub fn tolerated(&self) -> impl Iterator<Item = (Problem, u64)> {
        sums(&self.tolerated)
    }
}

fn sums(counted: &PerLane<Tallies>) -> impl Iterator<Item = (Problem, u64)> {
    Problem::all().iter().enumerate().filter_map(|(index, problem)| {
        let sum: u64 = counted.iter().map(|(_, tallies)| tallies[index].get()).sum();
        (sum > 0).then_some((*problem, sum))
    })
}
