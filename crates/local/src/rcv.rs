//! The buffer that others send into: what the buffer lock guards.
//!
//! # Rules
//! 1. What was sent first is received first: first the entries of `queue`, then the bytes of `stage`.
//! 2. `stage` is a cluster at the end of a *stream* that small sends are copied into, one behind the other: a byte costs a byte, and no
//!    segment of its own. What is sent by reference goes into an entry behind it.
//! 3. `charged` is what counts against the limit: bytes, and [`MESSAGE_COST`] for each message, so that empty messages do not queue
//!    without end. Writers wait when there is no room, and are woken when half of it is free: not for each byte.
//! 4. Once the socket does not receive any more (`closed`, `shut`), nothing is queued, and nothing gets in. Once the sender has `ended`,
//!    nothing more gets in either, and what is queued can still be received.

use crate::error::Error;
use crate::flight::Control;
use crate::name::Name;
use crate::wait::{Waiters, Wakes};
use manylane_buf::{Chain, Cluster, Parcel};
use std::collections::VecDeque;

/// What a message counts against the limit beside its bytes: about what it takes in memory.
pub const MESSAGE_COST: usize = 256;

/// Sends of up to so many bytes are copied into the stage under the lock: about 30 ns. Larger ones are copied before, into clusters.
pub(crate) const SMALL: usize = 1024;

/// Bytes of a message that need no cluster: they lie in the entry, in the room that a chain takes.
const INLINE: usize = 112;

/// Entries that one receive takes at most: they are moved out under the lock and opened after it.
const BATCH: usize = 16;

/// In this order, so that what each small send and receive of a stream needs lies together: in two lines, with the lock.
#[repr(C)]
pub(crate) struct Rcv {
    flags: u8,
    /// As spinners see it.
    hint: u8,
    /// Against the limit.
    charged: usize,
    /// The lower one of the two limits.
    limit: usize,
    stage: Option<Stage>,
    pub(crate) readers: Waiters,
    pub(crate) writers: Waiters,
    queue: VecDeque<Entry>,
    /// In the queue, that count [`MESSAGE_COST`] each.
    messages: usize,
    own_limit: usize,
    /// The sender's own limit, where there is one sender.
    sender_limit: usize,
}

/// What spinners wait for.
pub(crate) mod hint {
    /// There is something to receive.
    pub(crate) const DATA: u8 = 1;
    /// At least half of the buffer is free.
    pub(crate) const ROOM: u8 = 2;
    /// One side ended, or there is an error to be told.
    pub(crate) const END: u8 = 4;
}

/// The socket is closed.
const CLOSED: u8 = 1;
/// The socket shut its receiving half.
const SHUT: u8 = 2;
/// The sender closed, or shut its sending half.
const ENDED: u8 = 4;
/// The other one of two datagram sockets was closed; told once.
const RESET: u8 = 8;

/// Bytes of a stream that are being added to and taken from.
pub(crate) struct Stage {
    cluster: Cluster,
    read: usize,
}

impl Stage {
    fn unread(&self) -> &[u8] {
        &self.cluster.as_slice()[self.read..]
    }

    fn into_chain(self) -> Chain {
        let mut segment = self.cluster.into_segment();
        segment.trim_front(self.read).expect("what was read was there");
        Chain::from(segment)
    }

    /// Copies what fits into `bytes`; how much it was.
    #[inline]
    fn take(&mut self, bytes: &mut [u8]) -> usize {
        let unread = self.unread();
        let n = unread.len().min(bytes.len());
        bytes[..n].copy_from_slice(&unread[..n]);
        self.read += n;
        n
    }
}

pub(crate) enum Body {
    Inline { len: u8, bytes: [u8; INLINE] },
    Stage(Stage),
    Parcel(Parcel),
}

