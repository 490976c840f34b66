//! Receiving: from the socket's own buffer, under its lock.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::flight::{self, Control, Flight, Handle};
use crate::name::Name;
use crate::pcb::Pcb;
use crate::rcv::{Entry, Message, Piece, Rcv, Taken};
use crate::socket::{Kind, Socket, wake};
use crate::wait::{self, Attempt, Event, Op, Waiting};
use manylane_buf::Chain;
use manylane_sync::MutexGuard;
use std::future::Future;
use std::time::Instant;

/// A received message, or a piece of a stream.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Received {
    /// Number of bytes in the buffer.
    pub len: usize,
    /// True if the message was longer than the buffer; the rest is lost.
    pub truncated: bool,
    /// True at the end of the stream: nothing was received, and nothing will be. (`len` is 0, as for an empty
    /// message.)
    pub end: bool,
    /// Name of a datagram's sender, if it has one.
    pub from: Option<Name>,
    /// Handles sent with the message. Dropping one closes it.
    pub handles: Vec<Handle>,
    /// Credentials of the sender, if it sent them.
    pub credentials: Option<Credentials>,
}

impl Received {
    fn set_control(&mut self, control: Option<Box<Control>>) {
        if let Some(control) = control {
            self.handles = control.handles;
            self.credentials = control.credentials;
        }
    }
}

impl Socket {
    /// Receives into `buffer` and returns the number of bytes. Of a stream it receives the queued bytes, at
    /// least one; of messages one, whose rest is lost if it does not fit. Waits for data, at most for the
    /// receive timeout. 0 means the end, or an empty message. Closes handles that come along;
    /// [`recv_message`](Self::recv_message) returns them.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; [`Error::NotConnected`] on a stream or seqpacket socket that
    /// was never connected; [`Error::ConnectionReset`] if the other one of two datagram sockets was closed,
    /// or the peer [aborted](Self::abort).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn recv(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        match self.take_now(buffer) {
            Some(n) => Ok(n),
            None => self.recv_slowly(buffer),
        }
    }

    /// The data path: takes one lock, that of the own buffer. `None`: did nothing.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn take_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let pcb = self.pcb();
        let mut guard = pcb.rcv.lock();
        let rcv = &mut *guard;
        let n = if pcb.kind == Kind::Stream { rcv.take_staged(buffer)? } else { rcv.take_inline(buffer)? };
        let wakes = rcv.writers_to_wake();
        drop(guard);
        wake(wakes);
        Some(n)
    }

    #[inline(never)]
    fn recv_slowly(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        wait::block(RecvBytes::new(self, buffer), self.recv_block_until()).map(closing_handles)
    }

    /// Receives as [`recv`](Self::recv), but waits until `deadline`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_until(&self, buffer: &mut [u8], deadline: Instant) -> Result<usize, Error> {
        wait::block(RecvBytes::new(self, buffer), self.block_until(deadline)).map(closing_handles)
    }

    /// Receives as [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::WouldBlock`] if there is nothing to receive.
    #[inline]
    pub fn try_recv(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        match self.take_now(buffer) {
            Some(n) => Ok(n),
            None => wait::now(RecvBytes::new(self, buffer)).map(closing_handles),
        }
    }

    /// Receives as [`recv`](Self::recv), for any executor and without a timeout.
    pub fn recv_async<'a>(&'a self, buffer: &'a mut [u8]) -> impl Future<Output = Result<usize, Error>> + 'a {
        let op = Op::new(RecvBytes::new(self, buffer));
        async move { op.await.map(closing_handles) }
    }

    /// Receives as [`recv`](Self::recv), with handles, credentials and the sender's name.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_message(&self, buffer: &mut [u8]) -> Result<Received, Error> {
        wait::block(RecvBytes::new(self, buffer), self.recv_block_until())
    }

    /// Receives as [`recv_message`](Self::recv_message), without waiting.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::WouldBlock`] if there is nothing to receive.
    pub fn try_recv_message(&self, buffer: &mut [u8]) -> Result<Received, Error> {
        wait::now(RecvBytes::new(self, buffer))
    }

    /// Receives by reference (R-A7): of a stream all queued data, up to `max` bytes and 32 pieces, at least
    /// one byte; of messages one. The chain is empty at the end. Closes handles that come along.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::MessageTooLong`] for a message of more than `max` bytes, which stays
    /// queued.
    pub fn recv_chain(&self, max: usize) -> Result<Chain, Error> {
        let mut receive = RecvChain { socket: self, max };
        if self.kind() != Kind::Stream || max == 0 {
            return wait::block(receive, self.recv_block_until());
        }
        let (backoff, until) = (&self.pcb().backoff, self.recv_block_until());
        if !until.spin.is_zero() {
            backoff.wait();
        }
        match receive.attempt(None) {
            Err(Error::WouldBlock) => wait::block_slowly(receive, until),
            done => done,
        }
    }

    /// Receives as [`recv_chain`](Self::recv_chain), without waiting.
    ///
    /// # Errors
    /// As [`recv_chain`](Self::recv_chain); [`Error::WouldBlock`] if there is nothing to receive.
    pub fn try_recv_chain(&self, max: usize) -> Result<Chain, Error> {
        wait::now(RecvChain { socket: self, max })
    }

    /// Receives as [`recv_chain`](Self::recv_chain), for any executor and without a timeout.
    pub fn recv_chain_async(&self, max: usize) -> impl Future<Output = Result<Chain, Error>> {
        Op::new(RecvChain { socket: self, max })
    }
}

