//! Handles in messages (R-A6), and what becomes of those that nobody can receive any more.
//!
//! A handle on its way keeps its socket open. If the only handles of a socket lie in buffers that can only be
//! reached through such sockets, nobody will ever receive them: a cycle, as when an end of a pair is sent to
//! itself. They are collected.
//!
//! # Protocol
//! 1. Handles of sockets enter and leave a buffer under the flight lock *and* that buffer's lock. `in_flight`
//!    counts them per socket, under the flight lock.
//! 2. A socket of which all handles are in flight is a *candidate*. While the flight lock is held it stays
//!    one: to make another handle one has to have a handle, and none can be received. A socket that is no
//!    candidate has a handle in somebody's hands.
//! 3. The collector counts, for each candidate, its handles in the buffers of candidates (and of connections
//!    that wait in a candidate's backlog). Who has more in flight than that can be received from elsewhere:
//!    it is reachable, and so is, transitively, what lies in its buffer. What is left is garbage: its
//!    buffers' handles are taken out and dropped after the locks are released.
//! 4. When it runs: after a socket is closed or one of several handles of one is dropped, while handles are
//!    in flight; but after a run that left n sockets in flight, only after n / 8 such events, so that a close
//!    costs a constant on average. Also when the bound on handles is reached, and by [`collect`].
//! 5. Dropping handles is a loop over a list, not a recursion, however deep sockets are nested in each
//!    other's buffers.
//!
//! Only sockets are traced. A socket inside another [object](Handle::Object) is invisible here: a cycle
//! through one stays.
//!
//! The method is that of BSD's and Linux's `unp_gc`.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::locks;
use crate::pcb::Pcb;
use crate::socket::Socket;
use manylane_sync::atomic::{AtomicUsize, Ordering, fence};
use manylane_sync::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;

/// Handles that one message may carry: as many as the system's own sockets allow.
pub const MAX_HANDLES: usize = 253;

/// Handles of sockets that may be on their way in the process at a time: it bounds what the collector has to
/// look at.
pub const MAX_IN_FLIGHT: usize = 65_536;

/// Something that can be sent in a message.
pub enum Handle {
    /// A socket. Clone it first to keep a handle.
    Socket(Socket),
    /// Anything else, to be downcast by the receiver. Sockets inside it are not traced (see [`collect`]).
    Object(Box<dyn Any + Send>),
}

impl From<Socket> for Handle {
    fn from(socket: Socket) -> Self {
        Self::Socket(socket)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => socket.fmt(f),
            Self::Object(_) => f.write_str("Object"),
        }
    }
}

/// What comes with the bytes of a message.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) handles: Vec<Handle>,
    pub(crate) credentials: Option<Credentials>,
}

impl Control {
    pub(crate) fn sockets(&self) -> impl Iterator<Item = NonNull<Pcb>> {
        self.handles.iter().filter_map(|handle| match handle {
            Handle::Socket(socket) => Some(NonNull::from(socket.pcb())),
            Handle::Object(_) => None,
        })
    }
}

/// What the flight lock guards.
#[derive(Default)]
pub(crate) struct Flight {
    /// Handles in flight of each socket that has any. The pcbs are alive: they have handles.
    in_flight: HashMap<Key, usize>,
    total: usize,
    /// Events since the last run, and sockets that it left.
    events: usize,
    survivors: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key(NonNull<Pcb>);
// SAFETY: a pcb may be reached from any thread; rule 1 keeps it alive.
unsafe impl Send for Key {}

/// Static: handles in flight, for a look without the lock.
struct Shared {
    total: AtomicUsize,
    flight: Mutex<Flight>,
}

manylane_sync::lazy_static! {
    static SHARED: Shared =
        Shared { total: AtomicUsize::new(0), flight: Mutex::new(&locks::FLIGHT, Flight::default()) };
}

/// The flight lock.
pub(crate) fn lock() -> MutexGuard<'static, Flight> {
    SHARED.flight.lock()
}

impl Flight {
    /// Whether so many more handles may be sent now.
    pub(crate) fn admit(&self, handles: usize) -> Result<(), Error> {
        let wanted = self.total + handles;
        if wanted > MAX_IN_FLIGHT {
            return Err(Error::TooManyHandles { wanted, limit: MAX_IN_FLIGHT });
        }
        Ok(())
    }

    /// `sockets` were put into a buffer, whose lock is still held.
    pub(crate) fn took_off(&mut self, sockets: &[NonNull<Pcb>]) {
        for socket in sockets {
            *self.in_flight.entry(Key(*socket)).or_default() += 1;
        }
        self.changed(self.total + sockets.len());
    }

