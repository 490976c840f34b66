//! Sending: into the peer's buffer, under its lock.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::flight::{self, Control, Flight, Handle, MAX_HANDLES};
use crate::name::{self, Name};
use crate::pcb::Pcb;
use crate::rcv::{Body, Entry, Rcv, SMALL};
use crate::socket::{Kind, Socket, wake};
use crate::wait::{self, Attempt, BlockUntil, Event, Op, Waiting, Wakes};
use manylane_buf::{Chain, Parcel};
use manylane_sync::atomic::Ordering;
use std::future::Future;
use std::time::{Duration, Instant};

/// Bytes of a large send that are copied into clusters at a time.
const PIECE: usize = 64 * 1024;

/// Data attached to a message.
#[derive(Default)]
pub struct Attached<'a> {
    /// Destination of a datagram; without one it goes to the connected socket.
    pub to: Option<&'a Name>,
    /// Handles that move into the message, at most [`MAX_HANDLES`]. They leave the vector when the message is
    /// sent, and stay in it if it is refused.
    pub handles: Option<&'a mut Vec<Handle>>,
    /// True to send the sender's [`Credentials`].
    pub credentials: bool,
}

impl Socket {
    /// Sends `bytes` and returns the number of bytes sent. A stream waits until all are sent, unless the send
    /// timeout ends first; a message is sent as a whole or not at all.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout if nothing was sent, [`Error::BrokenPipe`],
    /// [`Error::NotConnected`], [`Error::DestinationRequired`], [`Error::ConnectionRefused`],
    /// [`Error::MessageTooLong`], [`Error::NoBuffers`].
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        if self.put_now(bytes) {
            return Ok(bytes.len());
        }
        self.send_slowly(bytes)
    }

    /// The data path of connected sockets: takes one lock, that of the peer's buffer (rule 2). Returns false
    /// if it did nothing.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn put_now(&self, bytes: &[u8]) -> bool {
        let kind = self.pcb().kind;
        if kind == Kind::Datagram || bytes.len() > SMALL {
            return false;
        }
        let Some(peer) = self.peer() else { return false };
        put_now(peer, kind, bytes)
    }

    #[inline(never)]
    fn send_slowly(&self, bytes: &[u8]) -> Result<usize, Error> {
        match self.kind() {
            Kind::Stream => wait::block(SendBytes::new(self, bytes), self.send_block_until()),
            _ => self.send_message(bytes, Attached::default()),
        }
    }

    /// Sends as many bytes as there is room for, without waiting.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::WouldBlock`] if there is no room.
    #[inline]
    pub fn try_send(&self, bytes: &[u8]) -> Result<usize, Error> {
        if self.put_now(bytes) {
            return Ok(bytes.len());
        }
        match self.kind() {
            Kind::Stream => wait::now(SendBytes::new(self, bytes)),
            _ => wait::now(SendMessage::new(self, bytes, Attached::default())?),
        }
    }

    /// Sends as [`send`](Self::send), for any executor and without a timeout.
    pub fn send_async<'a>(&'a self, bytes: &'a [u8]) -> impl Future<Output = Result<usize, Error>> + 'a {
        let mut op = None;
        std::future::poll_fn(move |context| {
            if op.is_none() {
                op = Some(match self.kind() {
                    Kind::Stream => Either::Bytes(Op::new(SendBytes::new(self, bytes))),
                    _ => match SendMessage::new(self, bytes, Attached::default()) {
                        Ok(message) => Either::Message(Op::new(message)),
                        Err(error) => return std::task::Poll::Ready(Err(error)),
                    },
                });
            }
            match op.as_mut().expect("just made") {
                Either::Bytes(op) => std::pin::Pin::new(op).poll(context),
                Either::Message(op) => std::pin::Pin::new(op).poll(context),
            }
        })
    }

    /// Sends the bytes of `chain` by reference (R-A7). A stream copies and gathers chains of up to 1 KiB,
    /// and segments that do not fill half of their clusters, alone or with a neighbour: so an unread buffer
    /// takes at most twice its bytes and a cluster. Removes the sent bytes from the front of `chain`; bytes
    /// left in it after an error were not sent.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_chain(&self, chain: &mut Chain) -> Result<usize, Error> {
        match self.kind() {
            Kind::Stream => wait::block(SendChain::new(self, chain), self.send_block_until()),
            _ => {
                wait::block(SendMessageChain::new(self, chain, Attached::default())?, self.send_block_until())
            }
        }
    }

    /// Sends as [`send_chain`](Self::send_chain), without waiting.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::WouldBlock`] if there is no room.
    pub fn try_send_chain(&self, chain: &mut Chain) -> Result<usize, Error> {
        match self.kind() {
            Kind::Stream => wait::now(SendChain::new(self, chain)),
            _ => wait::now(SendMessageChain::new(self, chain, Attached::default())?),
        }
    }

    /// Sends as [`send_chain`](Self::send_chain), on a stream, for any executor and without a timeout. If it
    /// is dropped before its end, it has removed the sent bytes from `chain`.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::NotSupported`] for messages.
    pub fn send_chain_async<'a>(
        &'a self,
        chain: &'a mut Chain,
    ) -> impl Future<Output = Result<usize, Error>> + 'a {
        let mut op = Op::new(SendChain::new(self, chain));
        std::future::poll_fn(move |context| match self.kind() {
            Kind::Stream => std::pin::Pin::new(&mut op).poll(context),
            _ => std::task::Poll::Ready(Err(Error::NotSupported(
                "only streams send chains in pieces: use send_message_chain",
            ))),
        })
    }

    /// Sends a message with attached data. On a stream there must be at least one byte, and all bytes are
    /// sent in one piece.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::TooManyHandles`]; [`Error::IsConnected`] for a destination on a
    /// stream or seqpacket socket.
    pub fn send_message(&self, bytes: &[u8], attached: Attached<'_>) -> Result<usize, Error> {
        wait::block(SendMessage::new(self, bytes, attached)?, self.send_block_until())
    }

    /// Sends as [`send_message`](Self::send_message), without waiting.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message); [`Error::WouldBlock`] if there is no room.
    pub fn try_send_message(&self, bytes: &[u8], attached: Attached<'_>) -> Result<usize, Error> {
        wait::now(SendMessage::new(self, bytes, attached)?)
    }

    /// Sends as [`send_message`](Self::send_message), with bytes by reference, which leave `chain` when they
    /// are sent.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_chain(&self, chain: &mut Chain, attached: Attached<'_>) -> Result<usize, Error> {
        wait::block(SendMessageChain::new(self, chain, attached)?, self.send_block_until())
    }

    /// Sends a datagram to the socket with that name.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message); [`Error::ConnectionRefused`] if no socket has the name.
    pub fn send_to(&self, bytes: &[u8], to: &Name) -> Result<usize, Error> {
        self.send_message(bytes, Attached { to: Some(to), ..Attached::default() })
    }

    fn send_block_until(&self) -> BlockUntil {
        self.until(self.send_timeout())
    }

    pub(crate) fn recv_block_until(&self) -> BlockUntil {
        self.until(self.recv_timeout())
    }

    fn until(&self, timeout: Option<Duration>) -> BlockUntil {
        // A time beyond the clock's range means no timeout.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        BlockUntil { until, spin: self.spin() }
    }

    pub(crate) fn block_until(&self, deadline: Instant) -> BlockUntil {
        BlockUntil { until: Some(deadline), spin: self.spin() }
    }

    fn spin(&self) -> Duration {
        Duration::from_nanos(self.pcb().busy_poll.load(Ordering::Relaxed))
    }
}

