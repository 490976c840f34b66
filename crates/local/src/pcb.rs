//! The protocol control block of a socket. Who may touch what when: `locks.rs`.

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

/// Both limits of a new socket: bytes that are queued for it, and by it at its peer, before senders have to
/// wait. Enough that a sender and a receiver that take turns in sleeping do so seldom. To have more on the
/// way, raise the receiver's and the sender's.
pub const DEFAULT_LIMIT: usize = 256 * 1024;

/// The part of a pcb that others write to: on lines of its own. The lock's word begins a line, and what a
/// small send and its receive change lies in that line behind it: between two lanes it moves once for each.
#[repr(C, align(64))]
pub(crate) struct Buffer {
    /// Puts the lock's first word, its class, which nobody writes, at the end of a line of its own.
    _apart: [u8; APART],
    rcv: Mutex<Rcv>,
}

/// A line but for a pointer.
const APART: usize = 64 - size_of::<usize>();

impl Buffer {
    /// That of a new socket. Its one sender, if it is to have one, has not set a limit of its own either.
    fn new(kind: Kind) -> Self {
        let sender_limit = if kind.is_connected_kind() { DEFAULT_LIMIT } else { usize::MAX };
        Self { _apart: [0; APART], rcv: Mutex::new(&locks::BUFFER, Rcv::new(DEFAULT_LIMIT, sender_limit)) }
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rcv> {
        self.rcv.lock()
    }

    /// As [`lock`](Self::lock), for receivers of streams: true as well if somebody else had it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn lock_noting_others(&self) -> (MutexGuard<'_, Rcv>, bool) {
        // (The model checker takes a thread that tries a lock for one that waits for it.)
        match if cfg!(loom) { None } else { self.rcv.try_lock() } {
            Some(guard) => (guard, false),
            None => (self.rcv.lock(), true),
        }
    }

    /// A look of somebody who spins, and would lock next: true too when somebody has the lock and may be
    /// changing it.
    pub(crate) fn look(&self, is_so: impl FnOnce(&Rcv) -> bool) -> bool {
        self.rcv.try_lock().is_none_or(|rcv| is_so(&rcv))
    }
}

/// One socket. Key: `I` fixed after construction, `A` atomic (see there), `L` lines and lock of its own.
#[repr(C)]
pub(crate) struct Pcb {
    /// The peer, owning a reference; null before it is connected. A: written under the pcb lock (rules 1 to
    /// 3).
    conn: AtomicPtr<Pcb>,
    pub(crate) kind: Kind,    // I
    pub(crate) lane: LaneId,  // I: in whose list it is
    pub(crate) number: u64,   // I: unique in the process
    pub(crate) refs: Refs,    // A: rule 5
    pub(crate) handles: Refs, // A: `Socket`s; the last one detaches
    /// Link in the list of its lane. A: used under the linkage lock only.
    pub(crate) place: AtomicUsize,
    /// Nanoseconds. A: relaxed, settings only.
    pub(crate) recv_timeout: AtomicU64,
    pub(crate) send_timeout: AtomicU64,
    pub(crate) busy_poll: AtomicU64,
    pub(crate) backoff: Backoff,                 // A: relaxed, by receivers
    pub(crate) rcv: CachePadded<Buffer>,         // L: buffer lock
    pub(crate) state: CachePadded<Mutex<State>>, // L: pcb lock
    /// Set when it is freed. Models look at it whenever they reach a pcb, through a cell: the checker sees
    /// looks that nothing orders behind the making or before the freeing.
    #[cfg(loom)]
    freed: manylane_sync::cell::UnsafeCell<bool>,
    /// The model checker finds what is not dropped.
    #[cfg(loom)]
    witness: std::cell::Cell<Option<manylane_sync::Arc<()>>>,
}

// SAFETY: shared fields are atomics and locks. (The cells of models are looked at by one thread at a time:
// loom runs one.)
unsafe impl Sync for Pcb {}
// SAFETY: as above; `conn` owns a reference on a pcb, which may be given up by any thread.
unsafe impl Send for Pcb {}

