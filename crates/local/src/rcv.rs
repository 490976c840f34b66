//! The receive buffer of a socket: the state under the buffer lock.
//!
//! # Rules
//! 1. Data is received in the order of the sends: first the entries of `queue`, then those of `pieces`, then
//!    the bytes of `room`.
//! 2. `room` is the end of a *stream*. Small sends are copied into it, one behind the other, without a
//!    segment for each. At first it is a few bytes beside the lock, so that a tiny send moves one line; when
//!    those are full, it is a cluster. Data sent by reference goes into `pieces`, which holds
//!    only segments, so that few lines move. Data with handles or credentials goes into `queue`, after the
//!    current contents of `pieces`.
//! 3. `charged` counts against the limit: bytes, and [`MESSAGE_COST`] for each message, so that empty
//!    messages cannot queue without end. A writer waits when there is no room. It is woken when half of the
//!    limit is free, not for each byte.
//! 4. After the socket has stopped receiving (`closed`, `shut`), nothing is queued and nothing gets in. After
//!    the sender has `ended`, nothing more gets in either, but the queued data can still be received.

use crate::error::Error;
use crate::flight::Control;
use crate::name::Name;
use crate::wait::{Waiters, Wakes};
use manylane_buf::{CLUSTER_SIZES, Chain, Cluster, MAX_CLUSTER, PackedSegment, Parcel, PushError, Segment};
use std::collections::VecDeque;

/// Cost of a message against the limit beside its bytes: about its memory.
pub const MESSAGE_COST: usize = 256;

/// Sends of up to this many bytes are copied into the room under the lock: about 30 ns. Larger ones are
/// copied before, into clusters.
pub(crate) const SMALL: usize = 1024;

/// Bytes of a message that need no cluster: they fit into the entry, into the space of a chain.
const INLINE: usize = 112;

/// Maximum number of entries of one receive: they are moved out under the lock and opened after it.
const BATCH: usize = 32;

/// Maximum number of segments of a chain that are queued one by one.
const FEW: usize = 4;

/// Field order matters: the fields that each small send and receive of a stream changes follow the lock's
/// word in the same line.
#[repr(C)]
pub(crate) struct Rcv {
    flags: u8,
    /// Bytes that count against the limit.
    charged: usize,
    room: Room,
    // The line ends here; the fields below are read, or change only in rarer cases.
    /// The lower one of `own_limit` and `sender_limit`.
    limit: usize,
    pub(crate) readers: Waiters,
    pub(crate) writers: Waiters,
    pieces: VecDeque<PackedSegment>,
    queue: VecDeque<Entry>,
    /// Number of entries in the queue that cost [`MESSAGE_COST`] each.
    messages: usize,
    own_limit: usize,
    /// Limit of the sender, if there is only one sender.
    sender_limit: usize,
}

#[cfg(not(any(loom, manylane_sim)))]
const _: () =
    assert!(std::mem::offset_of!(Rcv, limit) <= 64 - size_of::<usize>(), "one line, with the lock's word");

/// The socket is closed.
const CLOSED: u8 = 1;
/// The socket shut its receiving half.
const SHUT: u8 = 2;
/// The sender closed, or shut its sending half.
const ENDED: u8 = 4;
/// The other socket of two connected datagram sockets was closed, or the sender has
/// [aborted](crate::Socket::abort); reported once.
const RESET: u8 = 8;

/// Bytes of a stream to which sends append, and from which receives take.
enum Room {
    /// Few or no bytes, beside the lock, in the space of a stage.
    Tiny(Tiny),
    Stage(Stage),
}

/// A few bytes inside the buffer.
struct Tiny {
    read: u8,
    end: u8,
    bytes: [u8; TINY],
}

/// Capacity of a tiny room: the size of a stage.
const TINY: usize = 30;

#[cfg(not(any(loom, manylane_sim)))]
const _: () = assert!(size_of::<Room>() == size_of::<Stage>(), "a tiny room takes no place of its own");