enum Either<'a> {
    Bytes(Op<SendBytes<'a>>),
    Message(Op<SendMessage<'a>>),
}

/// Copies all `bytes` into the buffer of `peer`, which has this kind, unless the case is unusual.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) fn put_now(peer: &Pcb, kind: Kind, bytes: &[u8]) -> bool {
    let mut guard = peer.rcv.lock();
    let rcv = &mut *guard;
    let all = if kind == Kind::Stream { rcv.put_all(bytes) } else { rcv.put_inline(bytes) };
    if !all {
        return false;
    }
    let wakes = rcv.readers.take();
    drop(guard);
    wake(wakes);
    true
}

/// A send of bytes on a stream.
struct SendBytes<'a> {
    socket: &'a Socket,
    rest: &'a [u8],
    /// The next piece of a large send, already copied.
    piece: Option<Parcel>,
    done: usize,
}

impl<'a> SendBytes<'a> {
    fn new(socket: &'a Socket, bytes: &'a [u8]) -> Self {
        Self { socket, rest: bytes, piece: None, done: 0 }
    }

    /// Sends the next part.
    fn part(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<(), Error> {
        if self.piece.is_none() && self.rest.len() <= SMALL {
            let n = into_peer(self.socket, waiting, |rcv| rcv.put(self.rest))?;
            self.rest = &self.rest[n..];
            self.done += n;
            return Ok(());
        }
        let mut chain = match self.piece.take() {
            Some(parcel) => parcel.open(),
            None => {
                let n = self.rest.len().min(PIECE);
                let mut chain = Chain::new();
                chain.append(&self.rest[..n])?;
                self.rest = &self.rest[n..];
                chain
            }
        };
        let put = chain_into_peer(self.socket, waiting, &mut chain);
        if !chain.is_empty() {
            self.piece = Some(chain.into());
        }
        self.done += put?;
        Ok(())
    }
}

impl Attempt for SendBytes<'_> {
    type Output = usize;

