//! The handle that programs use, from its creation to its close.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::flight::{self, Control, Handle};
use crate::linkage;
use crate::locks::{self, Owned};
use crate::name::{self, Name};
use crate::pcb::{Pcb, PcbRef, Phase};
use crate::rcv::Leftovers;
use crate::wait::Wakes;
use manylane_sync::LaneId;
use manylane_sync::atomic::Ordering;
use std::alloc::Layout;
use std::fmt;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::ptr::NonNull;
use std::time::Duration;

/// Default time for which a blocking call spins before it sleeps; see [`Socket::set_busy_poll`]. Waking a
/// sleeping thread costs its waker some microseconds and the whole exchange tens of them. So a shorter spin
/// pays if the other side answers soon, and costs little beside the sleep if it does not.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(5);

/// The three types of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A stream of bytes, in both directions (`SOCK_STREAM`).
    Stream,
    /// Single messages without a connection (`SOCK_DGRAM`).
    Datagram,
    /// A connection that keeps the boundaries of messages (`SOCK_SEQPACKET`).
    SeqPacket,
}

impl Kind {
    pub(crate) fn is_connected_kind(self) -> bool {
        self != Self::Datagram
    }
}

/// A local socket. Cloning makes a second handle on the same socket, as `dup` does; dropping the last handle
/// closes the socket.
///
/// ```
/// use manylane_local::{Kind, Socket};
/// let (a, b) = Socket::pair(Kind::Stream);
/// a.send(b"hello")?;
/// let mut buffer = [0; 16];
/// assert_eq!(b.recv(&mut buffer)?, 5);
/// drop(a);
/// assert_eq!(b.recv(&mut buffer)?, 0, "the end");
/// # Ok::<_, manylane_local::Error>(())
/// ```
///
/// A thread must not drop a handle while it holds a lock of rank 10 or higher: closing takes this crate's
/// locks.
pub struct Socket {
    pcb: NonNull<Pcb>,
}

// SAFETY: any thread may reach a pcb at any time (see `Pcb`), and the thread that closes it drops its parts.
unsafe impl Send for Socket {}
// SAFETY: as above.
unsafe impl Sync for Socket {}

impl Socket {
    /// Creates a socket without a connection. Without memory for it the process ends, as for a `Box`.
    pub fn new(kind: Kind) -> Self {
        Self::try_new(kind).unwrap_or_else(|_| std::alloc::handle_alloc_error(Layout::new::<Pcb>()))
    }

    /// Creates a socket as [`new`](Self::new).
    ///
    /// # Errors
    /// [`Error::NoBuffers`] if there is no memory for it.
    pub fn try_new(kind: Kind) -> Result<Self, Error> {
        let pcb = linkage::create(kind).map_err(manylane_buf::Error::from)?;
        Ok(Self { pcb })
    }

    /// Creates two sockets that are connected to each other.
    pub fn pair(kind: Kind) -> (Self, Self) {
        let (a, b) = (Self::new(kind), Self::new(kind));
        let credentials = Credentials::own();
        let (mut one, mut two) = locks::lock_two(a.pcb(), b.pcb());
        for (state, of, to) in [(&mut one, &a, &b), (&mut two, &b, &a)] {
            state.phase = Phase::Connected;
            state.peer_credentials = Some(credentials);
            let former = of.pcb().set_conn(Some(to.reference()));
            debug_assert!(former.is_none(), "it is new");
        }
        drop((one, two));
        (a, b)
    }

    #[inline]
    pub(crate) fn pcb(&self) -> &Pcb {
        // SAFETY: rule 6: the socket has a reference until its last handle is dropped, and `self` is a
        // handle.
        let pcb = unsafe { self.pcb.as_ref() };
        #[cfg(loom)]
        pcb.assert_alive();
        pcb
    }

    /// Returns one more reference on the pcb, which is no handle.
    pub(crate) fn reference(&self) -> PcbRef {
        // SAFETY: as in `pcb`: there is the socket's reference to copy.
        unsafe { PcbRef::hold(self.pcb) }
    }

