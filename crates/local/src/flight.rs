//! Handles in messages (R-A6), and the collection of those that no socket can receive any more.
//!
//! A handle in flight keeps its socket open. If all handles of a socket are in buffers that can be reached
//! only through such sockets, no caller can ever receive them. Such a cycle arises, for example, when an end
//! of a pair is sent to itself. The collector frees them.
//!
//! # Protocol
//! 1. Handles of sockets enter and leave a buffer under the flight lock *and* that buffer's lock. `in_flight`
//!    counts them for each socket, under the flight lock.
//! 2. A socket whose handles are all in flight is a *candidate*. It stays one while the flight lock is held:
//!    cloning a handle needs a handle, and no handle can be received. A program holds a handle of every other
//!    socket.
//! 3. The collector counts, for each candidate, its handles in the buffers of candidates (and of connections
//!    that wait in a candidate's backlog). A candidate with more handles in flight than that can be received
//!    from elsewhere: it is reachable, and so are, transitively, the sockets in its buffer. All other
//!    candidates are garbage: the collector takes the handles out of their buffers, and drops them after it
//!    has released the locks.
//! 4. The collector runs after a socket is closed, or one of several handles of a socket is dropped, while
//!    handles are in flight. After a run that left n sockets in flight it skips n / 8 such events, so that a
//!    close costs a constant on average. It also runs when the bound on handles is reached, and by
//!    [`collect`].
//! 5. Dropping handles is a loop over a list, not a recursion, however deep sockets are nested in each
//!    other's buffers.
//!
//! The collector traces only sockets. It does not see a socket inside another [object](Handle::Object): a
//! cycle through one stays.
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

/// Maximum number of handles in one message: as many as the system's own sockets allow.
pub const MAX_HANDLES: usize = 253;

/// Maximum number of socket handles in flight in the process: bounds the collector's work.
pub const MAX_IN_FLIGHT: usize = 65_536;

/// An object that a message can carry.
pub enum Handle {
    /// A socket. Clone it first to keep a handle.
    Socket(Socket),
    /// Any other object, which the receiver downcasts. Sockets inside it are not traced (see [`collect`]).
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

/// Handles and credentials that come with the bytes of a message.
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

/// State under the flight lock.
#[derive(Default)]
pub(crate) struct Flight {
    /// Number of handles in flight of each socket that has any. These pcbs are alive, since they have
    /// handles.
    in_flight: HashMap<Key, usize>,
    total: usize,
    /// Number of events since the last run, and of sockets that the last run left.
    events: usize,
    survivors: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key(NonNull<Pcb>);
// SAFETY: any thread may reach a pcb; rule 1 keeps it alive.
unsafe impl Send for Key {}

/// Static state. `total` is the number of handles in flight, for reads without the lock.
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
    /// Checks that this many more handles may be sent now.
    pub(crate) fn admit(&self, handles: usize) -> Result<(), Error> {
        let wanted = self.total + handles;
        if wanted > MAX_IN_FLIGHT {
            return Err(Error::TooManyHandles { wanted, limit: MAX_IN_FLIGHT });
        }
        Ok(())
    }

    /// Counts `sockets`, which the caller has put into a buffer whose lock it still holds.
    pub(crate) fn took_off(&mut self, sockets: &[NonNull<Pcb>]) {
        for socket in sockets {
            *self.in_flight.entry(Key(*socket)).or_default() += 1;
        }
        self.changed(self.total + sockets.len());
    }

    /// Discounts `control`, which the caller has taken out of a buffer whose lock it still holds.
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

    /// Takes out the handles that no socket can receive any more (rule 3).
    fn collect(&mut self, garbage: &mut Vec<Handle>) {
        self.events = 0;
        let is_candidate = |key: &Key, in_flight: usize| {
            // SAFETY: rule 1: a socket in flight has a handle in some buffer, which stays there while this
            // thread holds the lock.
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

/// Calls `f` with the pcbs whose buffers `key` leads to: its own, and those of its unaccepted connections.
fn with_buffers(key: Key, mut f: impl FnMut(&Pcb)) {
    // SAFETY: rule 1: in flight, so it has a handle as long as the flight lock is held.
    let pcb = unsafe { key.0.as_ref() };
    f(pcb);
    let state = pcb.state.lock();
    for waiting in &state.backlog.queue {
        f(waiting.pcb());
    }
}

/// Calls `f` with every socket that is in a buffer of `key`.
fn each_inside(key: Key, mut f: impl FnMut(Key)) {
    with_buffers(key, |pcb| {
        let rcv = pcb.rcv.lock();
        rcv.controls().flat_map(Control::sockets).for_each(|socket| f(Key(socket)));
    });
}

/// Drops handles from queues, and the contents of the queues of sockets that this closes (rule 5). The caller
/// holds no lock.
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

/// Counts one more event, and returns true if the collector should run (rule 4).
fn is_due() -> bool {
    // Consider a thread that puts a handle into flight and one that drops another handle of the same socket.
    // Either the second sees here that handles are in flight, or the first, at its next event, sees that the
    // other handle is gone: both have a fence between their write and their read.
    fence(Ordering::SeqCst);
    if SHARED.total.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut flight = lock();
    flight.events += 1;
    flight.events > flight.survivors / 8
}

/// Closes sockets that are open only because handles of them are in each other's buffers, and returns the
/// number of dropped handles. The crate runs this by itself (see the rules above); a caller may force it.
/// Takes the flight lock; O(handles in flight).
pub fn collect() -> usize {
    let mut garbage = Vec::new();
    lock().collect(&mut garbage);
    let n = garbage.len();
    discard(garbage);
    n
}

/// Returns the number of socket handles in flight. A plain load.
pub fn in_flight() -> usize {
    SHARED.total.load(Ordering::Relaxed)
}