    fn attempt(&mut self, mut waiting: Option<&mut Waiting<'_>>) -> Result<usize, Error> {
        while self.piece.is_some() || !self.rest.is_empty() {
            match self.part(waiting.as_deref_mut()) {
                Ok(()) => {}
                Err(Error::WouldBlock) => return Err(Error::WouldBlock),
                // The next call returns the error again.
                Err(_) if self.done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.done)
    }

    fn given_up(&mut self) -> Result<usize, Error> {
        if self.done > 0 { Ok(self.done) } else { Err(Error::WouldBlock) }
    }

    fn may_succeed(&self) -> bool {
        may_have_room(self.socket)
    }
}

/// True if another attempt to send may succeed after one that had to wait.
fn may_have_room(socket: &Socket) -> bool {
    let changed = |peer: &Pcb| peer.rcv.peek(Rcv::may_be_sent);
    if socket.kind().is_connected_kind() {
        return socket.peer().is_none_or(changed);
    }
    let pcb = socket.pcb();
    let state = pcb.state.lock();
    // SAFETY: rule 1: this reads `conn` under its lock.
    state.shut_write || pcb.conn().is_none_or(|peer| changed(unsafe { peer.as_ref() }))
}

/// Calls `put` on the buffer of the peer of a stream or seqpacket socket (rule 2). If there is no room,
/// registers the waiter, if the caller may wait.
fn into_peer(
    socket: &Socket,
    waiting: Option<&mut Waiting<'_>>,
    put: impl FnOnce(&mut Rcv) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let peer = socket.peer().ok_or(Error::NotConnected)?;
    let (done, wakes) = into_buffer(peer, waiting, put);
    wake(wakes);
    done
}

/// Moves bytes of `chain` into the buffer of a stream's peer, and returns their number, at least one. The
/// rest is for the next call.
fn chain_into_peer(
    socket: &Socket,
    waiting: Option<&mut Waiting<'_>>,
    chain: &mut Chain,
) -> Result<usize, Error> {
    let before = chain.len();
    let done = into_peer(socket, waiting, |rcv| rcv.put_chain(chain))?;
    let carried = before - chain.len();
    // Without the lock: the copied bytes may have a free function (rule 8).
    chain.trim_front(done - carried).expect("what was copied was there");
    Ok(done)
}

/// Calls `put` on the buffer of `peer`. The caller must call the returned wakers without a lock.
fn into_buffer(
    peer: &Pcb,
    waiting: Option<&mut Waiting<'_>>,
    put: impl FnOnce(&mut Rcv) -> Result<usize, Error>,
) -> (Result<usize, Error>, Option<Wakes>) {
    let mut guard = peer.rcv.lock();
    let rcv = &mut *guard;
    let done = put(rcv);
    let mut wakes = None;
    match &done {
        Ok(_) => wakes = rcv.readers.take(),
        Err(Error::WouldBlock) => {
            if let Some(waiting) = waiting {
                waiting.enter(peer, Event::Room, &mut rcv.writers);
            }
        }
        Err(_) => {}
    }
    drop(guard);
    (done, wakes)
}

/// A send by reference on a stream.
struct SendChain<'a> {
    socket: &'a Socket,
    chain: &'a mut Chain,
    done: usize,
}