impl Tiny {
    const EMPTY: Self = Self { read: 0, end: 0, bytes: [0; TINY] };

    fn unread(&self) -> &[u8] {
        &self.bytes[usize::from(self.read)..usize::from(self.end)]
    }

    /// Copies `bytes` behind the others, if all of them fit. Returns true if they do.
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> bool {
        let from = usize::from(self.end);
        let Some(room) = self.bytes.get_mut(from..from + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.end += bytes.len() as u8;
        true
    }

    /// Copies as many bytes as fit into `bytes`, and returns their number.
    #[inline]
    fn take(&mut self, bytes: &mut [u8]) -> usize {
        let unread = self.unread();
        let n = unread.len().min(bytes.len());
        bytes[..n].copy_from_slice(&unread[..n]);
        self.read += n as u8;
        if self.read == self.end {
            (self.read, self.end) = (0, 0);
        }
        n
    }
}

impl Room {
    const EMPTY: Self = Self::Tiny(Tiny::EMPTY);

    #[inline]
    fn unread(&self) -> &[u8] {
        match self {
            Self::Tiny(tiny) => tiny.unread(),
            Self::Stage(stage) => stage.unread(),
        }
    }

    /// Copies as many bytes as fit into `bytes`, and returns their number.
    #[inline]
    fn take(&mut self, bytes: &mut [u8]) -> usize {
        match self {
            Self::Tiny(tiny) => tiny.take(bytes),
            Self::Stage(stage) => stage.take(bytes),
        }
    }

    /// Copies `bytes` behind the others, if all of them fit. Returns true if they do.
    #[inline]
    fn put_all(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Tiny(tiny) => tiny.put(bytes),
            Self::Stage(stage) => {
                let fit = stage.cluster.spare_len() >= bytes.len();
                if fit {
                    stage.cluster.put(bytes);
                }
                fit
            }
        }
    }
}

/// Bytes at the front of a chain: how many, and what is done with them.
enum Front {
    Carried(usize),
    Copied(usize),
}

/// A cluster into which sends are copied.
pub(crate) struct Stage {
    cluster: Cluster,
    read: usize,
}

impl Stage {
    fn unread(&self) -> &[u8] {
        &self.cluster.as_slice()[self.read..]
    }

    fn into_segment(self) -> Segment {
        let mut segment = self.cluster.into_segment();
        segment.trim_front(self.read).expect("what was read was there");
        segment
    }

    /// True if the cluster is a large one and the unread bytes fit into a small one: they move there when
    /// other data is queued behind them.
    fn fits_small_cluster(&self) -> bool {
        self.cluster.memory() > MAX_CLUSTER && self.unread().len() <= CLUSTER_SIZES[0]
    }

    fn in_small_cluster(&self) -> Option<Segment> {
        // Without memory they stay.
        self.fits_small_cluster()
            .then(|| Cluster::with(self.unread()).ok().map(Cluster::into_segment))
            .flatten()
    }

    /// Returns the [excess](Segment::excess) of memory over twice the unread bytes, once other data is queued
    /// behind them.
    fn excess(&self) -> isize {
        let spared = if self.fits_small_cluster() { MAX_CLUSTER - CLUSTER_SIZES[0] } else { 0 };
        (self.cluster.memory() - spared) as isize - 2 * self.unread().len() as isize
    }

    /// Copies as many bytes as fit into `bytes`, and returns their number.
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
    Segment(PackedSegment),
    Parcel(Parcel),
}

