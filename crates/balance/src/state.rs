//! The running state of a server: whether it takes requests, and its weight. Any thread reads it; a thread
//! that changes the server writes it.
//!
//! The state is on cache lines that are written only when something changes, so reads cost nothing in
//! between.

use crate::server_limit::{ConnSlot, ServerLimit};
use crate::spec::{ServerSpec, WEIGHT_SCALE};
use manylane_sched::Time;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::{Arc, CachePadded};
use std::time::Duration;

/// State of a server by its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The server works, or has no check.
    Up,
    /// The server works and takes no new clients, only requests that persistence binds to it.
    Stopping,
    /// The server does not work.
    Down,
}

/// Order of the operator for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Admin {
    /// No restriction.
    Ready,
    /// No new clients, only requests that persistence binds to it.
    Drain,
    /// No requests at all.
    Maintenance,
}

/// Everything but the weight that decides whether a server takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Availability {
    /// State by the checks.
    pub operation: Operation,
    /// Order of the operator for the server itself.
    pub own: Admin,
    /// Order of the operator for the server that this one tracks.
    pub inherited: Admin,
    /// True if the server's name has no address: no request can go there.
    pub unresolved: bool,
}

impl Availability {
    /// Returns the stricter of the operator's two orders. A server without an address is in maintenance.
    pub fn admin(self) -> Admin {
        if self.unresolved { Admin::Maintenance } else { self.own.max(self.inherited) }
    }

    /// Returns whether the server is in maintenance: it gets neither requests nor checks.
    pub fn is_in_maintenance(self) -> bool {
        self.admin() == Admin::Maintenance
    }

    /// Returns whether the server serves requests that persistence binds to it.
    pub fn serves(self) -> bool {
        self.operation != Operation::Down && !self.is_in_maintenance()
    }
}

const OPERATION: u32 = 0b00_0011;
const OWN_SHIFT: u32 = 2;
const INHERITED_SHIFT: u32 = 4;
const ADMIN: u32 = 0b11;
const UNRESOLVED: u32 = 0b100_0000;

/// The running state of one server, shared by all balancers that have it.
///
/// # Layout of `word`
/// | bits | meaning |
/// |---|---|
/// | 0, 1 | [`Operation`] |
/// | 2, 3 | [`Admin`] of the server |
/// | 4, 5 | [`Admin`] of the server that it tracks |
/// | 6 | its name has no address |
#[derive(Debug)]
pub struct ServerState {
    word: AtomicU32,
    /// Weight as set, in units of the configuration.
    weight: AtomicU32,
    /// Effective weight, in units of 1 / [`WEIGHT_SCALE`].
    effective: AtomicU32,
    /// `maxconn` as set; 0 for no limit. A server without a limit in the file never gets one.
    maxconn: AtomicU32,
    /// Start of the slow start, in nanoseconds of [`Time`]; 0 if none is under way.
    warming: AtomicU64,
    /// Number of requests that the server serves, for balancers that limit it.
    pub(crate) server_limit: Arc<CachePadded<ServerLimit>>,
}

impl ServerState {
    pub(crate) fn new(spec: &ServerSpec) -> Self {
        let own = if spec.disabled || spec.gone { Admin::Maintenance } else { Admin::Ready };
        let unresolved = if spec.unresolved { UNRESOLVED } else { 0 };
        Self {
            word: AtomicU32::new(Operation::Up as u32 | (own as u32) << OWN_SHIFT | unresolved),
            weight: AtomicU32::new(u32::from(spec.weight)),
            effective: AtomicU32::new(u32::from(spec.weight) * WEIGHT_SCALE),
            maxconn: AtomicU32::new(spec.maxconn),
            warming: AtomicU64::new(0),
            server_limit: Arc::new(CachePadded::new(ServerLimit::new(spec.maxconn))),
        }
    }

    // All accesses are relaxed: each value stands for itself. Picks follow the published snapshot.