impl Body {
    /// A copy of `bytes` for a message.
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() <= INLINE {
            return Ok(Self::inline(bytes));
        }
        let mut chain = Chain::new();
        chain.append(bytes)?;
        Ok(Self::Parcel(chain.into()))
    }

    /// There are at most [`INLINE`].
    #[inline]
    fn inline(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline { len: bytes.len() as u8, bytes: inline }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Stage(stage) => stage.unread().len(),
            Self::Parcel(parcel) => parcel.len(),
        }
    }

    /// No bytes.
    const EMPTY: Self = Self::Inline { len: 0, bytes: [0; INLINE] };

    /// The bytes as a chain of the calling lane, which leaves none here. On an error, for lack of memory, they stay.
    pub(crate) fn open_in_place(&mut self) -> Result<Chain, Error> {
        if let Self::Inline { len, bytes } = self {
            let mut chain = Chain::new();
            chain.append(&bytes[..usize::from(*len)])?;
            *len = 0;
            return Ok(chain);
        }
        Ok(match std::mem::replace(self, Self::EMPTY) {
            Self::Inline { .. } => Chain::new(),
            Self::Stage(stage) => stage.into_chain(),
            Self::Parcel(parcel) => parcel.open(),
        })
    }

    /// Copies the first bytes as far as there is room; how many it were.
    pub(crate) fn copy_to(self, bytes: &mut [u8]) -> usize {
        match self {
            Self::Inline { len, bytes: from } => {
                let n = usize::from(len).min(bytes.len());
                bytes[..n].copy_from_slice(&from[..n]);
                n
            }
            Self::Stage(mut stage) => stage.take(bytes),
            Self::Parcel(parcel) => copy_chain(&parcel.open(), bytes),
        }
    }
}

/// Copies the first bytes of `chain` as far as there is room; how many it were.
pub(crate) fn copy_chain(chain: &Chain, bytes: &mut [u8]) -> usize {
    let mut done = 0;
    for segment in chain.segments() {
        let n = segment.len().min(bytes.len() - done);
        bytes[done..done + n].copy_from_slice(&segment[..n]);
        done += n;
    }
    done
}

/// Bytes of the first segments of `chain` that fit whole into so many.
fn whole_segments(chain: &Chain, room: usize) -> usize {
    let mut fit = 0;
    for segment in chain.segments() {
        if segment.len() > room - fit {
            break;
        }
        fit += segment.len();
    }
    fit
}

/// A message, or a piece of a stream.
pub(crate) struct Entry {
    pub(crate) body: Body,
    /// Handles and credentials that came with it.
    pub(crate) control: Option<Box<Control>>,
    /// The sender's name, for datagrams.
    pub(crate) from: Option<Name>,
}

impl Entry {
    fn plain(body: Body) -> Self {
        Self { body, control: None, from: None }
    }

    fn has_handles(&self) -> bool {
        self.control.as_ref().is_some_and(|control| !control.handles.is_empty())
    }
}

/// Pieces of a stream that were taken out, to be opened without the lock.
pub(crate) struct Taken {
    bodies: [Option<Body>; BATCH],
    count: usize,
}

impl Taken {
    pub(crate) fn new() -> Self {
        Self { bodies: [const { None }; BATCH], count: 0 }
    }

    fn push(&mut self, body: Body) {
        self.bodies[self.count] = Some(body);
        self.count += 1;
    }

    fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// Opens all of them, in order, behind `chain`. After an error those that are left are still here.
    pub(crate) fn open_into(&mut self, chain: &mut Chain) -> Result<(), Error> {
        for place in &mut self.bodies[..self.count] {
            let Some(mut body) = place.take() else { continue };
            match body.open_in_place() {
                Ok(mut opened) => {
                    if let Err(error) = chain.append_chain(&mut opened) {
                        *place = Some(Body::Parcel(opened.into()));
                        return Err(error.into());
                    }
                }
                Err(error) => {
                    *place = Some(body);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Everything that was queued, to be dropped without the lock.
#[derive(Default)]
pub(crate) struct Leftovers {
    pub(crate) queue: VecDeque<Entry>,
    _stage: Option<Stage>,
}

impl Rcv {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            flags: 0,
            hint: hint::ROOM,
            charged: 0,
            limit,
            stage: None,
            readers: Waiters::new(),
            writers: Waiters::new(),
            queue: VecDeque::new(),
            messages: 0,
            own_limit: limit,
            sender_limit: usize::MAX,
        }
    }

    /// Bytes queued.
    pub(crate) fn len(&self) -> usize {
        self.charged - self.messages * MESSAGE_COST
    }

    /// What spinners are to see from now on, if that has changed.
    #[inline]
    pub(crate) fn changed_hint(&mut self) -> Option<u8> {
        let data = u8::from(self.charged > 0) * hint::DATA;
        let room = u8::from(self.charged <= self.limit / 2) * hint::ROOM;
        let end = u8::from(self.flags != 0) * hint::END;
        let now = data | room | end;
        let changed = now != self.hint;
        self.hint = now;
        changed.then_some(now)
    }

    pub(crate) fn own_limit(&self) -> usize {
        self.own_limit
    }

    pub(crate) fn set_limit(&mut self, limit: usize) -> Option<Wakes> {
        self.own_limit = limit;
        self.limit = limit.min(self.sender_limit);
        self.writers.take()
    }

    pub(crate) fn set_sender_limit(&mut self, limit: usize) -> Option<Wakes> {
        self.sender_limit = limit;
        self.limit = limit.min(self.own_limit);
        self.writers.take()
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.charged)
    }

    /// Why nothing may be sent here any more.
    fn refusal(&self) -> Result<(), Error> {
        match self.flags {
            0 | RESET => Ok(()),
            _ => Err(Error::BrokenPipe),
        }
    }

    /// Whether the socket is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.flags & CLOSED != 0
    }

    /// The fast path of a stream: copies all of `bytes` behind what is there. False: something is unusual, and nothing was done.
    #[inline]
    pub(crate) fn put_all(&mut self, bytes: &[u8]) -> bool {
        let charged = self.charged + bytes.len();
        if self.flags != 0 || charged > self.limit {
            return false;
        }
        let Some(stage) = &mut self.stage else { return false };
        if stage.cluster.spare_len() < bytes.len() {
            return false;
        }
        stage.cluster.put(bytes);
        self.charged = charged;
        true
    }

    /// The fast path of packets: queues `bytes` as a message. False: something is unusual, and nothing was done.
    #[inline]
    pub(crate) fn put_inline(&mut self, bytes: &[u8]) -> bool {
        let charged = self.charged + bytes.len() + MESSAGE_COST;
        if self.flags != 0 || charged > self.limit || bytes.len() > INLINE {
            return false;
        }
        self.queue.push_back(Entry::plain(Body::inline(bytes)));
        self.charged = charged;
        self.messages += 1;
        true
    }

    /// The fast path of packets: copies the first message into `bytes`. `None`: something is unusual, and nothing was done.
    #[inline]
    pub(crate) fn take_inline(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let Entry { body: Body::Inline { len, bytes: from }, control: None, .. } = self.queue.front()? else {
            return None;
        };
        let (len, n) = (usize::from(*len), usize::from(*len).min(bytes.len()));
        bytes[..n].copy_from_slice(&from[..n]);
        self.queue.pop_front();
        self.charged -= len + MESSAGE_COST;
        self.messages -= 1;
        Some(n)
    }

    /// Copies as many of `bytes`, at most [`SMALL`], behind a stream as there is room for; how many it were, at least one.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.refusal()?;
        let n = bytes.len().min(self.room());
        if n == 0 {
            return Err(Error::WouldBlock);
        }
        let taken = self.stage.as_mut().map_or(0, |stage| stage.cluster.put(&bytes[..n]));
        self.charged += taken;
        if taken == n {
            return Ok(n);
        }
        match self.put_new(&bytes[taken..n]) {
            Ok(()) => Ok(n),
            Err(_) if taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Copies `bytes` into a new stage; the full one becomes an entry, or is dropped if all of it was read.
    #[cold]
    fn put_new(&mut self, bytes: &[u8]) -> Result<(), Error> {
        // A stage that fills up unread is one of a busy stream.
        let busy = self.stage.as_ref().is_some_and(|stage| !stage.unread().is_empty());
        let mut cluster = Cluster::alloc(if busy { manylane_buf::MAX_CLUSTER } else { 2 * SMALL })?;
        self.close_stage();
        cluster.put(bytes);
        self.stage = Some(Stage { cluster, read: 0 });
        self.charged += bytes.len();
        Ok(())
    }

    /// Makes what is unread in the stage an entry, so that something can be queued behind it.
    fn close_stage(&mut self) {
        if let Some(stage) = self.stage.take()
            && !stage.unread().is_empty()
        {
            self.queue.push_back(Entry::plain(Body::Stage(stage)));
        }
    }

    /// Puts as much of `chain` behind a stream as there is room for; how many bytes it were, at least one. They are taken out of `chain`
    /// if it is more than [`SMALL`], and else copied: then it is for the caller to trim it, without the lock.
    pub(crate) fn put_chain(&mut self, chain: &mut Chain) -> Result<usize, Error> {
        self.refusal()?;
        let room = self.room();
        if room == 0 {
            return Err(Error::WouldBlock);
        }
        let n = chain.len().min(room);
        if n <= SMALL {
            // Small pieces are cheaper copied than carried, and hold no cluster of their own.
            let mut done = 0;
            for segment in chain.segments() {
                if done == n {
                    break;
                }
                let mut rest = &segment[..segment.len().min(n - done)];
                while !rest.is_empty() {
                    match self.put(rest) {
                        Ok(put) => {
                            rest = &rest[put..];
                            done += put;
                        }
                        Err(_) if done > 0 => return Ok(done),
                        Err(error) => return Err(error),
                    }
                }
            }
            return Ok(n);
        }
        let piece = if n == chain.len() { std::mem::take(chain) } else { chain.split_to(n)? };
        self.close_stage();
        self.queue.push_back(Entry::plain(Body::Parcel(piece.into())));
        self.charged += n;
        Ok(n)
    }

    /// What an entry of `len` bytes counts against the limit, unless it can never be queued here.
    pub(crate) fn cost(&self, len: usize, is_message: bool) -> Result<usize, Error> {
        self.refusal()?;
        let extra = if is_message { MESSAGE_COST } else { 0 };
        if len + extra > self.limit {
            return Err(Error::MessageTooLong { len, limit: self.limit.saturating_sub(extra) });
        }
        Ok(len + extra)
    }

    /// Queues `entry`: a message, which counts as one, or bytes of a stream with handles, which do not. On an error it stays where it is.
    pub(crate) fn put_entry(&mut self, entry: &mut Option<Entry>, is_message: bool) -> Result<usize, Error> {
        let Some(len) = entry.as_ref().map(|entry| entry.body.len()) else { return Ok(0) };
        let cost = self.cost(len, is_message)?;
        if cost > self.room() {
            return Err(Error::WouldBlock);
        }
        self.close_stage();
        self.queue.extend(entry.take());
        self.charged += cost;
        self.messages += usize::from(is_message);
        Ok(len)
    }

    /// The fast path of a stream: copies what there is into `bytes`, as far as it fits. `None`: something is unusual, and nothing was done.
    #[inline]
    pub(crate) fn take_staged(&mut self, bytes: &mut [u8]) -> Option<usize> {
        if !self.queue.is_empty() {
            return None;
        }
        let n = self.stage.as_mut()?.take(bytes);
        if n == 0 {
            return None;
        }
        self.charged -= n;
        Some(n)
    }

    /// Why there is nothing to be received: an end, an error, or only for now.
    fn nothing(&mut self) -> Result<(), Error> {
        if self.flags & RESET != 0 {
            self.flags &= !RESET;
            return Err(Error::ConnectionReset);
        }
        if self.flags == 0 { Err(Error::WouldBlock) } else { Ok(()) }
    }

    /// An idle socket holds no memory: gives back the room for small sends. For a receiver that found nothing and is going to wait.
    pub(crate) fn rest(&mut self) {
        self.stage = None;
    }

    /// Takes bytes of a stream into `bytes`, which is not empty; `Ok` with 0 bytes at the end. The bytes of one parcel come back as they
    /// are, to be copied behind the others without the lock. Control of the first entry comes along; one receive never takes bytes of two
    /// sends of which the later has handles.
    pub(crate) fn take_bytes(&mut self, bytes: &mut [u8], flight: bool) -> Result<Piece, Error> {
        let mut piece = Piece { copied: 0, parcel: None, control: None };
        while piece.copied < bytes.len() && piece.parcel.is_none() {
            let Some(front) = self.queue.front_mut() else { break };
            if front.control.is_some() {
                if piece.copied > 0 {
                    break;
                }
                if front.has_handles() && !flight {
                    return Ok(piece.with_handles_ahead());
                }
                piece.control = front.control.take();
            }
            let room = &mut bytes[piece.copied..];
            let whole = front.body.len() <= room.len();
            match &mut front.body {
                Body::Stage(stage) => piece.copied += stage.take(room),
                Body::Inline { len, bytes } => {
                    let n = usize::from(*len).min(room.len());
                    room[..n].copy_from_slice(&bytes[..n]);
                    bytes.copy_within(n..usize::from(*len), 0);
                    *len -= n as u8;
                    piece.copied += n;
                }
                body if whole => piece.parcel = Some(std::mem::replace(body, Body::EMPTY)),
                body => {
                    let mut chain = body.open_in_place()?; // cannot fail: it is no inline body
                    let fit = whole_segments(&chain, room.len());
                    if fit == 0 {
                        piece.copied += copy_chain(&chain, room);
                        chain.trim_front(room.len()).expect("there are more bytes than room");
                        *body = Body::Parcel(chain.into());
                        break;
                    }
                    // They are freed without the lock, and for that go out as they are.
                    let part = chain.split_to(fit);
                    *body = Body::Parcel(chain.into());
                    match part {
                        Ok(part) => piece.parcel = Some(Body::Parcel(part.into())),
                        Err(_) if piece.copied > 0 => {} // no memory to cut: it stays
                        Err(error) => {
                            front.control = piece.control.take();
                            return Err(error.into());
                        }
                    }
                    break;
                }
            }
            if whole {
                self.queue.pop_front();
            }
        }
        if piece.copied < bytes.len()
            && piece.parcel.is_none()
            && self.queue.is_empty()
            && let Some(stage) = &mut self.stage
        {
            piece.copied += stage.take(&mut bytes[piece.copied..]);
        }
        let n = piece.len();
        self.charged -= n;
        if n == 0 && piece.control.is_none() {
            self.nothing()?;
        }
        Ok(piece)
    }

    /// Takes up to `max` bytes of a stream, by reference, into `taken`: at most [`BATCH`] pieces at a time. Control as in
    /// [`take_bytes`](Self::take_bytes). How many bytes; 0 at the end.
    pub(crate) fn take_pieces(&mut self, max: usize, taken: &mut Taken) -> Result<usize, Error> {
        let mut n = 0;
        while n < max && !taken.is_full() {
            let Some(front) = self.queue.front() else { break };
            if front.control.is_some() {
                break;
            }
            let len = front.body.len();
            if len > max - n {
                break;
            }
            let Some(front) = self.queue.pop_front() else { break };
            taken.push(front.body);
            n += len;
        }
        if n < max && !taken.is_full() {
            match self.take_part(max - n, taken) {
                Ok(more) => n += more,
                Err(_) if n > 0 => {} // no memory to cut the next one: it stays
                Err(error) => return Err(error),
            }
        }
        self.charged -= n;
        if n == 0 {
            self.nothing()?;
        }
        Ok(n)
    }

    /// Of the first entry, of which there is more than `max`, or of the stage.
    fn take_part(&mut self, max: usize, taken: &mut Taken) -> Result<usize, Error> {
        if let Some(front) = self.queue.front_mut() {
            if front.control.is_some() {
                return Ok(0);
            }
            let mut chain = front.body.open_in_place()?;
            let part = chain.split_to(max);
            front.body = Body::Parcel(chain.into());
            taken.push(Body::Parcel(part?.into()));
            return Ok(max);
        }
        let Some(stage) = self.stage.take() else { return Ok(0) };
        let len = stage.unread().len();
        if len == 0 {
            self.stage = Some(stage);
            return Ok(0);
        }
        if len <= max {
            taken.push(Body::Stage(stage));
            return Ok(len);
        }
        self.stage = Some(stage);
        self.close_stage();
        self.take_part(max, taken)
    }

    /// Whether the first entry came with something, which a plain receive of a stream by reference has to take first.
    pub(crate) fn front_has_control(&self) -> bool {
        self.queue.front().is_some_and(|entry| entry.control.is_some())
    }

    /// Takes what came with the first entry.
    pub(crate) fn take_front_control(&mut self) -> Option<Box<Control>> {
        self.queue.front_mut()?.control.take()
    }

    /// Puts what could not be opened back where it was.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        for body in taken.bodies.into_iter().flatten().rev() {
            self.charged += body.len();
            self.queue.push_front(Entry::plain(body));
        }
    }

