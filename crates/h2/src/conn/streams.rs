//! The streams of a connection.

use super::flow::{ReceiveWindow, SendWindow};
use crate::stream_id::StreamId;
use manylane_pool::{AllocError, Pool, Pooled};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// State of one direction of a stream.
///
/// A stream of RFC 9113, 5.1 is two of these. Streams above the last one that began are idle; closed streams
/// are not kept. A reset, by either side and in any state, closes both directions.
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
/// A client begins a stream with `send` behind its head; on the server it begins with `receive` behind the
/// head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The head is still to come.
    Head,
    /// Data and trailers are still to come.
    Body,
    /// Nothing more comes.
    Done,
}

/// Reason why a stream with data waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Nothing,
    /// The stream waits for space in its own window, and is in no queue.
    Window,
    /// The stream is in the queue for space in the connection's window, or in the output.
    Turn,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) receive: Side,
    pub(crate) send: Side,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Number of data bytes that events reported and the user has not consumed.
    pub(crate) unconsumed: usize,
    /// Number of data bytes that the received `Content-Length` still promises.
    pub(crate) promised: Option<u64>,
    /// Number of data bytes that the sent `Content-Length` still promises.
    pub(crate) owed: Option<u64>,
    /// True if the user wants no more of the incoming data.
    pub(crate) released: bool,
    /// True if the stream is closed and no longer counted, but kept until its data is consumed.
    pub(crate) ended: bool,
    /// Value of `Connection::outputs` when this side wrote its END_STREAM to the output.
    pub(crate) end_sent: Option<u64>,
    /// True if the request was a HEAD: its response has no data.
    pub(crate) head_request: bool,
    /// True if the request was a CONNECT: a tunnel follows its success, not a message.
    pub(crate) connect: bool,
    pub(crate) waiting: Waiting,
    /// True if the stream has an entry in the queue.
    pub(crate) queued: bool,
    /// True if the stream was returned as writable and has not sent since.
    pub(crate) has_turn: bool,
    /// Time since which a window holds back its data.
    pub(crate) blocked: Option<Duration>,
}

impl Stream {
    pub(crate) fn is_closed(&self) -> bool {
        self.receive == Side::Done && self.send == Side::Done
    }
}

/// Hashes stream numbers by multiplying with a secret, so that a peer cannot choose numbers that collide.
#[derive(Clone, Debug)]
pub struct StreamHashBuilder(u64);

/// Map from the streams of a connection to a value each.
pub type StreamMap<T> = HashMap<StreamId, T, StreamHashBuilder>;

impl Default for StreamHashBuilder {
    fn default() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }
}

impl BuildHasher for StreamHashBuilder {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, hash: 0 }
    }
}

/// The hasher of [`StreamHashBuilder`].
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

/// Streams that are not closed, or kept for their data.
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