impl Body {
    /// Makes a copy of `bytes` for a message.
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() <= INLINE {
            return Ok(Self::inline(bytes));
        }
        let mut chain = Chain::new();
        chain.append(bytes)?;
        Ok(Self::Parcel(chain.into()))
    }

    /// Makes an inline body of at most [`INLINE`] bytes.
    #[inline]
    fn inline(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline { len: bytes.len() as u8, bytes: inline }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Segment(segment) => segment.len(),
            Self::Parcel(parcel) => parcel.len(),
        }
    }

    /// A body of no bytes.
    const EMPTY: Self = Self::Inline { len: 0, bytes: [0; INLINE] };

    /// Moves the bytes into a chain of the calling lane. On an error, for lack of memory, they stay.
    pub(crate) fn open_in_place(&mut self) -> Result<Chain, Error> {
        if let Self::Inline { len, bytes } = self {
            let mut chain = Chain::new();
            chain.append(&bytes[..usize::from(*len)])?;
            *len = 0;
            return Ok(chain);
        }
        Ok(match std::mem::replace(self, Self::EMPTY) {
            Self::Inline { .. } => Chain::new(),
            Self::Segment(segment) => segment.open().into(),
            Self::Parcel(parcel) => parcel.open(),
        })
    }

    /// Copies the first bytes, as many as fit, and returns their number.
    pub(crate) fn copy_to(self, bytes: &mut [u8]) -> usize {
        match self {
            Self::Inline { len, bytes: from } => {
                let n = usize::from(len).min(bytes.len());
                bytes[..n].copy_from_slice(&from[..n]);
                n
            }
            Self::Segment(segment) => {
                let segment = segment.open();
                let n = segment.len().min(bytes.len());
                bytes[..n].copy_from_slice(&segment[..n]);
                n
            }
            Self::Parcel(parcel) => copy_chain(&parcel.open(), bytes),
        }
    }
}

/// Copies the first bytes of `chain`, as many as fit, and returns their number.
pub(crate) fn copy_chain(chain: &Chain, bytes: &mut [u8]) -> usize {
    let mut done = 0;
    for segment in chain.segments() {
        let n = segment.len().min(bytes.len() - done);
        bytes[done..done + n].copy_from_slice(&segment[..n]);
        done += n;
    }
    done
}

/// Returns the bytes of the first segments of `chain` that fit as a whole into `room` bytes.
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
    /// Name of a datagram's sender.
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

/// Pieces of a stream that were taken out under the lock, to be opened without it.
pub(crate) struct Taken {
    light: [Option<Light>; BATCH],
    count: usize,
    /// The piece behind those, if it is not light.
    last: Option<Body>,
}

/// A piece that takes few bytes to move.
enum Light {
    Segment(PackedSegment),
    Stage(Stage),
}

impl Light {
    fn open(self) -> Segment {
        match self {
            Self::Segment(segment) => segment.open(),
            Self::Stage(stage) => stage.into_segment(),
        }
    }
}

impl From<Light> for Body {
    fn from(piece: Light) -> Self {
        match piece {
            Light::Segment(segment) => Self::Segment(segment),
            Light::Stage(stage) => Self::Segment(stage.into_segment().into()),
        }
    }
}

impl Taken {
    pub(crate) fn new() -> Self {
        Self { light: [const { None }; BATCH], count: 0, last: None }
    }

    #[inline]
    fn push(&mut self, body: Body) {
        match body {
            Body::Segment(segment) => self.push_light(Light::Segment(segment)),
            body => self.last = Some(body),
        }
    }

    #[inline]
    fn push_light(&mut self, piece: Light) {
        self.light[self.count] = Some(piece);
        self.count += 1;
    }

    fn is_full(&self) -> bool {
        self.count == BATCH || self.last.is_some()
    }

