//! Counters of the run-time interface itself, for `show info`. They cover the whole process: the master's
//! connection to the worker counts, too.

use manylane_sync::atomic::{AtomicU64, Ordering};

static CLIENTS: AtomicU64 = AtomicU64::new(0);
/// Clients of the master; `CLIENTS` includes them.
static MASTERS: AtomicU64 = AtomicU64::new(0);
static TAINTS: AtomicU64 = AtomicU64::new(0);
static STUCK: AtomicU64 = AtomicU64::new(0);

/// Bit of `TAINTS`: an experimental command was run.
const EXPERIMENTED: u64 = 8;

/// Counts a client while it is connected.
#[derive(Debug)]
pub(crate) struct Client {
    of_master: bool,
}

impl Client {
    pub(crate) fn new(of_master: bool) -> Self {
        CLIENTS.fetch_add(1, Ordering::Relaxed);
        MASTERS.fetch_add(of_master.into(), Ordering::Relaxed);
        Self { of_master }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        CLIENTS.fetch_sub(1, Ordering::Relaxed);
        MASTERS.fetch_sub(self.of_master.into(), Ordering::Relaxed);
    }
}

/// Records that an experimental command was run.
pub(crate) fn experiments() {
    TAINTS.fetch_or(EXPERIMENTED, Ordering::Relaxed);
}

/// Counts a lane that was found stuck.
pub fn stuck() {
    STUCK.fetch_add(1, Ordering::Relaxed);
}

/// Number of calls of [`stuck`].
pub(crate) fn times_stuck() -> u64 {
    STUCK.load(Ordering::Relaxed)
}

pub(crate) fn clients() -> u64 {
    CLIENTS.load(Ordering::Relaxed)
}

/// Number of clients that a soft stop does not wait for.
pub(crate) fn unstoppable() -> u64 {
    MASTERS.load(Ordering::Relaxed)
}

/// The bits of `TAINTS`, in HAProxy's form.
pub(crate) fn taints() -> String {
    match TAINTS.load(Ordering::Relaxed) {
        0 => "0".into(),
        bits => format!("{bits:#x}"),
    }
}
