//! One stream: the handle of its task.

use super::core::{Entry, Mux, State, now, park};
use super::error::StreamError;
use manylane_buf::Chain;
use manylane_h2::{Reason, Response, Role, SendError, StreamId};
use manylane_http::Head;
use std::fmt;
use std::task::{Context, Poll};

/// An HTTP/2 stream: one request and its response. It stays on the lane of its connection.
///
/// Its methods take `&self`, so that receiving and sending may be two futures of one task. One task may wait
/// in each direction.
///
/// A stream that is dropped before it is over is reset. If the response is not complete, the code is CANCEL;
/// if a server has sent a complete response and more of the request is to come, it is NO_ERROR.
pub struct Stream {
    mux: Mux,
    id: StreamId,
}

/// A received response head.
#[derive(Debug)]
pub enum ResponseHead {
    /// An interim response, such as 100 or 103.
    Interim(Response),
    /// The final response.
    Final {
        /// The response.
        response: Response,
        /// True if nothing follows.
        end: bool,
    },
}

/// Result of receiving on a stream.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would ask the global allocator for room
pub enum Received {
    /// Data, which was appended to the chain.
    Data,
    /// Trailers; nothing follows them.
    Trailers(Head),
    /// The message is complete.
    End,
}

impl Stream {
    pub(crate) fn new(mux: Mux, id: StreamId) -> Self {
        Self { mux, id }
    }

    /// Returns the stream's number.
    pub fn id(&self) -> u32 {
        self.id.number()
    }

    /// Returns the streams of its connection.
    pub fn mux(&self) -> &Mux {
        &self.mux
    }