/// Returns the length, and closes the handles that came along.
fn closing_handles(received: Received) -> usize {
    if !received.handles.is_empty() {
        flight::discard(received.handles);
    }
    received.len
}

/// Returns an error if the socket can never receive.
fn check(pcb: &Pcb) -> Result<(), Error> {
    if pcb.kind.is_connected_kind() && pcb.conn().is_none() {
        return Err(Error::NotConnected);
    }
    Ok(())
}

/// Calls `take` on the own buffer, with the flight lock if the caller holds it. If there is nothing to
/// receive, registers the waiter, if the caller may wait.
fn from_buffer<T>(
    pcb: &Pcb,
    waiting: Option<&mut Waiting<'_>>,
    flight: Option<MutexGuard<'static, Flight>>,
    take: impl FnOnce(&mut Rcv, Option<&mut Flight>) -> Result<T, Error>,
) -> Result<T, Error> {
    from_locked(pcb, pcb.rcv.lock(), waiting, flight, take)
}

/// As [`from_buffer`], with the buffer locked.
fn from_locked<T>(
    pcb: &Pcb,
    mut guard: MutexGuard<'_, Rcv>,
    waiting: Option<&mut Waiting<'_>>,
    mut flight: Option<MutexGuard<'static, Flight>>,
    take: impl FnOnce(&mut Rcv, Option<&mut Flight>) -> Result<T, Error>,
) -> Result<T, Error> {
    let rcv = &mut *guard;
    let taken = take(rcv, flight.as_deref_mut());
    let mut wakes = None;
    match &taken {
        Ok(_) => wakes = rcv.writers_to_wake(),
        Err(Error::WouldBlock) => {
            rcv.rest();
            if let Some(waiting) = waiting {
                waiting.enter(pcb, Event::Data, &mut rcv.readers);
            }
        }
        Err(_) => {}
    }
    drop(guard);
    drop(flight);
    wake(wakes);
    taken
}

struct RecvBytes<'a> {
    socket: &'a Socket,
    buffer: &'a mut [u8],
}

impl<'a> RecvBytes<'a> {
    fn new(socket: &'a Socket, buffer: &'a mut [u8]) -> Self {
        Self { socket, buffer }
    }

    fn stream(&mut self, mut waiting: Option<&mut Waiting<'_>>) -> Result<Received, Error> {
        if self.buffer.is_empty() {
            return Ok(Received::default());
        }
        let pcb = self.socket.pcb();
        let buffer = &mut *self.buffer;
        let mut piece =
            from_buffer(pcb, waiting.as_deref_mut(), None, |rcv, _| rcv.take_bytes(buffer, false))?;
        if piece.has_handles_ahead() {
            // Rule 9. The buffer may have changed, so this examines all of it again.
            piece = from_buffer(pcb, waiting, Some(flight::lock()), |rcv, flight| {
                let piece = rcv.take_bytes(buffer, true)?;
                landed(flight, piece.control.as_deref());
                Ok(piece)
            })?;
        }
        let Piece { copied, parcel, behind, control } = piece;
        let len = copied + parcel.map_or(0, |parcel| parcel.copy_to(&mut buffer[copied..])) + behind;
        let mut received = Received { len, end: len == 0, ..Received::default() };
        received.set_control(control);
        Ok(received)
    }

