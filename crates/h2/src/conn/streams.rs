//! The streams of a connection.

use super::flow::{ReceiveWindow, SendWindow};
use crate::stream_id::StreamId;
use manylane_pool::{AllocError, Pool, Pooled};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Where one direction of a stream is.
///
/// A stream of RFC 9113, 5.1 is two of these. Idle streams are those above the last one that began; closed
/// ones are not kept. A reset, by either side and in any state, closes both directions.
///
/// ```text
///     receive \ send   Head              Body              Done
///     Head             open              open              half-closed (local)
///     Body             open              open              half-closed (local)
///     Done             half-closed (r.)  half-closed (r.)  closed
///
///     Head --- head ---> Body --- END_STREAM, of DATA, head or trailers ---> Done
///      | ^
///      +-+ interim response
/// ```
///
/// A client begins a stream with `send` behind its head; a server meets it with `receive` behind the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The head is to come.
    Head,
    /// Data and trailers are.
    Body,
    /// Nothing is.
    Done,
}

/// What a stream that has data waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Nothing,
    /// Its own window. It is in no queue.
    Window,
    /// The connection's window, or room in the output: it is in the queue.
    Turn,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) receive: Side,
    pub(crate) send: Side,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Bytes that were told and not consumed.
    pub(crate) unconsumed: usize,
    /// Data that `Content-Length` still promises.
    pub(crate) promised: Option<u64>,
    /// Data that the `Content-Length` of what we sent still promises.
    pub(crate) owed: Option<u64>,
    /// Nobody wants what comes.
    pub(crate) released: bool,
    /// It is closed and not counted any more, but kept for what is not consumed.
    pub(crate) ended: bool,
    /// How often output had been taken when our end of it went into the output.
    pub(crate) end_sent: Option<u64>,
    /// The response can have no data: its request was a HEAD.
    pub(crate) head_request: bool,
    /// The request was a CONNECT, after whose success there is no message but a tunnel.
    pub(crate) connect: bool,
    pub(crate) waiting: Waiting,
    /// It has an entry in the queue.
    pub(crate) queued: bool,
    /// It was told that it may send.
    pub(crate) has_turn: bool,
    /// Since when it has data that a window holds back.
    pub(crate) blocked: Option<Duration>,
}

impl Stream {
    pub(crate) fn is_closed(&self) -> bool {
        self.receive == Side::Done && self.send == Side::Done
    }
}

/// Multiplies by a secret, so that a peer cannot choose numbers that meet in one place of the table.
#[derive(Clone, Debug)]
pub struct Keyed(u64);

/// What is kept for each stream of a connection.
pub type StreamMap<T> = HashMap<StreamId, T, Keyed>;

impl Default for Keyed {
    fn default() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, hash: 0 }
    }
}

/// The state of [`Keyed`].
#[derive(Debug)]
pub struct KeyedHasher {
    key: u64,
    hash: u64,
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        let product = u128::from(self.hash ^ u64::from(number)) * u128::from(self.key);
        self.hash = (product as u64) ^ (product >> 64) as u64;
    }
}

manylane_sync::lazy_static! {
    static POOL: Pool<Stream> = Pool::new("h2 stream").expect("the size is a constant below the bound");
}

/// Those that are not closed.
#[derive(Debug)]
pub(crate) struct Streams {
    by_id: StreamMap<Pooled<Stream>>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { by_id: StreamMap::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.by_id.get(&id).map(|stream| &**stream)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.by_id.get_mut(&id).map(|stream| &mut **stream)
    }

    pub(crate) fn insert(&mut self, id: StreamId, stream: Stream) -> Result<(), AllocError> {
        self.by_id.insert(id, POOL.alloc(stream)?);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Pooled<Stream>> {
        self.by_id.remove(&id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.by_id.iter_mut().map(|(&id, stream)| (id, &mut **stream))
    }
}