    /// `control` was taken out of a buffer, whose lock is still held.
    pub(crate) fn landed(&mut self, control: &Control) {
        let mut total = self.total;
        for socket in control.sockets() {
            total -= 1;
            let left = self.in_flight.get_mut(&Key(socket)).expect("rule 1: what is in a buffer was counted");
            *left -= 1;
            if *left == 0 {
                self.in_flight.remove(&Key(socket));
            }
        }
        self.changed(total);
    }

    fn changed(&mut self, total: usize) {
        self.total = total;
        SHARED.total.store(total, Ordering::Relaxed); // seen in time: see `is_due`
    }

    /// Takes out the handles that cannot be received any more (rule 3).
    fn collect(&mut self, garbage: &mut Vec<Handle>) {
        self.events = 0;
        let is_candidate = |key: &Key, in_flight: usize| {
            // SAFETY: rule 1: what is in flight has a handle in some buffer, which stays there while we hold
            // the lock.
            let pcb = unsafe { key.0.as_ref() };
            pcb.handles.count() as usize == in_flight
        };
        let candidates: HashMap<Key, usize> = self
            .in_flight
            .iter()
            .filter(|(key, in_flight)| is_candidate(key, **in_flight))
            .map(|(key, in_flight)| (*key, *in_flight))
            .collect();
        let mut outside = candidates.clone();
        for key in candidates.keys() {
            each_inside(*key, |inside| {
                if let Some(n) = outside.get_mut(&inside) {
                    *n -= 1;
                }
            });
        }
        let mut unreachable = candidates;
        let mut reached: Vec<Key> = outside.iter().filter(|(_, n)| **n > 0).map(|(key, _)| *key).collect();
        reached.iter().for_each(|key| _ = unreachable.remove(key));
        while let Some(key) = reached.pop() {
            each_inside(key, |inside| {
                if unreachable.remove(&inside).is_some() {
                    reached.push(inside);
                }
            });
        }
        for key in unreachable.keys() {
            with_buffers(*key, |pcb| {
                let mut rcv = pcb.rcv.lock();
                for control in rcv.take_controls() {
                    self.landed(&control);
                    garbage.extend(control.handles);
                }
            });
        }
        self.survivors = self.in_flight.len();
    }
}

/// Calls `f` with the pcbs into whose buffers one gets by `key`: its own, and those of connections that
/// nobody accepted.
fn with_buffers(key: Key, mut f: impl FnMut(&Pcb)) {
    // SAFETY: rule 1: in flight, so it has a handle, as long as the flight lock is held.
    let pcb = unsafe { key.0.as_ref() };
    f(pcb);
    let state = pcb.state.lock();
    for waiting in &state.backlog.queue {
        f(waiting.pcb());
    }
}

/// Calls `f` with every socket that lies in a buffer of `key`.
fn each_inside(key: Key, mut f: impl FnMut(Key)) {
    with_buffers(key, |pcb| {
        let rcv = pcb.rcv.lock();
        rcv.controls().flat_map(Control::sockets).for_each(|socket| f(Key(socket)));
    });
}

/// Drops handles that come out of queues, and whatever comes out of the queues of sockets that this closes
/// (rule 5). No lock is held.
pub(crate) fn discard(mut handles: Vec<Handle>) {
    loop {
        while let Some(handle) = handles.pop() {
            match handle {
                Handle::Socket(socket) => socket.close_into(&mut handles),
                Handle::Object(object) => drop(object),
            }
        }
        if !is_due() {
            return;
        }
        lock().collect(&mut handles);
        if handles.is_empty() {
            return;
        }
    }
}

/// Whether the collector should run, one more event having happened (rule 4).
fn is_due() -> bool {
    // Of one that puts a handle into flight and one that drops another handle of the same socket, either the
    // latter sees here that handles are in flight, or the former, at its next event, that the other
    // handle is gone: both pass a fence between what they changed and what they look at.
    fence(Ordering::SeqCst);
    if SHARED.total.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut flight = lock();
    flight.events += 1;
    flight.events > flight.survivors / 8
}

/// Collects sockets that are open only because handles of them lie in each other's buffers, and returns how
/// many handles were dropped. It runs by itself (see the rules above); call it to be sure. Takes the flight
/// lock; O(handles in flight).
pub fn collect() -> usize {
    let mut garbage = Vec::new();
    lock().collect(&mut garbage);
    let n = garbage.len();
    discard(garbage);
    n
}

/// Handles of sockets that are on their way in messages. A plain load.
pub fn in_flight() -> usize {
    SHARED.total.load(Ordering::Relaxed)
}