    fn message(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<Received, Error> {
        let Some(entry) = take_message(self.socket.pcb(), waiting, |_| Ok(()))? else {
            return Ok(Received { end: true, ..Received::default() });
        };
        let Entry { body, control, from } = entry;
        let whole = body.len();
        let len = body.copy_to(self.buffer);
        let mut received = Received { len, truncated: len < whole, from, ..Received::default() };
        received.set_control(control);
        Ok(received)
    }
}

fn landed(flight: Option<&mut Flight>, control: Option<&Control>) {
    if let (Some(flight), Some(control)) = (flight, control) {
        flight.landed(control);
    }
}

/// Takes one message, if `prepare` succeeds.
fn take_message(
    pcb: &Pcb,
    mut waiting: Option<&mut Waiting<'_>>,
    prepare: impl Fn(&mut Rcv) -> Result<(), Error>,
) -> Result<Option<Entry>, Error> {
    let taken = from_buffer(pcb, waiting.as_deref_mut(), None, |rcv, _| {
        prepare(rcv)?;
        rcv.take_message(false)
    })?;
    match taken {
        None => Ok(None),
        Some(Message::Entry(entry)) => Ok(Some(entry)),
        // Rule 9. The buffer may have changed, so this examines all of it again.
        Some(Message::HandlesAhead) => from_buffer(pcb, waiting, Some(flight::lock()), |rcv, flight| {
            prepare(rcv)?;
            match rcv.take_message(true)? {
                Some(Message::Entry(entry)) => {
                    landed(flight, entry.control.as_deref());
                    Ok(Some(entry))
                }
                Some(Message::HandlesAhead) | None => Ok(None), /* the former cannot be: the flight lock is
                                                                 * held */
            }
        }),
    }
}

impl Attempt for RecvBytes<'_> {
    type Output = Received;

    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<Received, Error> {
        check(self.socket.pcb())?;
        match self.socket.kind() {
            Kind::Stream => self.stream(waiting),
            Kind::Datagram | Kind::SeqPacket => self.message(waiting),
        }
    }

    fn may_succeed(&self) -> bool {
        self.socket.pcb().rcv.peek(Rcv::may_be_received)
    }

    /// Takes the bytes of a stream under the lock of the check. A thread that holds the lock is most likely
    /// about to leave data: waits for it.
    fn glance(&mut self) -> Option<Result<Received, Error>> {
        let pcb = self.socket.pcb();
        if pcb.kind == Kind::Stream {
            let mut rcv = pcb.rcv.lock();
            if let Some(len) = rcv.take_staged(self.buffer) {
                let wakes = rcv.writers_to_wake();
                drop(rcv);
                wake(wakes);
                return Some(Ok(Received { len, ..Received::default() }));
            }
            if !rcv.may_be_received() {
                return None;
            }
        } else if !self.may_succeed() {
            return None;
        }
        match self.attempt(None) {
            Err(Error::WouldBlock) => None,
            done => Some(done),
        }
    }
}

struct RecvChain<'a> {
    socket: &'a Socket,
    max: usize,
}

impl RecvChain<'_> {
    fn stream(&self, mut waiting: Option<&mut Waiting<'_>>) -> Result<Chain, Error> {
        let pcb = self.socket.pcb();
        let mut chain = Chain::new();
        if self.max == 0 {
            return Ok(chain);
        }
        loop {
            let mut taken = Taken::new();
            let mut control_ahead = false;
            let (guard, met_others) = pcb.rcv.lock_noting_others();
            let mut found = None;
            let done = from_locked(pcb, guard, waiting.as_deref_mut(), None, |rcv, _| {
                found = Some(rcv.found());
                control_ahead = rcv.front_has_control();
                if control_ahead { Ok(0) } else { rcv.take_pieces(self.max, &mut taken) }
            });
            found.into_iter().for_each(|found| pcb.backoff.learn(found, met_others));
            done?;
            if !control_ahead {
                let opened = taken.open_into(&mut chain);
                if opened.is_err() {
                    let mut rcv = pcb.rcv.lock();
                    rcv.put_back(taken); // nothing is lost for lack of memory
                    drop(rcv);
                }
                return if chain.is_empty() { opened.map(|()| chain) } else { Ok(chain) };
            }
            strip_control(pcb);
        }
    }

    fn message(&self, waiting: Option<&mut Waiting<'_>>) -> Result<Chain, Error> {
        let max = self.max;
        let entry = take_message(self.socket.pcb(), waiting, |rcv| match rcv.front_len() {
            Some(len) if len > max => Err(Error::MessageTooLong { len, limit: max }),
            _ => rcv.prepare_front(),
        })?;
        let Some(Entry { mut body, control, .. }) = entry else { return Ok(Chain::new()) };
        if let Some(control) = control {
            flight::discard(control.handles);
        }
        body.open_in_place() // cannot fail: `prepare_front` converted it
    }
}

/// Closes the handles of the first entry, whose bytes stay.
fn strip_control(pcb: &Pcb) {
    let mut flight = flight::lock();
    let control = pcb.rcv.lock().take_front_control();
    landed(Some(&mut flight), control.as_deref());
    drop(flight);
    if let Some(control) = control {
        flight::discard(control.handles);
    }
}

impl Attempt for RecvChain<'_> {
    type Output = Chain;

    /// Longer than the default, since a receive by reference waits for much data at once.
    const PAUSE: u32 = 16;

    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<Chain, Error> {
        check(self.socket.pcb())?;
        match self.socket.kind() {
            Kind::Stream => self.stream(waiting),
            Kind::Datagram | Kind::SeqPacket => self.message(waiting),
        }
    }

    fn may_succeed(&self) -> bool {
        self.socket.pcb().rcv.peek(Rcv::may_be_received)
    }
}

impl std::io::Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.recv(buffer)?)
    }
}

impl std::io::Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.send(bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