    /// Returns the peer of a stream or seqpacket socket, without a lock.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn peer(&self) -> Option<&Pcb> {
        let peer = self.pcb().conn()?;
        // SAFETY: rule 2: it lives as long as this handle. (Callers have checked the kind.)
        let peer = unsafe { peer.as_ref() };
        #[cfg(loom)]
        peer.assert_alive();
        Some(peer)
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.pcb().kind
    }

    /// Returns the lane of the thread that created it; for an accepted connection, the lane of the connecting
    /// thread.
    pub fn lane(&self) -> LaneId {
        self.pcb().lane
    }

    /// Returns the number that [`sockets`](crate::sockets) shows.
    pub fn number(&self) -> u64 {
        self.pcb().number
    }

    /// Returns the name, if the socket is bound.
    pub fn name(&self) -> Option<Name> {
        self.pcb().state.lock().name.clone()
    }

    /// Calls `f` with the peer's state while both sockets are locked.
    fn with_peer<R>(&self, f: impl FnOnce(&crate::pcb::State) -> R) -> Result<R, Error> {
        let pcb = self.pcb();
        let mut own = pcb.state.lock();
        loop {
            let Some(peer) = pcb.conn().filter(|_| own.phase == Phase::Connected) else {
                return Err(Error::NotConnected);
            };
            if peer == self.pcb {
                return Ok(f(&own)); // a datagram socket may be connected to itself
            }
            // SAFETY: rule 1: this reads `conn` under its lock.
            match unsafe { locks::owned_lock_two(pcb, own, peer) } {
                Owned::Both { own: mine, other, relocked } => {
                    if !relocked || (pcb.conn() == Some(peer) && mine.phase == Phase::Connected) {
                        return Ok(f(&other));
                    }
                    drop(other);
                    own = mine;
                }
                Owned::Freed { own: mine } => own = mine,
            }
        }
    }

    /// Returns the name of the peer, if it has one.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn peer_name(&self) -> Result<Option<Name>, Error> {
        self.with_peer(|peer| peer.name.clone())
    }

    /// Returns the credentials of the peer, from when it connected, began to listen, or made the pair.
    ///
    /// # Errors
    /// [`Error::NotConnected`]; also for a datagram socket that was connected by name, since its peer took no
    /// part.
    pub fn peer_credentials(&self) -> Result<Credentials, Error> {
        let state = self.pcb().state.lock();
        match (state.peer_credentials, state.phase) {
            (Some(credentials), Phase::Connected) => Ok(credentials),
            _ => Err(Error::NotConnected),
        }
    }

    /// Returns the number of bytes that wait for a receive.
    pub fn queued(&self) -> usize {
        self.pcb().rcv.lock().len()
    }

    /// Sets how many bytes may be queued for this socket before senders wait: at least 1 and at most half of
    /// the address space. A message counts [`MESSAGE_COST`](crate::MESSAGE_COST) in addition. A limit below
    /// the currently queued bytes is legal and loses nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 or too many.
    pub fn set_recv_limit(&self, bytes: usize) -> Result<(), Error> {
        check_limit(bytes)?;
        let buffer = &self.pcb().rcv;
        let mut rcv = buffer.lock();
        let wakes = rcv.set_limit(bytes);
        drop(rcv);
        wake(wakes);
        Ok(())
    }

    /// Returns the limit of [`set_recv_limit`](Self::set_recv_limit).
    pub fn recv_limit(&self) -> usize {
        self.pcb().rcv.lock().own_limit()
    }

    /// Sets how many bytes this socket may have queued at its peer before it waits; the lower one of this and
    /// the peer's receive limit applies. For datagrams it bounds a single message.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 or too many.
    pub fn set_send_limit(&self, bytes: usize) -> Result<(), Error> {
        check_limit(bytes)?;
        let mut state = self.pcb().state.lock();
        state.send_limit = bytes;
        // Under the pcb lock, so that of two concurrent calls the same one takes effect in both places.
        let wakes = match self.peer() {
            Some(peer) if self.kind().is_connected_kind() => {
                let mut rcv = peer.rcv.lock();
                let wakes = rcv.set_sender_limit(bytes);
                drop(rcv);
                wakes
            }
            _ => None,
        };
        drop(state);
        wake(wakes);
        Ok(())
    }

    /// Returns the limit of [`set_send_limit`](Self::set_send_limit).
    pub fn send_limit(&self) -> usize {
        self.pcb().state.lock().send_limit
    }

    /// Sets how long blocking receives and accepts wait at most; `None` means no limit.
    pub fn set_recv_timeout(&self, timeout: Option<Duration>) {
        self.pcb().recv_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Returns the timeout of [`set_recv_timeout`](Self::set_recv_timeout).
    pub fn recv_timeout(&self) -> Option<Duration> {
        timeout(self.pcb().recv_timeout.load(Ordering::Relaxed))
    }

    /// Sets how long blocking sends wait at most; `None` means no limit.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.pcb().send_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Returns the timeout of [`set_send_timeout`](Self::set_send_timeout).
    pub fn send_timeout(&self) -> Option<Duration> {
        timeout(self.pcb().send_timeout.load(Ordering::Relaxed))
    }

    /// Sets for how long blocking calls spin before they sleep (`SO_BUSY_POLL`). Zero: not at all. A
    /// millisecond makes an exchange between two running threads a hundred times as fast, but uses their
    /// processors.
    pub fn set_busy_poll(&self, time: Duration) {
        self.pcb().busy_poll.store(nanoseconds(Some(time)), Ordering::Relaxed);
    }

    /// Shuts down one direction or both. After the writing half is shut down the peer receives the queued
    /// data, then the end. After the reading half is shut down the queued data is lost, and the peer's sends
    /// fail with [`Error::BrokenPipe`]. Wakes all waiters on the socket, except the sender of a datagram that
    /// waits at a socket named with the message.
    ///
    /// # Errors
    /// [`Error::NotConnected`] on a stream or seqpacket socket that was never connected.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        let pcb = self.pcb();
        let connected_kind = pcb.kind.is_connected_kind();
        let peer = if connected_kind { Some(self.peer().ok_or(Error::NotConnected)?) } else { None };
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            match peer {
                Some(peer) => end(peer),
                None => shut_datagrams(pcb),
            }
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            let mut rcv = pcb.rcv.lock();
            let wakes = rcv.shut();
            drop(rcv);
            wakes.into_iter().for_each(wake);
            let mut handles = Vec::new();
            empty(pcb, &mut handles);
            flight::discard(handles);
        }
        Ok(())
    }

    /// Reports to the peer of a stream or seqpacket socket that its data is incomplete: after the queued data
    /// the peer receives [`Error::ConnectionReset`], once. Changes nothing else until the socket is closed,
    /// and nothing at all without a peer.
    pub fn abort(&self) {
        if self.pcb().kind.is_connected_kind()
            && let Some(peer) = self.peer()
        {
            let mut rcv = peer.rcv.lock();
            let wakes = rcv.reset();
            drop(rcv);
            wake(wakes);
        }
    }

    /// Closes the socket if this is its last handle, and moves the handles queued in it to `handles`. For
    /// loops that close many (rule 5 of the flight).
    pub(crate) fn close_into(self, handles: &mut Vec<Handle>) {
        let this = ManuallyDrop::new(self);
        if this.pcb().handles.release() {
            // SAFETY: rule 6: the last handle is gone, so the socket's own reference is released here, once.
            detach(unsafe { PcbRef::adopt(this.pcb) }, handles);
        }
    }
}