    /// Opens all pieces, in order, behind `chain`. After an error the rest is still here.
    pub(crate) fn open_into(&mut self, chain: &mut Chain) -> Result<(), Error> {
        for slot in &mut self.light[..self.count] {
            let Some(piece) = slot.take() else { continue };
            if let Err(PushError { segment, error }) = chain.push_back(piece.open()) {
                *slot = Some(Light::Segment(segment.into()));
                return Err(error.into());
            }
        }
        let Some(mut body) = self.last.take() else { return Ok(()) };
        match body.open_in_place() {
            Ok(mut opened) => {
                if let Err(error) = chain.append_chain(&mut opened) {
                    self.last = Some(Body::Parcel(opened.into()));
                    return Err(error.into());
                }
                Ok(())
            }
            Err(error) => {
                self.last = Some(body);
                Err(error)
            }
        }
    }
}

/// The contents of a buffer, to be dropped without the lock.
#[derive(Default)]
pub(crate) struct Leftovers {
    pub(crate) queue: VecDeque<Entry>,
    _pieces: VecDeque<PackedSegment>,
    _room: Option<Room>,
}

impl Rcv {
    /// Creates a buffer. `sender_limit` is `usize::MAX` if any socket may send.
    pub(crate) fn new(limit: usize, sender_limit: usize) -> Self {
        Self {
            flags: 0,
            charged: 0,
            room: Room::EMPTY,
            limit: limit.min(sender_limit),
            readers: Waiters::new(),
            writers: Waiters::new(),
            pieces: VecDeque::new(),
            queue: VecDeque::new(),
            messages: 0,
            own_limit: limit,
            sender_limit,
        }
    }

    /// Returns the number of queued bytes.
    pub(crate) fn len(&self) -> usize {
        self.charged - self.messages * MESSAGE_COST
    }

    /// For spinning threads: true if there is data to receive, one side ended, or an error is to be reported.
    pub(crate) fn may_be_received(&self) -> bool {
        self.charged > 0 || self.flags != 0
    }

    /// For spinning threads: true if at least half of the buffer is free, or one side ended.
    pub(crate) fn may_be_sent(&self) -> bool {
        self.charged <= self.limit / 2 || self.flags != 0
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

    fn free(&self) -> usize {
        self.limit.saturating_sub(self.charged)
    }

    /// Returns the error for a send if the buffer accepts nothing any more.
    fn refusal(&self) -> Result<(), Error> {
        match self.flags {
            0 | RESET => Ok(()),
            _ => Err(Error::BrokenPipe),
        }
    }

    /// True if the socket is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.flags & CLOSED != 0
    }

    /// The fast path of a stream: appends a copy of all `bytes`. Returns false, and does nothing, in unusual
    /// cases.
    #[inline]
    pub(crate) fn put_all(&mut self, bytes: &[u8]) -> bool {
        let charged = self.charged + bytes.len();
        if self.flags != 0 || charged > self.limit {
            return false;
        }
        if !self.room.put_all(bytes) {
            return false;
        }
        self.charged = charged;
        true
    }

    /// The fast path of packets: queues `bytes` as a message. Returns false, and does nothing, in unusual
    /// cases.
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

    /// The fast path of packets: copies the first message into `bytes`. Returns `None`, and does nothing, in
    /// unusual cases.
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

    /// Appends a copy of `bytes` to a stream, at most [`SMALL`] and as many as there is room for. Returns
    /// their number, at least one.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.refusal()?;
        let n = bytes.len().min(self.free());
        if n == 0 {
            return Err(Error::WouldBlock);
        }
        let taken = match &mut self.room {
            Room::Tiny(tiny) => {
                if tiny.put(&bytes[..n]) {
                    n
                } else {
                    0
                }
            }
            Room::Stage(stage) => stage.cluster.put(&bytes[..n]),
        };
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

    /// Copies `bytes` into a new stage. A full stage becomes an entry, or is dropped if it was read
    /// completely; the few bytes of a tiny room move to the new stage.
    #[cold]
    fn put_new(&mut self, bytes: &[u8]) -> Result<(), Error> {
        // A stage that fills up, mostly unread, belongs to a busy stream.
        let busy = matches!(&self.room, Room::Stage(stage) if stage.excess() <= 0);
        let mut cluster = Cluster::alloc(if busy { MAX_CLUSTER } else { CLUSTER_SIZES[0] })?;
        match &self.room {
            Room::Tiny(tiny) => _ = cluster.put(tiny.unread()), // there is room for both
            Room::Stage(_) => self.close_room(),
        }
        cluster.put(bytes);
        self.room = Room::Stage(Stage { cluster, read: 0 });
        self.charged += bytes.len();
        Ok(())
    }