    /// Waits for the next head of a response, on a client: interim ones, then the final one.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn poll_head(&self, context: &Context<'_>) -> Poll<Result<ResponseHead, StreamError>> {
        self.entry(|entry| {
            if let Some(mut queued) = entry.heads.take() {
                entry.heads = queued.next.take();
                return Poll::Ready(Ok(queued.into_inner().head));
            }
            waits(entry, context)
        })
    }

    /// Waits for data or the end, and appends at most `most` bytes of data to `into`, which takes memory by
    /// its bytes, however many frames and calls bring them. Call [`consume`](Self::consume) when the data was
    /// forwarded.
    ///
    /// Data that came before a reset is returned before the error.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn poll_recv(
        &self,
        context: &Context<'_>,
        into: &mut Chain,
        most: usize,
    ) -> Poll<Result<Received, StreamError>> {
        self.entry(|entry| {
            let len = entry.data.len();
            if len > 0 && most > 0 {
                let moved = if len <= most {
                    into.append_compact(&mut entry.data)
                } else {
                    entry.data.split_to(most).and_then(|mut part| into.append_compact(&mut part))
                };
                return Poll::Ready(moved.map(|()| Received::Data).map_err(|_| StreamError::Memory));
            }
            if let Some(trailers) = entry.trailers.take() {
                return Poll::Ready(Ok(Received::Trailers(trailers.into_inner())));
            }
            if entry.end && len == 0 {
                return Poll::Ready(Ok(Received::End));
            }
            waits(entry, context)
        })
    }

    /// Returns true if the whole message arrived and was taken.
    pub fn is_received(&self) -> bool {
        self.mux.state().entries.get(&self.id).is_none_or(|entry| {
            entry.end && entry.data.is_empty() && entry.trailers.is_none() && entry.heads.is_none()
        })
    }

    /// Marks `n` bytes of data as consumed: the peer may send as many more.
    pub fn consume(&self, n: usize) {
        let mut state = self.mux.state();
        // If this fails, the connection fails, and all streams learn that.
        let _ = state.h2.consume(self.id, n);
        state.kick();
    }

    /// Waits until an interim response may be sent. No window limits them and a peer may send them endlessly,
    /// so they wait until the output is taken. They do not wait for windows: a client may open its windows
    /// only after the final head.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn poll_interim_room(&self, context: &Context<'_>) -> Poll<Result<(), StreamError>> {
        let mut state = self.mux.state();
        if state.h2.has_output_room() {
            return Poll::Ready(Ok(()));
        }
        let State { interim, entries, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&self.id) else { return Poll::Pending };
        if let Some(error) = entry.over {
            return Poll::Ready(Err(error));
        }
        park(&mut entry.sender, context);
        if !interim.contains(&self.id) {
            interim.retain(|id| entries.get(id).is_some());
            interim.push(self.id);
        }
        Poll::Pending
    }

    /// Sends an interim response, such as 100 or 103, on a server.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn send_interim(&self, head: &Head) -> Result<(), StreamError> {
        self.send(|state, id| state.h2.send_interim(id, head))
    }

    /// Sends the final response, on a server. `end` says that nothing follows.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn send_head(&self, head: &Head, end: bool) -> Result<(), StreamError> {
        self.send(|state, id| {
            state.h2.send_response(id, head, end)?;
            state.sent_end(id, end);
            Ok(())
        })
    }

    /// Sends trailers, which end the message.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn send_trailers(&self, head: &Head) -> Result<(), StreamError> {
        self.send(|state, id| {
            state.h2.send_trailers(id, head)?;
            state.sent_end(id, true);
            Ok(())
        })
    }

    /// Sends data by reference. Ready when all of it is taken, with the end if `end` is set. Otherwise the
    /// rest stays in `data`, and the task is woken when there is room.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn poll_send(
        &self,
        context: &Context<'_>,
        data: &mut Chain,
        end: bool,
    ) -> Poll<Result<(), StreamError>> {
        let now = now(self.mux.here());
        let sent = self.send(|state, id| {
            let sent = state.h2.send_data(now, id, data, end)?;
            state.sent_end(id, end && sent.all);
            if !sent.all
                && let Some(entry) = state.entries.get_mut(&id)
            {
                park(&mut entry.sender, context);
            }
            Ok(sent.all)
        });
        match sent {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits for room to send, and returns the number of bytes. Call it right before each read of data to
    /// send, and read no more than that: then no task holds bytes that cannot go on.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn poll_room(&self, context: &Context<'_>) -> Poll<Result<usize, StreamError>> {
        let now = now(self.mux.here());
        let mut state = self.mux.state();
        let room = state.h2.room(now, self.id);
        if room > 0 {
            return Poll::Ready(Ok(room));
        }
        let Some(entry) = state.entries.get_mut(&self.id) else { return Poll::Pending };
        if let Some(error) = entry.over {
            return Poll::Ready(Err(error));
        }
        if entry.sent_end {
            return Poll::Ready(Err(StreamError::Send(SendError::Closed)));
        }
        park(&mut entry.sender, context);
        Poll::Pending
    }

    /// Resets the stream.
    pub fn reset(&self, reason: Reason) {
        let mut state = self.mux.state();
        let _ = state.h2.reset(self.id, reason);
        if let Some(entry) = state.entries.get_mut(&self.id) {
            entry.over.get_or_insert(StreamError::Send(SendError::Closed));
            entry.data.clear();
        }
        state.kick();
    }

    /// Waits until the stream cannot go on: the peer has reset it, or its connection is over.
    pub fn poll_gone(&self, context: &Context<'_>) -> Poll<StreamError> {
        self.entry(|entry| match entry.over {
            Some(error) => Poll::Ready(error),
            None => {
                park(&mut entry.watcher, context);
                Poll::Pending
            }
        })
    }

    /// Returns whether the stream cannot go on: the peer has reset it, or its connection is over.
    pub fn is_gone(&self) -> bool {
        self.mux.state().entries.get(&self.id).is_none_or(|entry| entry.over.is_some())
    }

    /// Returns the code with which the peer has reset the stream, if it has.
    pub fn peer_reset(&self) -> Option<Reason> {
        match self.mux.state().entries.get(&self.id)?.over? {
            StreamError::Reset(reason) => Some(reason),
            StreamError::Refused => Some(Reason::REFUSED_STREAM),
            _ => None,
        }
    }

    /// Runs `work` on the stream's entry, which exists as long as this handle.
    fn entry<R>(&self, work: impl FnOnce(&mut Entry) -> Poll<R>) -> Poll<R> {
        self.mux.state().entries.get_mut(&self.id).map_or(Poll::Pending, |entry| work(entry))
    }

    fn send<R>(
        &self,
        work: impl FnOnce(&mut State, StreamId) -> Result<R, SendError>,
    ) -> Result<R, StreamError> {
        let mut state = self.mux.state();
        if let Some(error) = state.entries.get(&self.id).and_then(|entry| entry.over) {
            return Err(error);
        }
        let done = work(&mut state, self.id);
        state.kick();
        done.map_err(StreamError::Send)
    }
}

fn waits<R>(entry: &mut Entry, context: &Context<'_>) -> Poll<Result<R, StreamError>> {
    match entry.over {
        Some(error) => Poll::Ready(Err(error)),
        None => {
            park(&mut entry.receiver, context);
            Poll::Pending
        }
    }
}

impl State {
    fn sent_end(&mut self, id: StreamId, end: bool) {
        if end && let Some(entry) = self.entries.get_mut(&id) {
            entry.sent_end = true;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = self.mux.here().now();
        let mut state = self.mux.state();
        let Some(entry) = state.entries.get(&self.id) else { return };
        // If one of these fails, the connection fails.
        let _ = match (entry.over, entry.sent_end, entry.end) {
            (Some(_), ..) => Ok(()),
            (None, true, true) => state.h2.release(self.id),
            (None, true, false) if state.h2.role() == Role::Server => {
                state.h2.reset(self.id, Reason::NO_ERROR)
            }
            _ => state.h2.reset(self.id, Reason::CANCEL),
        };
        state.remove(self.id, now);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.id.number())
    }
}