    /// Has the first message in a form that can be opened without memory.
    pub(crate) fn prepare_front(&mut self) -> Result<(), Error> {
        if let Some(front) = self.queue.front_mut()
            && let Body::Inline { len: 1.., .. } = front.body
        {
            front.body = Body::Parcel(front.body.open_in_place()?.into());
        }
        Ok(())
    }

    /// Bytes of the first entry.
    pub(crate) fn front_len(&self) -> Option<usize> {
        self.queue.front().map(|entry| entry.body.len())
    }

    /// Takes the first message; `Ok(None)` at the end.
    pub(crate) fn take_message(&mut self, flight: bool) -> Result<Option<Message>, Error> {
        if self.queue.front().is_some_and(Entry::has_handles) && !flight {
            return Ok(Some(Message::HandlesAhead));
        }
        let Some(entry) = self.queue.pop_front() else {
            self.nothing()?;
            return Ok(None);
        };
        self.charged -= entry.body.len() + MESSAGE_COST;
        self.messages -= 1;
        Ok(Some(Message::Entry(entry)))
    }

    /// Writers, if there is room enough by now that waking them pays (rule 3).
    #[inline]
    pub(crate) fn writers_to_wake(&mut self) -> Option<Wakes> {
        if self.writers.is_empty() || self.charged > self.limit / 2 {
            return None;
        }
        self.writers.take()
    }

