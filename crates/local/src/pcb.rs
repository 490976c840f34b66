//! The protocol control block of a socket. `locks.rs` has the rules of access.

use crate::backoff::Backoff;
use crate::credentials::Credentials;
use crate::locks::{self, StateGuard};
use crate::name::Name;
use crate::rcv::Rcv;
use crate::socket::{Kind, Socket};
use crate::wait::Waiters;
use manylane_pool::AllocError;
#[cfg(not(loom))]
use manylane_pool::Pool;
use manylane_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use manylane_sync::{CachePadded, LaneId, Mutex, MutexGuard, Refs};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// Default of both limits of a socket, in bytes: what may be queued for it, and what it may have queued at
/// its peer, before senders wait. Large enough that a sender and a receiver that sleep in turn do so seldom.
/// To have more data in flight, raise the limits of receiver and sender.
pub const DEFAULT_LIMIT: usize = 256 * 1024;

/// The part of a pcb into which others write, on lines of its own. The lock's word begins a line, and the
/// fields that a small send and its receive change follow in the same line: between two lanes the line moves
/// once for each send and once for each receive.
#[repr(C, align(64))]
pub(crate) struct Buffer {
    /// Padding that puts the lock's first word, its class, which is never written, at the end of a line of
    /// its own.
    _apart: [u8; APART],
    rcv: Mutex<Rcv>,
}

/// A line minus a pointer.
const APART: usize = 64 - size_of::<usize>();

impl Buffer {
    /// Creates the buffer of a new socket. Its one sender, if its kind has one, has not set a limit of its
    /// own yet.
    fn new(kind: Kind) -> Self {
        let sender_limit = if kind.is_connected_kind() { DEFAULT_LIMIT } else { usize::MAX };
        Self { _apart: [0; APART], rcv: Mutex::new(&locks::BUFFER, Rcv::new(DEFAULT_LIMIT, sender_limit)) }
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rcv> {
        self.rcv.lock()
    }

    /// As [`lock`](Self::lock), for receivers of streams. Also returns true if another thread held the lock.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn lock_noting_others(&self) -> (MutexGuard<'_, Rcv>, bool) {
        // (The model checker counts a thread that tries a lock as waiting for it.)
        match if cfg!(loom) { None } else { self.rcv.try_lock() } {
            Some(guard) => (guard, false),
            None => (self.rcv.lock(), true),
        }
    }

    /// Checks a condition for a spinning thread that would lock next. Also true if another thread holds the
    /// lock and may be changing the buffer.
    pub(crate) fn peek(&self, is_so: impl FnOnce(&Rcv) -> bool) -> bool {
        self.rcv.try_lock().is_none_or(|rcv| is_so(&rcv))
    }
}

/// One socket. Key: `I` fixed after construction, `A` atomic (see there), `L` lines and lock of its own.
#[repr(C)]
pub(crate) struct Pcb {
    /// The peer, with a reference on it; null before the connection. A: written under the pcb lock (rules 1
    /// to 3).
    conn: AtomicPtr<Pcb>,
    pub(crate) kind: Kind,    // I
    pub(crate) lane: LaneId,  // I: the lane whose list contains it
    pub(crate) number: u64,   // I: unique in the process
    pub(crate) refs: Refs,    // A: rule 5
    pub(crate) handles: Refs, // A: counts `Socket`s; the last one detaches
    /// Index in the list of its lane. A: used under the linkage lock only.
    pub(crate) index: AtomicUsize,
    /// Nanoseconds. A: relaxed, settings only.
    pub(crate) recv_timeout: AtomicU64,
    pub(crate) send_timeout: AtomicU64,
    pub(crate) busy_poll: AtomicU64,
    pub(crate) backoff: Backoff,                 // A: relaxed, by receivers
    pub(crate) rcv: CachePadded<Buffer>,         // L: buffer lock
    pub(crate) state: CachePadded<Mutex<State>>, // L: pcb lock
    /// Set when the pcb is freed. Models read it whenever they reach a pcb, through a cell: the checker
    /// detects reads that are not ordered after the creation or before the freeing.
    #[cfg(loom)]
    freed: manylane_sync::cell::UnsafeCell<bool>,
    /// Lets the model checker find a pcb that is never dropped.
    #[cfg(loom)]
    witness: std::cell::Cell<Option<manylane_sync::Arc<()>>>,
}