/// What the pcb lock guards.
pub(crate) struct State {
    /// A socket, with handles, is attached. Cleared by `detach`, before the last release (rule 5).
    pub(crate) attached: bool,
    pub(crate) phase: Phase,
    pub(crate) name: Option<Name>,
    /// `name` is that of the socket that listens: it is not ours in the table.
    pub(crate) inherits_name: bool,
    /// Of the other side: when it connected, or began to listen.
    pub(crate) peer_credentials: Option<Credentials>,
    /// The own ones, when it began to listen.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) backlog: Backlog,
    pub(crate) accepters: Waiters,
    /// Datagram: nothing may be sent any more.
    pub(crate) shut_write: bool,
    pub(crate) send_limit: usize,
}

/// Where a socket is in its life.
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

/// Connections that nobody has accepted yet.
#[derive(Default)]
pub(crate) struct Backlog {
    pub(crate) queue: VecDeque<Socket>,
    pub(crate) limit: usize,
}

// Connections come and go with requests: their memory is the lane's.
#[cfg(not(loom))]
manylane_sync::lazy_static! {
    static PCBS: Pool<Pcb> = Pool::new("local socket").expect("a pcb is smaller than the largest object of a \
        pool");
}

impl Pcb {
    /// A new pcb, of the calling lane's pool, with one reference: that of the socket to be. Not in any list
    /// yet.
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
            place: AtomicUsize::new(0),
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
        // A model keeps the memory, so that a late look finds `freed`.
        #[cfg(loom)]
        return Ok(NonNull::from(Box::leak(Box::new(pcb))));
        #[cfg(not(loom))]
        Ok(PCBS.alloc(pcb)?.into_raw())
    }

    /// The peer, as it is now; who may use it, and for how long: rules 1 to 3.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn conn(&self) -> Option<NonNull<Self>> {
        // Acquire: pairs with the release in `set_conn`; publishes the peer's pcb.
        NonNull::new(self.conn.load(Ordering::Acquire))
    }

    /// Changes the peer and returns the reference on the former one, to be dropped when no lock is held. The
    /// caller holds the pcb lock, or has the pcb for itself.
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
        // SAFETY: the checker fails the model if somebody writes meanwhile.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "a pcb is used after it was freed");
    }

    /// The last reference is gone.
    ///
    /// # Safety
    /// Nobody has a reference, and no lock of the pcb is held.
    unsafe fn free(this: NonNull<Self>) {
        #[cfg(loom)]
        {
            // SAFETY: by contract nobody else reaches it. Its memory stays, so that a late look finds
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
            // SAFETY: made by `create`, of this pool; by contract nobody reaches it any more.
            let mut pcb = unsafe { PCBS.from_raw(this) };
            debug_assert!(!pcb.state.get_mut().attached, "rule 5: the last release comes after detach");
            debug_assert!(pcb.conn().is_none(), "detach has given up the peer");
        }
    }
}

/// A counted reference on a pcb (rule 5). Dropped without any lock of rank pcb or higher.
pub(crate) struct PcbRef(NonNull<Pcb>);

// SAFETY: a counted reference on something that is `Sync`, and freed by whoever comes last (`Send`).
unsafe impl Send for PcbRef {}
// SAFETY: as above.
unsafe impl Sync for PcbRef {}

impl PcbRef {
    /// One more reference.
    ///
    /// # Safety
    /// There is a valid reference, which is not given up during the call (rule 5).
    pub(crate) unsafe fn hold(pcb: NonNull<Pcb>) -> Self {
        // SAFETY: alive, by contract.
        unsafe { pcb.as_ref() }.refs.hold();
        Self(pcb)
    }

    /// Takes over a reference that is counted already.
    ///
    /// # Safety
    /// It is counted, and nobody else gives it back.
    pub(crate) unsafe fn adopt(pcb: NonNull<Pcb>) -> Self {
        Self(pcb)
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Pcb> {
        self.0
    }

    /// Gives the reference back under `guard`, the lock of this very pcb, and returns the guard; `None` if it
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