impl<'a> SendChain<'a> {
    fn new(socket: &'a Socket, chain: &'a mut Chain) -> Self {
        Self { socket, chain, done: 0 }
    }
}

impl Attempt for SendChain<'_> {
    type Output = usize;

    fn attempt(&mut self, mut waiting: Option<&mut Waiting<'_>>) -> Result<usize, Error> {
        while !self.chain.is_empty() {
            match chain_into_peer(self.socket, waiting.as_deref_mut(), self.chain) {
                Ok(n) => self.done += n,
                Err(Error::WouldBlock) => return Err(Error::WouldBlock),
                Err(_) if self.done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.done)
    }

    fn given_up(&mut self) -> Result<usize, Error> {
        if self.done > 0 { Ok(self.done) } else { Err(Error::WouldBlock) }
    }

    fn may_succeed(&self) -> bool {
        may_have_room(self.socket)
    }
}

/// A send of a message, or of bytes of a stream with attached data.
struct SendMessage<'a> {
    socket: &'a Socket,
    to: Option<&'a Name>,
    /// Until it is sent.
    entry: Option<Entry>,
    /// Source of the handles, to which they return if the message is not sent.
    handles: Option<&'a mut Vec<Handle>>,
}

impl<'a> SendMessage<'a> {
    fn new(socket: &'a Socket, bytes: &[u8], attached: Attached<'a>) -> Result<Self, Error> {
        check(socket, bytes.len(), &attached)?;
        if bytes.len() > PIECE {
            check_room(socket, bytes.len())?; // before the bytes are copied
        }
        Ok(Self::with(socket, Body::copy_of(bytes)?, attached))
    }

    fn with(socket: &'a Socket, body: Body, attached: Attached<'a>) -> Self {
        let Attached { to, mut handles, credentials } = attached;
        let moved = handles.as_deref_mut().map(std::mem::take).unwrap_or_default();
        let credentials = credentials.then(Credentials::own);
        let control = (!moved.is_empty() || credentials.is_some())
            .then(|| Box::new(Control { handles: moved, credentials }));
        Self { socket, to, entry: Some(Entry { body, control, from: None }), handles }
    }

    /// Delivers the entry. The caller holds the flight lock if there are handles of sockets.
    fn deliver(&mut self, waiting: Option<&mut Waiting<'_>>) -> (Result<usize, Error>, Option<Wakes>) {
        let (socket, kind) = (self.socket, self.socket.kind());
        if kind.is_connected_kind() {
            let Some(peer) = socket.peer() else { return (Err(Error::NotConnected), None) };
            let entry = &mut self.entry;
            return into_buffer(peer, waiting, |rcv| rcv.put_entry(entry, kind != Kind::Stream));
        }
        self.deliver_datagram(waiting)
    }

    /// Delivers a datagram; holds the own pcb lock over the delivery (rule 3).
    fn deliver_datagram(
        &mut self,
        waiting: Option<&mut Waiting<'_>>,
    ) -> (Result<usize, Error>, Option<Wakes>) {
        let pcb = self.socket.pcb();
        let found = match self.to.map(name::find).transpose() {
            Ok(found) => found, // dropped after the lock below
            Err(error) => return (Err(error), None),
        };
        if found.as_ref().is_some_and(|found| found.kind != Kind::Datagram) {
            return (Err(Error::WrongKind), None);
        }
        let state = pcb.state.lock();
        if state.shut_write {
            return (Err(Error::BrokenPipe), None);
        }
        let Some(peer) = found.as_ref().map(|found| found.as_ptr()).or_else(|| pcb.conn()) else {
            return (Err(Error::DestinationRequired), None);
        };
        // SAFETY: `found` holds it, or `conn` names it under its lock (rule 1).
        let peer = unsafe { peer.as_ref() };
        let len = self.entry.as_ref().map_or(0, |entry| entry.body.len());
        if len > state.send_limit {
            return (Err(Error::MessageTooLong { len, limit: state.send_limit }), None);
        }
        let entry = &mut self.entry;
        let mut closed = false;
        let (done, wakes) = into_buffer(peer, waiting, |rcv| {
            closed = rcv.is_closed();
            if let Some(entry) = entry {
                entry.from.clone_from(&state.name);
            }
            rcv.put_entry(entry, true)
        });
        if !closed {
            drop(state);
            return (done, wakes);
        }
        // The peer is closed; the socket may then connect to another.
        let former = if found.is_none() { pcb.set_conn(None) } else { None };
        drop(state);
        drop(former);
        (Err(Error::ConnectionRefused), wakes)
    }
}

