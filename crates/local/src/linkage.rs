//! The lists of all sockets: one list for each lane, of the sockets created there (R-A3).
//!
//! A socket enters the list of the lane that creates it, and leaves the list when it is closed, on any lane.
//! Both take only that lane's linkage lock, so lanes that use their own sockets never collide here.

use crate::locks;
use crate::name::Name;
use crate::pcb::{Pcb, Phase};
use crate::socket::Kind;
use manylane_pool::AllocError;
use manylane_sync::atomic::Ordering;
use manylane_sync::{LaneId, Mutex, PerLane, lane};
use std::ptr::NonNull;

struct Links {
    pcbs: Vec<Linked>,
    made: u64,
}

struct Linked(NonNull<Pcb>);
// SAFETY: any thread may reach a pcb; while it is in the list, under the list's lock, it is alive (rule 6).
unsafe impl Send for Linked {}

manylane_sync::lazy_static! {
    static LINKS: PerLane<Mutex<Links>> =
        PerLane::new(|_| Mutex::new(&locks::LINKAGE, Links { pcbs: Vec::new(), made: 0 }));
}

/// Lane numbers are below 2^12; that leaves 2^52 numbers for the sockets of each lane.
const LANE_BITS: u32 = 12;
const _: () = assert!(lane::MAX_LANES <= 1 << LANE_BITS);

/// Creates a pcb in the list of the calling lane.
pub(crate) fn create(kind: Kind) -> Result<NonNull<Pcb>, AllocError> {
    let lane = lane::current();
    let mut links = LINKS.own().lock();
    let number = links.made << LANE_BITS | lane.index() as u64;
    links.made += 1;
    let pcb = Pcb::create(kind, lane, number)?;
    // SAFETY: just created.
    unsafe { pcb.as_ref() }.index.store(links.pcbs.len(), Ordering::Relaxed);
    links.pcbs.push(Linked(pcb));
    Ok(pcb)
}

/// Removes `pcb` from its list. Its socket calls this once, as it closes (rule 6).
pub(crate) fn remove(pcb: &Pcb) {
    let mut links = LINKS.get(pcb.lane).expect("it was linked on that lane").lock();
    let index = pcb.index.load(Ordering::Relaxed);
    links.pcbs.swap_remove(index);
    if let Some(moved) = links.pcbs.get(index) {
        // SAFETY: rule 6: it is in the list, whose lock this thread holds.
        unsafe { moved.0.as_ref() }.index.store(index, Ordering::Relaxed);
    }
}

/// Report of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketInfo {
    /// Number of the socket: unique in the process, never reused.
    pub number: u64,
    /// Lane that created it.
    pub lane: LaneId,
    /// Its kind.
    pub kind: Kind,
    /// `"open"`, `"listening"`, `"connected"` or `"disconnected"`.
    pub phase: &'static str,
    /// Its name.
    pub name: Option<Name>,
    /// Number of bytes that wait for a receive.
    pub queued: usize,
    /// Number of connections that wait for `accept`.
    pub backlog: usize,
}

/// Returns all sockets of the process, by lane. For reports: takes each lane's list lock in turn and, under
/// it, each socket's two locks, one socket at a time. Other threads may create and close sockets meanwhile.
pub fn sockets() -> Vec<SocketInfo> {
    let mut all = Vec::new();
    for (_, links) in LINKS.iter() {
        for linked in &links.lock().pcbs {
            // SAFETY: rule 6: it is in the list, whose lock this thread holds.
            let pcb = unsafe { linked.0.as_ref() };
            #[cfg(loom)]
            pcb.assert_alive();
            let state = pcb.state.lock();
            let phase = match state.phase {
                Phase::Open => "open",
                Phase::Listening => "listening",
                Phase::Connected => "connected",
                Phase::Disconnected => "disconnected",
            };
            let (name, backlog) = (state.name.clone(), state.backlog.queue.len());
            drop(state);
            let queued = pcb.rcv.lock().len();
            let (number, lane, kind) = (pcb.number, pcb.lane, pcb.kind);
            all.push(SocketInfo { number, lane, kind, phase, name, queued, backlog });
        }
    }
    all
}
