//! What the run-time interface itself does, for `show info`: of the process, whose master has an interface of
//! its own to the same worker.

use manylane_sync::atomic::{AtomicU64, Ordering};

static CLIENTS: AtomicU64 = AtomicU64::new(0);
/// Of these, those of the master.
static MASTERS: AtomicU64 = AtomicU64::new(0);
static TAINTS: AtomicU64 = AtomicU64::new(0);
static STUCK: AtomicU64 = AtomicU64::new(0);

/// An experimental command was given.
const EXPERIMENTED: u64 = 8;

/// A client, as long as it is there.
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

/// An experimental command was given.
pub(crate) fn experiments() {
    TAINTS.fetch_or(EXPERIMENTED, Ordering::Relaxed);
}

/// A lane was seen stuck.
pub fn stuck() {
    STUCK.fetch_add(1, Ordering::Relaxed);
}

/// How often one was.
pub(crate) fn times_stuck() -> u64 {
    STUCK.load(Ordering::Relaxed)
}

pub(crate) fn clients() -> u64 {
    CLIENTS.load(Ordering::Relaxed)
}

/// Clients that a soft stop does not wait for.
pub(crate) fn unstoppable() -> u64 {
    MASTERS.load(Ordering::Relaxed)
}

/// What was done to the process, as HAProxy shows it.
pub(crate) fn taints() -> String {
    match TAINTS.load(Ordering::Relaxed) {
        0 => "0".into(),
        bits => format!("{bits:#x}"),
    }
}