    /// The socket is closed: rule 4. Whoever waits is to be woken; what is queued is taken with [`empty`](Self::empty).
    pub(crate) fn close(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= CLOSED;
        [self.readers.take(), self.writers.take()]
    }

    /// The socket receives no more: as [`close`](Self::close), but it is still there.
    pub(crate) fn shut(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= SHUT;
        [self.readers.take(), self.writers.take()]
    }

    /// The sender sends no more.
    pub(crate) fn end(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= ENDED;
        [self.readers.take(), self.writers.take()]
    }

    /// The other one of two datagram sockets is gone.
    pub(crate) fn reset(&mut self) -> Option<Wakes> {
        self.flags |= RESET;
        self.readers.take()
    }

    /// Whether handles are queued, which may be taken out under the flight lock only.
    pub(crate) fn has_handles(&self) -> bool {
        self.queue.iter().any(Entry::has_handles)
    }

    /// Every entry with handles, for the collector.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Control> {
        self.queue.iter().filter_map(|entry| entry.control.as_deref())
    }

    /// Takes the handles of all entries, for the collector.
    pub(crate) fn take_controls(&mut self) -> impl Iterator<Item = Box<Control>> {
        self.queue.iter_mut().filter_map(|entry| entry.control.take())
    }

    /// Takes everything out. The caller has the flight lock if [`has_handles`](Self::has_handles).
    pub(crate) fn empty(&mut self) -> Leftovers {
        self.charged = 0;
        self.messages = 0;
        Leftovers { queue: std::mem::take(&mut self.queue), _stage: self.stage.take() }
    }
}

/// What [`Rcv::take_bytes`] found.
pub(crate) struct Piece {
    /// Bytes copied.
    pub(crate) copied: usize,
    /// To be copied behind those; it fits.
    pub(crate) parcel: Option<Body>,
    pub(crate) control: Option<Box<Control>>,
}

impl Piece {
    /// Nothing was taken: the first entry has handles, and the flight lock is needed.
    fn with_handles_ahead(mut self) -> Self {
        self.copied = usize::MAX;
        self
    }

    pub(crate) fn has_handles_ahead(&self) -> bool {
        self.copied == usize::MAX
    }

    fn len(&self) -> usize {
        self.copied + self.parcel.as_ref().map_or(0, Body::len)
    }
}

/// What [`Rcv::take_message`] found.
pub(crate) enum Message {
    Entry(Entry),
    /// Nothing was taken: the first message has handles, and the flight lock is needed.
    HandlesAhead,
}
