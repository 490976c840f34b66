//! How a server is: whether it takes requests, and its weight. Read by anyone, written by whoever changes it.
//!
//! All of it is on lines that are only written when something changes, so reading it costs nothing in
//! between.

use crate::gate::Gate;
use crate::spec::{ServerSpec, WEIGHT_SCALE};
use manylane_sched::Time;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::{Arc, CachePadded};
use std::time::Duration;

/// What checks say about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It works, or is not checked.
    Up,
    /// It works and wants no new clients: only those that belong to it.
    Stopping,
    /// It does not work.
    Down,
}

/// What the operator says about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Admin {
    /// As it is.
    Ready,
    /// No new clients: only those that belong to it.
    Drain,
    /// Nothing at all.
    Maintenance,
}

/// All that decides whether a server takes requests, but its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// What checks say.
    pub operation: Operation,
    /// What the operator says of it.
    pub own: Admin,
    /// What the operator says of the server that it tracks.
    pub inherited: Admin,
    /// Its name has no address: nobody can be sent there.
    pub unresolved: bool,
}

impl Standing {
    /// What holds of what the operator says: the stricter. A server without an address is in maintenance.
    pub fn admin(self) -> Admin {
        if self.unresolved { Admin::Maintenance } else { self.own.max(self.inherited) }
    }

    /// Nobody sends it anything, and nobody looks after it.
    pub fn is_in_maintenance(self) -> bool {
        self.admin() == Admin::Maintenance
    }

    /// Whether it serves requests that belong to it.
    pub fn serves(self) -> bool {
        self.operation != Operation::Down && !self.is_in_maintenance()
    }
}

const OPERATION: u32 = 0b00_0011;
const OWN_SHIFT: u32 = 2;
const INHERITED_SHIFT: u32 = 4;
const ADMIN: u32 = 0b11;
const UNRESOLVED: u32 = 0b100_0000;

/// The running state of one server, the same for all balancers that have it.
///
/// # Layout of `word`
/// | bits | meaning |
/// |---|---|
/// | 0, 1 | [`Operation`] |
/// | 2, 3 | [`Admin`], its own |
/// | 4, 5 | [`Admin`], of the server that it tracks |
/// | 6 | its name has no address |
#[derive(Debug)]
pub struct ServerState {
    word: AtomicU32,
    /// Weight as set, in units of the configuration.
    weight: AtomicU32,
    /// Weight in effect, in parts of [`WEIGHT_SCALE`].
    effective: AtomicU32,
    /// `maxconn` as set; 0 for no limit. What the file has no limit for gets none.
    maxconn: AtomicU32,
    /// When slow start began, in nanoseconds of [`Time`]; 0: it is over.
    warming: AtomicU64,
    /// How many requests it serves, for balancers that limit them.
    pub(crate) gate: Arc<CachePadded<Gate>>,
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
            gate: Arc::new(CachePadded::new(Gate::new(spec.maxconn))),
        }
    }

    // Relaxed everywhere: each is a number by itself. What picks follow is the published snapshot.

    /// All of it, of one moment.
    #[inline]
    pub fn standing(&self) -> Standing {
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
        Standing { operation, own: admin(OWN_SHIFT), inherited: admin(INHERITED_SHIFT), unresolved }
    }

    /// What checks say.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.standing().operation
    }

    /// What the operator says, of it or of the server that it tracks.
    #[inline]
    pub fn admin(&self) -> Admin {
        self.standing().admin()
    }

    /// Whether new requests may be balanced to it: up, ready, and of some weight.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0 && self.effective.load(Ordering::Relaxed) != 0
    }

    /// Whether it serves requests that belong to it (by a cookie, a table): neither down nor in maintenance.
    #[inline]
    pub fn serves_its_own(&self) -> bool {
        self.standing().serves()
    }

    /// The weight as set: 0 to 256.
    pub fn weight(&self) -> u16 {
        self.weight.load(Ordering::Relaxed) as u16
    }

    /// `maxconn`: as the file has it, or as it was set since.
    pub fn maxconn(&self) -> u32 {
        self.maxconn.load(Ordering::Relaxed)
    }

    /// The weight in effect, in sixteenths of a unit ([`WEIGHT_SCALE`]): less than the set one during slow
    /// start.
    pub fn effective_weight(&self) -> u32 {
        self.effective.load(Ordering::Relaxed)
    }

    /// Whether slow start is under way.
    pub fn is_warming(&self) -> bool {
        self.warming.load(Ordering::Relaxed) != 0
    }

    /// How much of its speed the server has at `now`: from near 0 at the start of its slow start to 1.
    pub(crate) fn warmth(&self, slowstart: Duration, now: Time) -> f64 {
        match self.warming.load(Ordering::Relaxed) {
            0 => 1.0,
            began => {
                let passed = now.since(Time::from_nanos(began));
                (passed.as_secs_f64() / slowstart.as_secs_f64()).min(1.0)
            }
        }
    }

    // The setters are called under the backend's lock.

    pub(crate) fn set_standing(&self, standing: Standing) {
        let Standing { operation, own, inherited, unresolved } = standing;
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
        // 0 stands for "over".
        self.warming.store(now.map_or(0, |now| now.as_nanos().max(1)), Ordering::Relaxed);
    }

    /// Computes the weight in effect. A server that warms up has at least one sixteenth.
    pub(crate) fn update_effective(&self, slowstart: Duration, now: Time, dynamic: bool) {
        let full = u32::from(self.weight()) * WEIGHT_SCALE;
        let warmth = if dynamic { self.warmth(slowstart, now) } else { 1.0 };
        let effective = if full == 0 { 0 } else { ((f64::from(full) * warmth) as u32).clamp(1, full) };
        self.effective.store(effective, Ordering::Relaxed);
    }
}