/// Returns an error for a send that can never succeed.
fn check(socket: &Socket, len: usize, attached: &Attached<'_>) -> Result<(), Error> {
    if attached.to.is_some() && socket.kind() != Kind::Datagram {
        return Err(Error::IsConnected);
    }
    let handles = attached.handles.as_ref().map_or(0, |handles| handles.len());
    if handles > MAX_HANDLES {
        return Err(Error::TooManyHandles { wanted: handles, limit: MAX_HANDLES });
    }
    if socket.kind() == Kind::Stream && len == 0 {
        return Err(Error::Invalid("handles and credentials on a stream need at least one byte to go with"));
    }
    Ok(())
}

/// Checks whether a message of `len` bytes can ever be sent in the present state.
fn check_room(socket: &Socket, len: usize) -> Result<(), Error> {
    if socket.kind().is_connected_kind() {
        let peer = socket.peer().ok_or(Error::NotConnected)?;
        return peer.rcv.lock().cost(len, socket.kind() != Kind::Stream).map(drop);
    }
    let limit = socket.send_limit();
    if len > limit { Err(Error::MessageTooLong { len, limit }) } else { Ok(()) }
}

impl Attempt for SendMessage<'_> {
    type Output = usize;

    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<usize, Error> {
        let control = self.entry.as_ref().and_then(|entry| entry.control.as_deref());
        let sockets: Vec<_> = control.map(Control::sockets).into_iter().flatten().collect();
        let (done, wakes) = if sockets.is_empty() {
            self.deliver(waiting)
        } else {
            // The holder of the flight lock knows that a handle is in both the count and a buffer, or in
            // neither (rule 9).
            let mut flight = flight::lock();
            if flight.admit(sockets.len()).is_err() {
                drop(flight);
                flight::collect(); // rule 4 of the flight
                flight = flight::lock();
                flight.admit(sockets.len())?;
            }
            let (done, wakes) = self.deliver_flying(&mut flight, &sockets, waiting);
            drop(flight);
            (done, wakes)
        };
        wake(wakes);
        done
    }

    fn may_succeed(&self) -> bool {
        // Only an attempt looks up the destination of a name.
        self.to.is_some() || may_have_room(self.socket)
    }
}

impl SendMessage<'_> {
    fn deliver_flying(
        &mut self,
        flight: &mut Flight,
        sockets: &[std::ptr::NonNull<Pcb>],
        waiting: Option<&mut Waiting<'_>>,
    ) -> (Result<usize, Error>, Option<Wakes>) {
        let (done, wakes) = self.deliver(waiting);
        if done.is_ok() {
            // No thread can have taken them out meanwhile, since that needs the flight lock.
            flight.took_off(sockets);
        }
        (done, wakes)
    }
}

impl Drop for SendMessage<'_> {
    /// Returns unsent handles to their source.
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        if let (Some(handles), Some(control)) = (self.handles.as_deref_mut(), entry.control) {
            *handles = control.handles;
        }
    }
}

/// A message whose bytes come from a chain, and return to it if the message is not sent.
struct SendMessageChain<'a> {
    message: SendMessage<'a>,
    chain: &'a mut Chain,
}

impl<'a> SendMessageChain<'a> {
    fn new(socket: &'a Socket, chain: &'a mut Chain, attached: Attached<'a>) -> Result<Self, Error> {
        check(socket, chain.len(), &attached)?;
        let body = Body::Parcel(Parcel::from(std::mem::take(chain)));
        Ok(Self { message: SendMessage::with(socket, body, attached), chain })
    }
}

impl Attempt for SendMessageChain<'_> {
    type Output = usize;

    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<usize, Error> {
        self.message.attempt(waiting)
    }

    fn may_succeed(&self) -> bool {
        self.message.may_succeed()
    }
}

impl Drop for SendMessageChain<'_> {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.message.entry
            && let Ok(chain) = entry.body.open_in_place()
        {
            *self.chain = chain; // cannot fail: the body is not inline
        }
    }
}
