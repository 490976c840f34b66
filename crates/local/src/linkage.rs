//! Which sockets exist: a list for each lane, of the sockets that were made there (R-A3).
//!
//! A socket enters the list of the lane that makes it and leaves it when it is closed, wherever that is. Both
//! take that lane's linkage lock only, so lanes that use sockets of their own never meet here.

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
// SAFETY: a pcb may be reached from any thread; while it is in the list, under its lock, it is alive (rule
// 6).
unsafe impl Send for Linked {}

manylane_sync::lazy_static! {
    static LINKS: PerLane<Mutex<Links>> =
        PerLane::new(|_| Mutex::new(&locks::LINKAGE, Links { pcbs: Vec::new(), made: 0 }));
}

/// Lanes are numbered below 2^12; that leaves 2^52 numbers for the sockets of each.
const LANE_BITS: u32 = 12;
const _: () = assert!(lane::MAX_LANES <= 1 << LANE_BITS);

/// A new pcb in the list of the calling lane.
pub(crate) fn create(kind: Kind) -> Result<NonNull<Pcb>, AllocError> {
    let lane = lane::current();
    let mut links = LINKS.own().lock();
    let number = links.made << LANE_BITS | lane.index() as u64;
    links.made += 1;
    let pcb = Pcb::create(kind, lane, number)?;
    // SAFETY: just made.
    unsafe { pcb.as_ref() }.place.store(links.pcbs.len(), Ordering::Relaxed);
    links.pcbs.push(Linked(pcb));
    Ok(pcb)
}

/// Takes `pcb` out of its list. Called once, by its socket as it closes (rule 6).
pub(crate) fn remove(pcb: &Pcb) {
    let mut links = LINKS.get(pcb.lane).expect("it was linked on that lane").lock();
    let place = pcb.place.load(Ordering::Relaxed);
    links.pcbs.swap_remove(place);
    if let Some(moved) = links.pcbs.get(place) {
        // SAFETY: rule 6: it is in the list, whose lock we hold.
        unsafe { moved.0.as_ref() }.place.store(place, Ordering::Relaxed);
    }
}

/// What [`sockets`] tells of one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketInfo {
    /// Unique in the process, never used again.
    pub number: u64,
    /// The lane that made it.
    pub lane: LaneId,
    /// Its kind.
    pub kind: Kind,
    /// `"open"`, `"listening"`, `"connected"` or `"disconnected"`.
    pub phase: &'static str,
    /// Its name.
    pub name: Option<Name>,
    /// Bytes that wait to be received.
    pub queued: usize,
    /// Connections that wait to be accepted.
    pub backlog: usize,
}

/// All sockets of the process, by lane. For reports: takes each lane's list lock in turn and, under it, each
/// socket's two locks, one socket at a time; sockets may come and go meanwhile.
pub fn sockets() -> Vec<SocketInfo> {
    let mut all = Vec::new();
    for (_, links) in LINKS.iter() {
        for linked in &links.lock().pcbs {
            // SAFETY: rule 6: it is in the list, whose lock we hold.
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
