//! Locking and synchronisation. This comment is the protocol; the code cites its rules by number.
//!
//! A socket has a *protocol control block* (pcb): identity, locks, the peer, the state of the connection, and
//! the buffer that others send into. Five kinds of lock exist. They are taken in the order of this table,
//! which the ranks enforce in debug builds:
//!
//! | lock | how many | guards | taken by |
//! |---|---|---|---|
//! | linkage | one a lane | the lane's list of sockets | create, destroy, enumerate |
//! | flight | one | which handles are on their way in messages | messages with handles, the collector |
//! | name | a pool | its shard of the table of names: a bound name cannot change hands under it | bind, connect, send to a name, close |
//! | pcb | one a socket, several in ascending address order | [`State`]: phase, name, backlog, credentials, and `conn` | everything but the data path of connected streams |
//! | buffer | one a socket | [`Rcv`](crate::rcv::Rcv): what was sent to the socket, who waits for it or for room, and whether either side ended it | send and receive |
//!
//! # Rules
//! 1. **The pcb lock guards the pcb.** Every field of [`State`] is read and written under it, and `conn` is
//!    written under it. While it is held, the peer that `conn` names is alive: `conn` owns one reference,
//!    which is given up under the same lock.
//! 2. **`conn` of a stream or seqpacket socket is written once**, from null, under the locks of both ends or
//!    before the second end is published. It stays, and keeps its reference, until the socket itself is
//!    destroyed, whatever becomes of the peer. So whoever has a handle of such a socket reads `conn` without
//!    a lock: null, or a pcb that lives at least as long as the handle. This is what makes a send cost one
//!    lock: **that of the peer's buffer**. Whether the peer still receives stands in the buffer, under that
//!    lock.
//! 3. **`conn` of a datagram socket may change** by connecting again, and by the close of the other of two
//!    that are connected to each other. So a sender holds its own pcb lock until it has locked the peer's
//!    buffer, and over the whole delivery.
//! 4. **Two pcbs** are locked by [`lock_two`], or, with one locked already, by [`owned_lock_two`]. The second
//!    may drop and retake the lock that is held: afterwards the caller checks again whatever it knew.
//! 5. **Liveness is a count** ([`PcbRef`]). *Holding* is legal only while a valid reference exists or a lock
//!    keeps one from being given up; *release* happens under the pcb lock; the last release frees, and by
//!    then the socket is detached (`attached` is false).
//! 6. **The socket's own reference** is given up in `detach`, when the last handle is dropped, after the
//!    socket has left its lane's list and its name. So what is found in either, under their locks, is alive
//!    and can be held.
//! 7. **A connection ends in three steps that are not one**: the phase of both ends changes under both pcb
//!    locks; then the own buffer is closed and emptied; then the end is put into the peer's buffer. A sender
//!    between the steps still delivers, or gets `EPIPE`; a receiver gets all that was delivered, then the
//!    end.
//! 8. **Nothing foreign runs under a lock**: wakers are called, and what was in a queue is dropped (bytes
//!    with free functions, handles), after the locks are released.
//! 9. **Handles in messages** enter and leave a buffer under the flight lock as well, so the collector, which
//!    holds it, sees a still picture of them. See `flight.rs`.
//!
//! # What is valid without a lock
//! Kind, number and lane of a pcb never change. `conn` of a stream: rule 2.
//! [`Backoff`](crate::backoff::Backoff) is a guess of receivers among themselves. Spinners look under the
//! lock, which they try and never wait for.
//!
//! # What is not atomic
//! Sends to a name: the name may be bound anew between look-up and delivery, and the message goes to the
//! socket that had it. A send that is larger than the room: others may send between its parts (streams only).
//! Closing: see rule 7.
//!
//! # Origin
//! The locking of FreeBSD's local sockets since 2018, with its two helpers, described by R-A2 to R-A5.
//! Different here: streams need no pcb lock to send (rule 2), and there is a list of sockets for each lane in
//! place of one, whose length is the count and whose sockets have numbers that never come again, in place of
//! a generation number (R-A3).

use crate::pcb::{Pcb, PcbRef, State};
use manylane_sync::{LockClass, MutexGuard};
use std::ptr::NonNull;

pub(crate) static LINKAGE: LockClass = LockClass::new("local sockets of a lane", 10);
pub(crate) static FLIGHT: LockClass = LockClass::new("handles in flight", 15);
pub(crate) static NAME: LockClass = LockClass::new("names of local sockets", 20);
pub(crate) static PCB: LockClass = LockClass::new("local socket", 30).ordered_by_address();
pub(crate) static BUFFER: LockClass = LockClass::new("local socket buffer", 40);

pub(crate) type StateGuard<'a> = MutexGuard<'a, State>;

/// Locks two pcbs, the one with the lower address first (rule 4). The guards come in the order of the
/// arguments.
///
/// The caller has a reference on both, which are not the same.
pub(crate) fn lock_two<'a>(one: &'a Pcb, two: &'a Pcb) -> (StateGuard<'a>, StateGuard<'a>) {
    assert!(!std::ptr::eq(one, two), "lock_two locks two different sockets");
    let both = if is_first(one, two) {
        let first = one.state.lock();
        (first, two.state.lock())
    } else {
        let first = two.state.lock();
        (one.state.lock(), first)
    };
    #[cfg(loom)]
    [one, two].into_iter().for_each(Pcb::assert_alive);
    both
}

/// By address. In a model by age: it is run again and again, must do the same each time, and is given other
/// addresses.
fn is_first(one: &Pcb, two: &Pcb) -> bool {
    if cfg!(loom) { one.number < two.number } else { std::ptr::from_ref(one) < std::ptr::from_ref(two) }
}

/// What [`owned_lock_two`] came back with.
pub(crate) enum Owned<'a> {
    /// Both are locked. `relocked`: the held lock was dropped in between, so what the caller knew may have
    /// changed.
    Both { own: StateGuard<'a>, other: StateGuard<'a>, relocked: bool },
    /// The other one was freed while the held lock was dropped. `own` is locked again.
    Freed { own: StateGuard<'a> },
}

/// Locks `other` while `held`, the lock of `own`, is held (R-A4): tries it first, which is right in any order
/// of addresses; if somebody else has it, takes a reference, drops the lock that is held, locks both in
/// order, and gives the reference back.
///
/// # Safety
/// `other` is alive while `held` is: `conn` of `own` names it (rule 1).
pub(crate) unsafe fn owned_lock_two<'a>(
    own: &'a Pcb,
    held: StateGuard<'a>,
    other: NonNull<Pcb>,
) -> Owned<'a> {
    // SAFETY: alive, by contract. Below: by the reference held, then by the lock, under which alone
    // references are given up (rule 5).
    let second: &'a Pcb = unsafe { other.as_ref() };
    // The model checker (loom 0.7) takes a thread that tries a lock for one that waits for it, and reports
    // deadlocks that are none: models always go the second way, in which more can happen. The first is
    // gone on virtual cores (`tests/sim_close.rs`).
    if !cfg!(loom)
        && let Some(guard) = second.state.try_lock()
    {
        return Owned::Both { own: held, other: guard, relocked: false };
    }
    // SAFETY: by contract there is a reference to copy, as long as `held` is held.
    let reference = unsafe { PcbRef::hold(other) };
    drop(held);
    let (own, other) = lock_two(own, second);
    match reference.release_locked(other) {
        Some(other) => Owned::Both { own, other, relocked: true },
        None => Owned::Freed { own },
    }
}