fn check_limit(bytes: usize) -> Result<(), Error> {
    if bytes == 0 || bytes > isize::MAX as usize {
        return Err(Error::Invalid("a buffer limit of 0 bytes, or of more than there can be: use 1 or more"));
    }
    Ok(())
}

/// Encodes a timeout; `u64::MAX` means none.
fn nanoseconds(time: Option<Duration>) -> u64 {
    time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1))
}

/// Decodes a timeout.
pub(crate) fn timeout(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != u64::MAX).then(|| Duration::from_nanos(nanoseconds))
}

#[inline]
pub(crate) fn wake(wakes: Option<Wakes>) {
    if let Some(wakes) = wakes {
        wakes.wake();
    }
}

/// Puts the end of the stream into the buffer of `peer`.
fn end(peer: &Pcb) {
    let mut rcv = peer.rcv.lock();
    let wakes = rcv.end();
    drop(rcv);
    wakes.into_iter().for_each(wake);
}

/// Makes a datagram socket send no more, and wakes senders that wait for room at its peer, so that they
/// return an error.
fn shut_datagrams(pcb: &Pcb) {
    let mut state = pcb.state.lock();
    state.shut_write = true;
    // SAFETY: rule 1: this reads `conn` under its lock.
    let wakes = pcb.conn().and_then(|peer| unsafe { peer.as_ref() }.rcv.lock().writers.take());
    drop(state);
    wake(wakes);
}

