//! Messages that broke the protocol, for `show errors`: of requests of each frontend, and of responses of
//! each backend's servers, the last that was refused, and one that was accepted (`option
//! accept-unsafe-violations-in-http-request`, `-response`), of which there may be a steady stream.

use manylane_buf::Chain;
use manylane_expr::Timestamp;
use manylane_h1::{Problem, Relaxed};
use manylane_stats::Tally;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{LockClass, Mutex, PerLane};
use std::net::SocketAddr;

static INVALID: LockClass = LockClass::new("invalid messages", LockClass::LEAF);

/// Bytes of a message that are kept at most.
pub const MOST_KEPT: usize = 16_384;

/// A message that broke the protocol.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// When.
    pub date: Timestamp,
    /// How many were kept before it, of this proxy.
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
}

impl Found {
    /// `received`: of a head, all of it; of a body, what could not be read on.
    #[cold]
    pub(crate) fn new(received: &Chain, error: manylane_h1::Error) -> Box<Self> {
        let mut bytes = Vec::with_capacity(received.len().min(MOST_KEPT));
        for segment in received.segments() {
            let room = MOST_KEPT - bytes.len();
            bytes.extend_from_slice(&segment.as_slice()[..segment.len().min(room)]);
        }
        Box::new(Self { error, bytes: bytes.into(), received: received.len() })
    }
}

/// What a proxy keeps of such messages.
#[derive(Clone, Debug, Default)]
pub struct InvalidReport {
    /// How many were kept.
    pub total: u64,
    /// The last one that was refused.
    pub refused: Option<Invalid>,
    /// The first one that was accepted since the last report.
    pub accepted: Option<Invalid>,
}

/// A lane's counters, one for each [`Problem`], in their order.
type Tallies = Box<[Tally]>;

/// Those of a proxy.
#[derive(Debug)]
pub struct InvalidMessages {
    kept: Mutex<InvalidReport>,
    /// A report has taken the accepted message, or there was none yet: the next one is kept. Relaxed: two
    /// lanes may both see it, and both keep theirs.
    wanted: AtomicBool,
    accepted: PerLane<Tallies>,
}

impl Default for InvalidMessages {
    fn default() -> Self {
        Self {
            kept: Mutex::new(&INVALID, InvalidReport::default()),
            wanted: AtomicBool::new(true),
            accepted: PerLane::new(|_| Problem::all().iter().map(|_| Tally::new()).collect()),
        }
    }
}

impl InvalidMessages {
    /// Keeps what was received of a message that is refused, in place of the one before.
    #[cold]
    pub(crate) fn keep(&self, found: &Found, source: Option<SocketAddr>, of: impl FnOnce(&mut Invalid)) {
        let mut invalid = Invalid {
            date: crate::session::now(),
            number: 0,
            bytes: found.bytes.clone(),
            received: found.received,
            position: found.error.position,
            why: found.error.problem.sentence(),
            source,
            other: None,
            server: None,
        };
        of(&mut invalid);
        self.put(invalid, |kept| &mut kept.refused);
    }

    /// Counts a message that a strict proxy would have refused, and keeps it if the last report has none of
    /// its kind. Else it takes no lock and allocates nothing: all of a server's responses may be such.
    #[cold]
    pub(crate) fn accept(
        &self,
        relaxed: &Relaxed,
        source: Option<SocketAddr>,
        of: impl FnOnce(&mut Invalid),
    ) {
        let problem = relaxed.error.problem;
        self.accepted.own()[problem as usize].add(1);
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        self.wanted.store(false, Ordering::Relaxed);
        let mut invalid = Invalid {
            date: crate::session::now(),
            number: 0,
            bytes: relaxed.received[..relaxed.received.len().min(MOST_KEPT)].into(),
            received: relaxed.received.len(),
            position: relaxed.error.position,
            why: problem.sentence(),
            source,
            other: None,
            server: None,
        };
        of(&mut invalid);
        self.put(invalid, |kept| &mut kept.accepted);
    }

    fn put(&self, mut invalid: Invalid, place: impl FnOnce(&mut InvalidReport) -> &mut Option<Invalid>) {
        let mut kept = self.kept.lock();
        invalid.number = kept.total;
        kept.total += 1;
        let before = place(&mut kept).replace(invalid);
        drop(kept);
        drop(before); // outside of the lock
    }

    /// How many were kept.
    pub fn total(&self) -> u64 {
        self.kept.lock().total
    }

    /// What is kept, for a report: the next message that is accepted takes the place of the one here.
    pub fn report(&self) -> InvalidReport {
        let kept = self.kept.lock().clone();
        self.wanted.store(true, Ordering::Relaxed);
        kept
    }

    /// How many messages were accepted that a strict proxy would have refused, by the first thing that is
    /// wrong with them; those of which there was none are left out.
    pub fn accepted(&self) -> impl Iterator<Item = (Problem, u64)> {
        Problem::all().iter().enumerate().filter_map(|(place, problem)| {
            let sum: u64 = self.accepted.iter().map(|(_, tallies)| tallies[place].get()).sum();
            (sum > 0).then_some((*problem, sum))
        })
    }
}