    /// Makes an entry of the unread bytes of the room, so that other data can be queued behind them.
    #[inline]
    fn close_room(&mut self) {
        if matches!(&self.room, Room::Tiny(tiny) if tiny.unread().is_empty()) {
            return;
        }
        match std::mem::replace(&mut self.room, Room::EMPTY) {
            Room::Stage(stage) if stage.unread().is_empty() => {}
            Room::Stage(stage) => {
                let small = stage.in_small_cluster();
                self.pieces.push_back(small.unwrap_or_else(|| stage.into_segment()).into());
            }
            Room::Tiny(tiny) => self.put_behind(Entry::plain(Body::inline(tiny.unread()))),
        }
    }

    /// Queues an entry that is no piece (rule 2).
    fn put_behind(&mut self, entry: Entry) {
        self.queue.extend(self.pieces.drain(..).map(|piece| Entry::plain(Body::Segment(piece))));
        self.queue.push_back(entry);
    }

    /// Makes the first piece an entry, if the queue is empty.
    fn bring_front(&mut self) {
        if self.queue.is_empty()
            && let Some(piece) = self.pieces.pop_front()
        {
            self.queue.push_back(Entry::plain(Body::Segment(piece)));
        }
    }

    /// Returns how to queue the front of `chain`, with room for `most` bytes. Up to [`SMALL`] bytes are
    /// copied, which is cheaper. Otherwise segments are carried as long as each fills half of its cluster,
    /// alone or together with the next one; others are copied. The buffer's limit counts bytes, so its memory
    /// is at most twice the limit and one cluster, or three where a receiver took a part of a segment.
    fn front(&self, chain: &Chain, most: usize) -> Front {
        if most <= SMALL {
            return Front::Copied(most);
        }
        // Excess of the last bytes, if they fill half of their cluster only together with the next segment.
        let mut unbalanced = match &self.room {
            Room::Tiny(tiny) if !tiny.unread().is_empty() && most + TINY <= CLUSTER_SIZES[0] => {
                return Front::Copied(most);
            }
            Room::Stage(stage) if !stage.unread().is_empty() => stage.excess().max(0),
            _ => 0,
        };
        // The length of each segment, cut at `most`, and its excess for that length.
        let parts = || {
            let mut left = most;
            chain.segments().map_while(move |segment| {
                let len = segment.len().min(left);
                left -= len;
                (len > 0).then(|| (len, segment.excess() + 2 * (segment.len() - len) as isize))
            })
        };
        let (mut carried, mut end) = (0, 0);
        for (len, excess) in parts() {
            end += len;
            if unbalanced + excess <= 0 {
                (carried, unbalanced) = (end, 0);
            } else if unbalanced == 0 {
                unbalanced = excess;
            } else {
                break;
            }
        }
        if carried > 0 {
            return Front::Carried(carried);
        }
        // The first segment, and sparse ones behind it as long as all fit into one cluster.
        let mut copied = 0;
        for (len, excess) in parts() {
            if copied > 0 && (excess <= 0 || copied + len > MAX_CLUSTER) {
                break;
            }
            copied += len;
        }
        Front::Copied(copied)
    }