/// Empties the buffer of `pcb`, which accepts nothing any more; moves the handles in it to `handles`.
fn empty(pcb: &Pcb, handles: &mut Vec<Handle>) {
    let mut rcv = pcb.rcv.lock();
    let leftovers: Leftovers = if rcv.has_handles() {
        drop(rcv); // the flight lock comes first
        let mut flight = flight::lock();
        rcv = pcb.rcv.lock();
        rcv.controls().for_each(|control| flight.landed(control));
        rcv.empty()
    } else {
        rcv.empty()
    };
    drop(rcv);
    let controls = leftovers.queue.into_iter().filter_map(|entry| entry.control);
    handles.extend(controls.flat_map(|control: Box<Control>| control.handles));
}

/// Detaches the socket of `pcb`, which is its own reference. The last handle is gone, so no call is active on
/// it; the pcb is still visible to its peer, which sends into it, and to threads that found it by name or in
/// a list.
fn detach(pcb: PcbRef, handles: &mut Vec<Handle>) {
    linkage::remove(&pcb);
    let mut own = pcb.state.lock();
    if !own.inherits_name
        && let Some(name) = own.name.clone()
    {
        drop(own); // the name lock comes first; no handle is left that could bind the socket again
        name::unbind(&name);
        own = pcb.state.lock();
    }
    own.attached = false;
    let backlog = std::mem::take(&mut own.backlog);
    let accepters = own.accepters.take();
    // Disconnects both ends, under both locks (rule 7), and takes out the reference on the peer under these
    // locks: later the peer's own close could.
    let mut of_peer = None; // the reference of a peer on this pcb
    let peer = loop {
        // (A datagram socket may be connected to itself.)
        let Some(peer) = pcb.conn().filter(|peer| *peer != pcb.as_ptr()) else { break pcb.set_conn(None) };
        // SAFETY: rule 1: this reads `conn` under its lock.
        match unsafe { locks::owned_lock_two(&pcb, own, peer) } {
            Owned::Both { own: mine, mut other, relocked } => {
                own = mine;
                if relocked && pcb.conn() != Some(peer) {
                    continue; // a datagram socket that was disconnected meanwhile
                }
                if pcb.kind.is_connected_kind() {
                    other.phase = Phase::Disconnected;
                } else {
                    // SAFETY: locked.
                    let peer = unsafe { peer.as_ref() };
                    if peer.conn() == Some(pcb.as_ptr()) {
                        of_peer = peer.set_conn(None);
                        other.phase = Phase::Open;
                    }
                }
                break pcb.set_conn(None);
            }
            Owned::Freed { own: mine } => own = mine,
        }
    };
    own.phase = Phase::Disconnected;
    drop(own);

    let mut rcv = pcb.rcv.lock();
    let wakes = rcv.close();
    drop(rcv);
    wakes.into_iter().for_each(wake);
    wake(accepters);
    empty(&pcb, handles);

    if let Some(peer) = &peer {
        if pcb.kind.is_connected_kind() {
            end(peer);
        } else if of_peer.is_some() {
            let mut rcv = peer.rcv.lock();
            let wakes = rcv.reset();
            drop(rcv);
            wake(wakes);
        }
    }
    drop(peer);
    drop(of_peer);
    handles.extend(backlog.queue.into_iter().map(Handle::Socket));
    drop(pcb); // the socket's reference (rule 6)
}

impl Clone for Socket {
    /// Makes a second handle on the same socket. Costs one locked add.
    fn clone(&self) -> Self {
        self.pcb().handles.hold();
        Self { pcb: self.pcb }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut handles = Vec::new();
        // SAFETY: `self` is not used after this: it moves out, and has no field that is dropped.
        let this = Self { pcb: self.pcb };
        this.close_into(&mut handles);
        flight::discard(handles);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("kind", &self.kind()).field("number", &self.number()).finish()
    }
}