// SAFETY: shared fields are atomics and locks. (One thread at a time reads the cells of models: loom runs
// one.)
unsafe impl Sync for Pcb {}
// SAFETY: as above; `conn` owns a reference on a pcb, which any thread may release.
unsafe impl Send for Pcb {}

/// State under the pcb lock.
pub(crate) struct State {
    /// True while a socket with handles is attached. `detach` clears it, before the last release (rule 5).
    pub(crate) attached: bool,
    pub(crate) phase: Phase,
    pub(crate) name: Option<Name>,
    /// True if `name` is that of the listening socket: the table does not map it to this pcb.
    pub(crate) inherits_name: bool,
    /// Credentials of the peer, from the time when it connected or began to listen.
    pub(crate) peer_credentials: Option<Credentials>,
    /// This socket's credentials, from the time when it began to listen.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) backlog: Backlog,
    pub(crate) accepters: Waiters,
    /// Datagram: the socket may not send any more.
    pub(crate) shut_write: bool,
    pub(crate) send_limit: usize,
}

/// Phase in the life of a socket.
///
/// ```text
///   Open --listen--> Listening
///   Open --connect, accept, pair--> Connected --close of either end--> Disconnected  (streams, seqpacket)
///   Open <--connect / close of the other--> Connected                               (datagrams)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Listening,
    Connected,
    Disconnected,
}

/// Connections that wait for `accept`.
#[derive(Default)]
pub(crate) struct Backlog {
    pub(crate) queue: VecDeque<Socket>,
    pub(crate) limit: usize,
}

// Connections come and go with requests, so their memory comes from the lane.
#[cfg(not(loom))]
manylane_sync::lazy_static! {
    static PCBS: Pool<Pcb> = Pool::new("local socket").expect("a pcb is smaller than the largest object of a \
        pool");
}

impl Pcb {
    /// Creates a pcb from the calling lane's pool, with one reference: that of its future socket. No list has
    /// it yet.
    pub(crate) fn create(kind: Kind, lane: LaneId, number: u64) -> Result<NonNull<Self>, AllocError> {
        let state = State {
            attached: true,
            phase: Phase::Open,
            name: None,
            inherits_name: false,
            peer_credentials: None,
            credentials: None,
            backlog: Backlog::default(),
            accepters: Waiters::new(),
            shut_write: false,
            send_limit: DEFAULT_LIMIT,
        };
        let pcb = Self {
            conn: AtomicPtr::new(std::ptr::null_mut()),
            kind,
            lane,
            number,
            refs: Refs::new(),
            handles: Refs::new(),
            index: AtomicUsize::new(0),
            recv_timeout: AtomicU64::new(u64::MAX),
            send_timeout: AtomicU64::new(u64::MAX),
            busy_poll: AtomicU64::new(crate::socket::DEFAULT_SPIN.as_nanos() as u64),
            backoff: Backoff::new(),
            rcv: CachePadded::new(Buffer::new(kind)),
            state: CachePadded::new(Mutex::new(&locks::PCB, state)),
            #[cfg(loom)]
            freed: manylane_sync::cell::UnsafeCell::new(false),
            #[cfg(loom)]
            witness: std::cell::Cell::new(Some(manylane_sync::Arc::new(()))),
        };
        // A model keeps the memory, so that a late read finds `freed`.
        #[cfg(loom)]
        return Ok(NonNull::from(Box::leak(Box::new(pcb))));
        #[cfg(not(loom))]
        Ok(PCBS.alloc(pcb)?.into_raw())
    }