    /// Returns all parts of the standing, as of one moment.
    #[inline]
    pub fn standing(&self) -> Availability {
        let word = self.word.load(Ordering::Relaxed);
        let admin = |shift: u32| match word >> shift & ADMIN {
            0 => Admin::Ready,
            1 => Admin::Drain,
            _ => Admin::Maintenance,
        };
        let operation = match word & OPERATION {
            0 => Operation::Up,
            1 => Operation::Stopping,
            _ => Operation::Down,
        };
        let unresolved = word & UNRESOLVED != 0;
        Availability { operation, own: admin(OWN_SHIFT), inherited: admin(INHERITED_SHIFT), unresolved }
    }

    /// Returns what checks found.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.standing().operation
    }

    /// Returns what the operator ordered, for the server or for the one that it tracks.
    #[inline]
    pub fn admin(&self) -> Admin {
        self.standing().admin()
    }

    /// Returns whether new requests may be balanced to the server: it is up and ready, so is the server that
    /// it tracks, it has an address, and its effective weight is not 0.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0 && self.effective.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the server serves requests that persistence (a cookie, a stick table) binds to it: it
    /// is neither down nor in maintenance.
    #[inline]
    pub fn serves_its_own(&self) -> bool {
        self.standing().serves()
    }

    /// Returns the weight as set: 0 to 256.
    pub fn weight(&self) -> u16 {
        self.weight.load(Ordering::Relaxed) as u16
    }

    /// Returns `maxconn` as set; at first that of the file.
    pub fn maxconn(&self) -> u32 {
        self.maxconn.load(Ordering::Relaxed)
    }

    /// Takes a slot for a connection to a server that counts its connections; `None` if as many as `maxconn`
    /// are taken.
    pub fn take_slot(&self) -> Option<ConnSlot> {
        ConnSlot::take(&self.server_limit, self.maxconn())
    }

    /// Returns the effective weight, in sixteenths of a unit ([`WEIGHT_SCALE`]). During slow start it is
    /// below the weight as set.
    pub fn effective_weight(&self) -> u32 {
        self.effective.load(Ordering::Relaxed)
    }

    /// Returns whether a slow start is under way.
    pub fn is_warming(&self) -> bool {
        self.warming.load(Ordering::Relaxed) != 0
    }

    /// Returns the share of its full speed that the server has at `now`: from near 0 at the start of its slow
    /// start to 1.
    pub(crate) fn warmth(&self, slowstart: Duration, now: Time) -> f64 {
        match self.warming.load(Ordering::Relaxed) {
            0 => 1.0,
            began => {
                let passed = now.since(Time::from_nanos(began));
                (passed.as_secs_f64() / slowstart.as_secs_f64()).min(1.0)
            }
        }
    }

    // Callers of the setters hold the backend's lock (`turn`).

    pub(crate) fn set_standing(&self, standing: Availability) {
        let Availability { operation, own, inherited, unresolved } = standing;
        let unresolved = if unresolved { UNRESOLVED } else { 0 };
        let word =
            operation as u32 | (own as u32) << OWN_SHIFT | (inherited as u32) << INHERITED_SHIFT | unresolved;
        self.word.store(word, Ordering::Relaxed);
    }

    pub(crate) fn set_weight(&self, weight: u16) {
        self.weight.store(u32::from(weight), Ordering::Relaxed);
    }

    pub(crate) fn set_maxconn(&self, maxconn: u32) {
        self.maxconn.store(maxconn, Ordering::Relaxed);
    }

    pub(crate) fn begin_warming(&self, now: Option<Time>) {
        // 0 means that no slow start is under way.
        self.warming.store(now.map_or(0, |now| now.as_nanos().max(1)), Ordering::Relaxed);
    }

    /// Computes the effective weight. During slow start it is at least one sixteenth, unless the weight is 0.
    pub(crate) fn update_effective(&self, slowstart: Duration, now: Time, dynamic: bool) {
        let full = u32::from(self.weight()) * WEIGHT_SCALE;
        let warmth = if dynamic { self.warmth(slowstart, now) } else { 1.0 };
        let effective = if full == 0 { 0 } else { ((f64::from(full) * warmth) as u32).clamp(1, full) };
        self.effective.store(effective, Ordering::Relaxed);
    }
}