    /// Appends bytes of `chain` to a stream, and returns their number, at least one; the rest is for the next
    /// call. They are removed from `chain`, or copied: then the caller trims the chain, without the lock.
    pub(crate) fn put_chain(&mut self, chain: &mut Chain) -> Result<usize, Error> {
        self.refusal()?;
        let room = self.free();
        if room == 0 {
            return Err(Error::WouldBlock);
        }
        let n = match self.front(chain, chain.len().min(room)) {
            Front::Copied(n) => return self.put_copy(chain, n),
            Front::Carried(n) => n,
        };
        let mut part = if n == chain.len() { std::mem::take(chain) } else { chain.split_to(n)? };
        self.close_room();
        if part.segment_count() > FEW {
            self.put_behind(Entry::plain(Body::Parcel(part.into())));
        } else {
            while let Some(segment) = part.pop_front() {
                self.pieces.push_back(segment.into());
            }
        }
        self.charged += n;
        Ok(n)
    }

    /// Copies the first `n` bytes of `chain`, for which there is room, and returns their number; fewer, but
    /// at least one, without memory for all.
    fn put_copy(&mut self, chain: &Chain, n: usize) -> Result<usize, Error> {
        let mut done = 0;
        for segment in chain.segments() {
            if done == n {
                break;
            }
            let mut rest = &segment[..segment.len().min(n - done)];
            while !rest.is_empty() {
                match self.put(&rest[..rest.len().min(SMALL)]) {
                    Ok(put) => {
                        rest = &rest[put..];
                        done += put;
                    }
                    Err(_) if done > 0 => return Ok(done),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(n)
    }

    /// Returns the cost against the limit of an entry of `len` bytes, or an error if it can never be queued
    /// here.
    pub(crate) fn cost(&self, len: usize, is_message: bool) -> Result<usize, Error> {
        self.refusal()?;
        let extra = if is_message { MESSAGE_COST } else { 0 };
        if len + extra > self.limit {
            return Err(Error::MessageTooLong { len, limit: self.limit.saturating_sub(extra) });
        }
        Ok(len + extra)
    }

    /// Queues `entry`: a message, which has the cost of one, or bytes of a stream with handles, which do not.
    /// On an error it stays in `entry`.
    pub(crate) fn put_entry(&mut self, entry: &mut Option<Entry>, is_message: bool) -> Result<usize, Error> {
        let Some(len) = entry.as_ref().map(|entry| entry.body.len()) else { return Ok(0) };
        let cost = self.cost(len, is_message)?;
        if cost > self.free() {
            return Err(Error::WouldBlock);
        }
        self.close_room();
        entry.take().into_iter().for_each(|entry| self.put_behind(entry));
        self.charged += cost;
        self.messages += usize::from(is_message);
        Ok(len)
    }

    /// The fast path of a stream: copies bytes of the room into `bytes`, as many as fit. Returns `None`, and
    /// does nothing, in unusual cases.
    #[inline]
    pub(crate) fn take_staged(&mut self, bytes: &mut [u8]) -> Option<usize> {
        if !self.queue.is_empty() || !self.pieces.is_empty() {
            return None;
        }
        let n = self.room.take(bytes);
        if n == 0 {
            return None;
        }
        self.charged -= n;
        Some(n)
    }

    /// Returns the reason why there is nothing to receive: an end, an error, or only for now.
    fn nothing(&mut self) -> Result<(), Error> {
        if self.flags & RESET != 0 {
            self.flags &= !RESET;
            return Err(Error::ConnectionReset);
        }
        if self.flags == 0 { Err(Error::WouldBlock) } else { Ok(()) }
    }

    /// Frees the cluster for small sends, so that an idle socket holds no memory. For a receiver that found
    /// nothing.
    pub(crate) fn rest(&mut self) {
        debug_assert!(self.room.unread().is_empty(), "nothing was found");
        self.room = Room::EMPTY;
    }

    /// Takes bytes of a stream into `bytes`, which is not empty; `Ok` with 0 bytes at the end. The bytes of
    /// one parcel are returned as they are; the caller copies them behind the others without the lock. The
    /// result includes the control data of the first entry. One receive never takes bytes of two sends of
    /// which the later has handles.
    pub(crate) fn take_bytes(&mut self, bytes: &mut [u8], flight: bool) -> Result<Piece, Error> {
        let mut piece = Piece { copied: 0, parcel: None, behind: 0, control: None };
        while piece.copied < bytes.len() && piece.parcel.is_none() {
            self.bring_front();
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
                Body::Inline { len, bytes } => {
                    let n = usize::from(*len).min(room.len());
                    room[..n].copy_from_slice(&bytes[..n]);
                    bytes.copy_within(n..usize::from(*len), 0);
                    *len -= n as u8;
                    piece.copied += n;
                }
                body if whole => piece.parcel = Some(std::mem::replace(body, Body::EMPTY)),
                body => {
                    let mut chain = body.open_in_place()?; // cannot fail: the body is not inline
                    let fit = whole_segments(&chain, room.len());
                    if fit == 0 {
                        piece.copied += copy_chain(&chain, room);
                        chain.trim_front(room.len()).expect("there are more bytes than room");
                        *body = Body::Parcel(chain.into());
                        break;
                    }
                    // They leave as they are, so that the caller frees them without the lock.
                    let part = chain.split_to(fit);
                    *body = Body::Parcel(chain.into());
                    match part {
                        Ok(part) => piece.parcel = Some(Body::Parcel(part.into())),
                        Err(_) if piece.copied > 0 => {} // no memory to cut the parcel: it stays
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
        let mut n = piece.len();
        if n < bytes.len() && self.queue.is_empty() && self.pieces.is_empty() {
            // A small send that was cut between two rooms is received as a whole.
            piece.behind = self.room.take(&mut bytes[n..]);
            n += piece.behind;
        }
        self.charged -= n;
        if n == 0 && piece.control.is_none() {
            self.nothing()?;
        }
        Ok(piece)
    }

    /// Classifies the amount of queued data.
    #[inline]
    pub(crate) fn found(&self) -> Found {
        match self.charged {
            0 => Found::Nothing,
            n if n < self.limit / 4 => Found::Some,
            _ => Found::Much,
        }
    }

    /// Takes up to `max` bytes of a stream, by reference, into `taken`: at most [`BATCH`] pieces at a time.
    /// Control data as in [`take_bytes`](Self::take_bytes). Returns the number of bytes; 0 at the end.
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
        while n < max && !taken.is_full() && self.queue.is_empty() {
            let Some(front) = self.pieces.pop_front_if(|front| front.len() <= max - n) else { break };
            n += front.len();
            taken.push_light(Light::Segment(front));
        }
        if n < max && !taken.is_full() {
            match self.take_part(max - n, taken) {
                Ok(more) => n += more,
                Err(_) if n > 0 => {} // no memory to cut the next piece: it stays
                Err(error) => return Err(error),
            }
        }
        self.charged -= n;
        if n == 0 {
            self.nothing()?;
        }
        Ok(n)
    }

    /// Takes up to `max` bytes of the first entry, which has more than `max`, or of the room.
    fn take_part(&mut self, max: usize, taken: &mut Taken) -> Result<usize, Error> {
        self.bring_front();
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
        let len = self.room.unread().len();
        if len == 0 {
            return Ok(0);
        }
        if len <= max {
            match std::mem::replace(&mut self.room, Room::EMPTY) {
                Room::Stage(stage) => taken.push_light(Light::Stage(stage)),
                Room::Tiny(tiny) => taken.push(Body::inline(tiny.unread())),
            }
            return Ok(len);
        }
        self.close_room();
        self.take_part(max, taken)
    }

    /// True if the first entry has control data, which a plain receive by reference must take first.
    pub(crate) fn front_has_control(&self) -> bool {
        self.queue.front().is_some_and(|entry| entry.control.is_some())
    }

    /// Takes the control data of the first entry.
    pub(crate) fn take_front_control(&mut self) -> Option<Box<Control>> {
        self.queue.front_mut()?.control.take()
    }

    /// Puts pieces that could not be opened back in their place.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        let light = taken.light.into_iter().flatten().map(Body::from);
        for body in light.chain(taken.last).rev() {
            self.charged += body.len();
            self.queue.push_front(Entry::plain(body));
        }
    }

    /// Converts the first message to a form that can be opened without memory.
    pub(crate) fn prepare_front(&mut self) -> Result<(), Error> {
        if let Some(front) = self.queue.front_mut()
            && let Body::Inline { len: 1.., .. } = front.body
        {
            front.body = Body::Parcel(front.body.open_in_place()?.into());
        }
        Ok(())
    }

    /// Returns the number of bytes of the first entry.
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

    /// Returns the writers to wake, if there is enough room to make waking them pay (rule 3).
    #[inline]
    pub(crate) fn writers_to_wake(&mut self) -> Option<Wakes> {
        if self.writers.is_empty() || self.charged > self.limit / 2 {
            return None;
        }
        self.writers.take()
    }

    /// Marks the socket as closed (rule 4). Returns the waiters to wake; [`empty`](Self::empty) takes the
    /// queued data.
    pub(crate) fn close(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= CLOSED;
        [self.readers.take(), self.writers.take()]
    }

    /// Marks the socket as receiving no more: as [`close`](Self::close), but the socket stays.
    pub(crate) fn shut(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= SHUT;
        [self.readers.take(), self.writers.take()]
    }

    /// Marks the sender as sending no more.
    pub(crate) fn end(&mut self) -> [Option<Wakes>; 2] {
        self.flags |= ENDED;
        [self.readers.take(), self.writers.take()]
    }

    /// Records that the other datagram socket is closed, or that the sender has aborted.
    pub(crate) fn reset(&mut self) -> Option<Wakes> {
        self.flags |= RESET;
        self.readers.take()
    }

    /// True if handles are queued, which may be taken out only under the flight lock.
    pub(crate) fn has_handles(&self) -> bool {
        self.queue.iter().any(Entry::has_handles)
    }

    /// Iterates over the control data of all entries, for the collector.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Control> {
        self.queue.iter().filter_map(|entry| entry.control.as_deref())
    }

    /// Takes the handles of all entries, for the collector.
    pub(crate) fn take_controls(&mut self) -> impl Iterator<Item = Box<Control>> {
        self.queue.iter_mut().filter_map(|entry| entry.control.take())
    }

    /// Takes everything out. The caller holds the flight lock if [`has_handles`](Self::has_handles) is true.
    pub(crate) fn empty(&mut self) -> Leftovers {
        self.charged = 0;
        self.messages = 0;
        let room = std::mem::replace(&mut self.room, Room::EMPTY);
        let pieces = std::mem::take(&mut self.pieces);
        Leftovers { queue: std::mem::take(&mut self.queue), _pieces: pieces, _room: Some(room) }
    }
}

/// Amount of data that a receive of a stream found, for its [backoff](crate::backoff).
#[derive(Clone, Copy)]
pub(crate) enum Found {
    Nothing,
    Some,
    /// A quarter of the limit, or more.
    Much,
}

/// Result of [`Rcv::take_bytes`].
pub(crate) struct Piece {
    /// Number of copied bytes.
    pub(crate) copied: usize,
    /// Data to be copied behind those bytes; it fits.
    pub(crate) parcel: Option<Body>,
    /// Number of bytes copied behind the gap that `parcel` fills.
    pub(crate) behind: usize,
    pub(crate) control: Option<Box<Control>>,
}

impl Piece {
    /// Marks the result as empty since the first entry has handles: the caller needs the flight lock.
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

/// Result of [`Rcv::take_message`].
pub(crate) enum Message {
    Entry(Entry),
    /// Nothing was taken: the first message has handles, and the caller needs the flight lock.
    HandlesAhead,
}