    /// Returns the current peer; rules 1 to 3 say who may use it, and for how long.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn conn(&self) -> Option<NonNull<Self>> {
        // Acquire: pairs with the release in `set_conn`; publishes the peer's pcb.
        NonNull::new(self.conn.load(Ordering::Acquire))
    }

    /// Changes the peer and returns the reference on the former one, which the caller drops without a lock.
    /// The caller holds the pcb lock, or is the only owner of the pcb.
    #[must_use]
    pub(crate) fn set_conn(&self, peer: Option<PcbRef>) -> Option<PcbRef> {
        let peer = peer.map_or(std::ptr::null_mut(), |peer| ManuallyDrop::new(peer).0.as_ptr());
        // Release: publishes the peer's pcb to `conn`.
        let former = self.conn.swap(peer, Ordering::AcqRel);
        NonNull::new(former).map(PcbRef)
    }

    #[cfg(loom)]
    #[track_caller]
    pub(crate) fn assert_alive(&self) {
        // SAFETY: the checker fails the model if another thread writes meanwhile.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "a pcb is used after it was freed");
    }

    /// Frees the pcb after its last release.
    ///
    /// # Safety
    /// There is no reference, and no lock of the pcb is held.
    unsafe fn free(this: NonNull<Self>) {
        #[cfg(loom)]
        {
            // SAFETY: by contract no other thread reaches it. Its memory stays, so that a late read finds
            // `freed`.
            let pcb = unsafe { this.as_ref() };
            pcb.assert_alive();
            // SAFETY: as above.
            pcb.freed.with_mut(|freed| unsafe { *freed = true });
            drop(pcb.witness.take());
            assert!(pcb.conn().is_none(), "detach has given up the peer");
        }
        #[cfg(not(loom))]
        {
            // SAFETY: `create` made it, from this pool; by contract nothing reaches it any more.
            let mut pcb = unsafe { PCBS.from_raw(this) };
            debug_assert!(!pcb.state.get_mut().attached, "rule 5: the last release comes after detach");
            debug_assert!(pcb.conn().is_none(), "detach has given up the peer");
        }
    }
}

/// A counted reference on a pcb (rule 5). Must be dropped without any lock of rank pcb or higher.
pub(crate) struct PcbRef(NonNull<Pcb>);

// SAFETY: a counted reference on a `Sync` type, which the last owner frees on any thread (`Send`).
unsafe impl Send for PcbRef {}
// SAFETY: as above.
unsafe impl Sync for PcbRef {}

impl PcbRef {
    /// Adds one reference.
    ///
    /// # Safety
    /// There is a valid reference, which is not released during the call (rule 5).
    pub(crate) unsafe fn hold(pcb: NonNull<Pcb>) -> Self {
        // SAFETY: alive, by contract.
        unsafe { pcb.as_ref() }.refs.hold();
        Self(pcb)
    }

    /// Takes over a counted reference.
    ///
    /// # Safety
    /// The reference is counted, and nothing else releases it.
    pub(crate) unsafe fn adopt(pcb: NonNull<Pcb>) -> Self {
        Self(pcb)
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Pcb> {
        self.0
    }

    /// Releases the reference under `guard`, the lock of this very pcb, and returns the guard; `None` if it
    /// was the last: then the pcb is freed.
    pub(crate) fn release_locked(self, guard: StateGuard<'_>) -> Option<StateGuard<'_>> {
        let this = ManuallyDrop::new(self);
        if !this.refs.release() {
            return Some(guard);
        }
        drop(guard);
        // SAFETY: rule 5: it was the last reference, and the lock is released.
        unsafe { Pcb::free(this.0) };
        None
    }
}

impl Deref for PcbRef {
    type Target = Pcb;
    #[inline]
    fn deref(&self) -> &Pcb {
        // SAFETY: the reference keeps it alive.
        let pcb = unsafe { self.0.as_ref() };
        #[cfg(loom)]
        pcb.assert_alive();
        pcb
    }
}

impl Clone for PcbRef {
    fn clone(&self) -> Self {
        // SAFETY: `self` is a valid reference.
        unsafe { Self::hold(self.0) }
    }
}

impl Drop for PcbRef {
    fn drop(&mut self) {
        // SAFETY: alive until the release below; released once, here.
        let pcb = unsafe { self.0.as_ref() };
        let guard = pcb.state.lock();
        // SAFETY: `self` is not used after.
        drop(unsafe { Self::adopt(self.0) }.release_locked(guard));
    }
}
