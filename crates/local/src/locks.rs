//! Locking and synchronisation. This comment is the protocol; the code cites its rules by number.
//!
//! A socket has a *protocol control block* (pcb): identity, locks, the peer, the state of the connection, and
//! the buffer into which others send. There are five kinds of lock. Threads take them in the order of this
//! table, which the ranks enforce in debug builds:
//!
//! | lock | how many | guards | taken by |
//! |---|---|---|---|
//! | linkage | one a lane | the lane's list of sockets | create, destroy, enumerate |
//! | flight | one | handles in flight in messages | messages with handles, the collector |
//! | name | one a shard | its shard of the table of names | bind, connect, send to a name, close |
//! | pcb | one a socket | [`State`], with `conn` | all but the data path of connected streams |
//! | buffer | one a socket | [`Rcv`](crate::rcv::Rcv) | send and receive |
//!
//! A bound name cannot change its owner under the name's lock. Several pcbs are locked in ascending order of
//! their addresses. The buffer's lock guards the data sent to the socket, the waiters for data and for room,
//! and whether either side ended it.
//!
//! # Rules
//! 1. **The pcb lock guards the pcb.** Threads read and write every field of [`State`] under it, and write
//!    `conn` under it. While the lock is held, the peer that `conn` names is alive: `conn` owns one
//!    reference, which is released under the same lock.
//! 2. **`conn` of a stream or seqpacket socket is written once**, from null, under the locks of both ends or
//!    before the second end is published. It stays, and keeps its reference, until the socket itself is
//!    destroyed, even if the peer is closed. So the owner of a handle reads `conn` without a lock: null, or a
//!    pcb that lives at least as long as the handle. Therefore a send takes one lock: **that of the peer's
//!    buffer**. The buffer contains, under that lock, whether the peer still receives.
//! 3. **`conn` of a datagram socket may change**, by another connect, and by the close of the other socket if
//!    the two are connected to each other. So a sender holds its own pcb lock until it has locked the peer's
//!    buffer, and over the whole delivery.
//! 4. **Two pcbs** are locked by [`lock_two`], or, with one locked already, by [`owned_lock_two`]. The second
//!    may drop and retake the held lock: afterwards the caller checks again all that it knew.
//! 5. **Liveness is a count** ([`PcbRef`]). *Holding* is legal only while a valid reference exists or a lock
//!    keeps one from being released. *Release* happens under the pcb lock. The last release frees, and by
//!    then the socket is detached (`attached` is false).
//! 6. **The socket's own reference** is released in `detach`, when the last handle is dropped, after the
//!    socket has left its lane's list and its name. So a pcb found in either, under their locks, is alive and
//!    can be held.
//! 7. **A connection ends in three separate steps**: the phase of both ends changes under both pcb locks;
//!    then the socket's own buffer is closed and emptied; then the end is put into the peer's buffer. A
//!    sender between the steps still delivers, or gets `EPIPE`; a receiver gets all delivered data, then the
//!    end.
//! 8. **No foreign code runs under a lock**: threads call wakers, and drop the contents of a queue (bytes
//!    with free functions, handles), after they have released the locks.
//! 9. **Handles in messages** enter and leave a buffer under the flight lock, too, so the collector, which
//!    holds it, sees a consistent state. See `flight.rs`.
//!
//! # What is valid without a lock
//! Kind, number and lane of a pcb never change. `conn` of a stream: rule 2.
//! [`Backoff`](crate::backoff::Backoff) is an estimate shared by receivers. Spinning threads read under the
//! lock, which they only try.
//!
//! # What is not atomic
//! Sends to a name: another socket may bind the name between look-up and delivery, and the message goes to
//! the socket that had it. A send that is larger than the room: others may send between its parts (streams
//! only). Closing: see rule 7.
//!
//! # Origin
//! The locking of FreeBSD's local sockets since 2018, with its two helpers, described by R-A2 to R-A5. Two
//! differences: streams need no pcb lock to send (rule 2). And instead of one list with a count and a
//! generation number, each lane has a list of its sockets, whose length is the count, and socket numbers are
//! never reused (R-A3).

use crate::pcb::{Pcb, PcbRef, State};
use manylane_sync::{LockClass, MutexGuard};
use std::ptr::NonNull;

pub(crate) static LINKAGE: LockClass = LockClass::new("local sockets of a lane", 10);
pub(crate) static FLIGHT: LockClass = LockClass::new("handles in flight", 15);
pub(crate) static NAME: LockClass = LockClass::new("names of local sockets", 20);
pub(crate) static PCB: LockClass = LockClass::new("local socket", 30).ordered_by_address();
pub(crate) static BUFFER: LockClass = LockClass::new("local socket buffer", 40);

pub(crate) type StateGuard<'a> = MutexGuard<'a, State>;

/// Locks two pcbs, the one with the lower address first (rule 4). Returns the guards in the order of the
/// arguments.
///
/// The caller has a reference on both, which must differ.
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

/// Compares by address. A model compares by age, since every execution of a model must behave the same and
/// addresses differ between executions.
fn is_first(one: &Pcb, two: &Pcb) -> bool {
    if cfg!(loom) { one.number < two.number } else { std::ptr::from_ref(one) < std::ptr::from_ref(two) }
}

/// Result of [`owned_lock_two`].
pub(crate) enum Owned<'a> {
    /// Both are locked. `relocked`: the held lock was dropped in between, so the caller's knowledge may be
    /// outdated.
    Both { own: StateGuard<'a>, other: StateGuard<'a>, relocked: bool },
    /// The other pcb was freed while the held lock was dropped. `own` is locked again.
    Freed { own: StateGuard<'a> },
}

/// Locks `other` while `held`, the lock of `own`, is held (R-A4). Tries the lock first, which is legal in any
/// order of addresses. If another thread holds it, takes a reference, drops the held lock, locks both in
/// order, and releases the reference.
///
/// # Safety
/// `other` is alive while `held` is: `conn` of `own` names it (rule 1).
pub(crate) unsafe fn owned_lock_two<'a>(
    own: &'a Pcb,
    held: StateGuard<'a>,
    other: NonNull<Pcb>,
) -> Owned<'a> {
    // SAFETY: alive, by contract. Below: by the held reference, then by the lock, under which alone
    // references are released (rule 5).
    let second: &'a Pcb = unsafe { other.as_ref() };
    // The model checker (loom 0.7) counts a thread that tries a lock as waiting for it, and reports false
    // deadlocks. So models always take the second way, which has more interleavings. Virtual cores take the
    // first (`tests/sim_close.rs`).
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
