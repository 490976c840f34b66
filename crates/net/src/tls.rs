//! TLS over a socket of the system or of the process.
//!
//! Records are read from the driver's clusters and written into clusters. A connection holds decrypted bytes
//! that were not asked for yet, and the beginning of an incomplete record; an idle one holds neither.

use crate::connection::{LocalStream, TransferError};
use manylane_buf::{Chain, Segment};
use manylane_io::{Shutdown, Stream};
use manylane_sched::{Class, Here};
use manylane_tls::{Connection as Tls, Error, Info, Progress};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::net;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::thread::LocalKey;
use std::time::Duration;

/// Largest number of concurrent handshakes on a lane, counted separately for clients and for servers: clients
/// that stall theirs must not keep the lane from its servers and their health checks. Each holds the state of
/// its connection and up to [`MOST_UNREAD`](manylane_tls::MOST_UNREAD) received bytes. Connections beyond the
/// bound are refused.
pub const MOST_HANDSHAKES: usize = 16_384;

thread_local! {
    static OF_CLIENTS: Cell<usize> = const { Cell::new(0) };
    static OF_SERVERS: Cell<usize> = const { Cell::new(0) };
}

/// A connection that uses TLS.
#[derive(Debug)]
pub struct TlsStream {
    under: Under,
    /// Never borrowed across an await.
    state: RefCell<State>,
    /// Result of the handshake.
    info: OnceCell<Rc<Info>>,
    /// Dropped with it.
    _held: Option<Box<dyn fmt::Debug>>,
}

/// Transport below TLS.
#[derive(Debug)]
pub(crate) enum Under {
    Socket(Stream),
    Local(LocalStream),
}

#[derive(Debug)]
struct State {
    tls: Tls,
    /// Bytes of the first record that came before the handshake began.
    early: Chain,
    /// Decrypted bytes that were not asked for yet.
    plain: Chain,
    /// Bytes to send before anything else.
    out: Chain,
    /// True if the peer sends no more.
    ended: bool,
    /// True if the peer ended the stream without a `close_notify`: an attacker may have cut the stream.
    truncated: bool,
    /// Duration of the handshake.
    took: Duration,
    /// True if the peer has sent something.
    heard: bool,
}

/// One handshake of the lane, in the count of its kind.
struct Handshake(&'static LocalKey<Cell<usize>>);

impl Handshake {
    fn begin(count: &'static LocalKey<Cell<usize>>) -> Result<Self, TransferError> {
        let others = count.get();
        if others >= MOST_HANDSHAKES {
            return Err(TransferError::Tls(Error::Busy));
        }
        count.set(others + 1);
        Ok(Self(count))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Restores the class of a task that waits for its turn as a heavy one, also if the task gives up meanwhile.
struct Heavy(Here, Option<Class>);

impl Drop for Heavy {
    fn drop(&mut self) {
        if let Some(class) = self.1 {
            self.0.set_class(class);
        }
    }
}

impl TlsStream {
    /// `early` came over `under` already.
    pub(crate) fn new(under: Under, tls: Tls, early: Chain, held: Option<Box<dyn fmt::Debug>>) -> Self {
        let (plain, out) = (Chain::new(), Chain::new());
        Self {
            under,
            state: RefCell::new(State {
                tls,
                early,
                plain,
                out,
                ended: false,
                truncated: false,
                took: Duration::ZERO,
                heard: false,
            }),
            info: OnceCell::new(),
            _held: held,
        }
    }

    /// Returns the system's stream below, if there is one.
    pub(crate) fn socket(&self) -> Option<&Stream> {
        match &self.under {
            Under::Socket(stream) => Some(stream),
            Under::Local(_) => None,
        }
    }

    pub(crate) fn local(&self) -> Option<&LocalStream> {
        match &self.under {
            Under::Socket(_) => None,
            Under::Local(local) => Some(local),
        }
    }

    /// Performs the handshake. Call it once, before anything else; a caller that runs out of time drops the
    /// connection. The cryptography runs in the class of [heavy](Class::Heavy) tasks.
    ///
    /// # Errors
    /// [`TransferError`]: the settings refuse the peer, which got an alert, or the peer has gone.
    pub async fn handshake(&self, here: Here) -> Result<(), TransferError> {
        let is_of_client = self.state.borrow().tls.is_server();
        let _one = Handshake::begin(if is_of_client { &OF_CLIENTS } else { &OF_SERVERS })?;
        let begun = here.now();
        let mut came = std::mem::take(&mut self.state.borrow_mut().early);
        loop {
            if !came.is_empty() {
                self.state.borrow_mut().heard = true;
                let heavy = Heavy(here, here.set_class(Class::Heavy));
                here.yield_now().await;
                drop(heavy); // from its turn on, the task has its old class again
            }
            let (progress, mut out) = {
                let State { tls, plain, out, .. } = &mut *self.state.borrow_mut();
                (tls.receive(&mut came, plain, out), std::mem::take(out))
            };
            if !out.is_empty() {
                let sent = self.send_under(&mut out).await;
                if progress.is_ok() {
                    sent?; // after an error, the error matters more than a lost alert
                }
            }
            if progress.map_err(TransferError::Tls)? != Progress::Handshaking {
                let state = &mut *self.state.borrow_mut();
                state.took = here.now().since(begun);
                let secrets = state.tls.secrets().cloned().map(Box::new);
                let info = Info { secrets, ..state.tls.negotiated().into() };
                let _ = self.info.set(Rc::new(info)); // it is not set yet
                return Ok(());
            }
            let segment = match &self.under {
                Under::Socket(stream) => stream.recv_within_limit().await.map_err(TransferError::Socket)?,
                Under::Local(local) => local.recv().await.map_err(TransferError::Local)?,
            };
            let segment = segment.ok_or(TransferError::Tls(Error::Ended))?;
            came.push_back(segment).map_err(|error| TransferError::Tls(Error::Memory(error.into())))?;
        }
    }

    /// Returns whether the peer ended without a `close_notify`.
    pub(crate) fn is_truncated(&self) -> bool {
        self.state.borrow().truncated
    }

    /// Returns whether the peer has sent something.
    pub fn has_heard(&self) -> bool {
        self.state.borrow().heard
    }

    /// Returns the duration of the handshake.
    pub fn took(&self) -> Duration {
        self.state.borrow().took
    }

    /// Records that the handshake failed: [`info`](Self::info) reports it from now on. `None` means that
    /// nothing was wrong with the peer's bytes; for example, it took too long.
    pub fn fail(&self, error: Option<&Error>) {
        let tls = &self.state.borrow().tls;
        let failed = error.map(|error| tls.reason(error)).unwrap_or_default();
        let info = Info { failed: Some(failed), ..tls.negotiated().into() };
        let _ = self.info.set(Rc::new(info)); // a handshake that failed has not set it
    }

    /// Returns the result of the handshake; `None` before its end.
    pub fn info(&self) -> Option<&Rc<Info>> {
        self.info.get()
    }

    /// Handles bytes from below; `None` is their end.
    fn came(&self, segment: Option<Segment>) -> Result<(), TransferError> {
        let State { tls, plain, out, ended, truncated, .. } = &mut *self.state.borrow_mut();
        let Some(segment) = segment else {
            // This includes an end without a `close_notify`: HAProxy accepts it, too, and many peers send no
            // better.
            (*ended, *truncated) = (true, true);
            return Ok(());
        };
        let mut came = Chain::new();
        came.push_back(segment).map_err(|error| TransferError::Tls(Error::Memory(error.into())))?;
        match tls.receive(&mut came, plain, out) {
            Ok(Progress::PeerClosed) => *ended = true,
            Ok(_) => {}
            Err(error) => {
                if let Under::Socket(stream) = &self.under {
                    // Sends as much of the alert as the socket takes at once, without waiting.
                    let _ = stream.poll_send(Some(out), &mut Context::from_waker(Waker::noop()));
                }
                return Err(TransferError::Tls(error));
            }
        }
        Ok(())
    }

    /// Returns the next decrypted bytes if there are some; `Some(None)` is the end.
    fn next(&self) -> Option<Option<Segment>> {
        let state = &mut *self.state.borrow_mut();
        match state.plain.pop_front() {
            Some(segment) => Some(Some(segment)),
            None if state.ended => Some(None),
            None => None,
        }
    }

    pub(crate) async fn recv(&self, within_limit: bool) -> Result<Option<Segment>, TransferError> {
        loop {
            if let Some(next) = self.next() {
                return Ok(next);
            }
            let segment = match &self.under {
                Under::Socket(stream) if within_limit => {
                    stream.recv_within_limit().await.map_err(TransferError::Socket)?
                }
                Under::Socket(stream) => stream.recv().await.map_err(TransferError::Socket)?,
                Under::Local(local) => local.recv().await.map_err(TransferError::Local)?,
            };
            self.came(segment)?;
        }
    }

    /// Does what [`recv`](Self::recv) does, for hand-written futures; `stream` is the one below.
    pub(crate) fn poll_recv(
        &self,
        stream: &Stream,
        within_limit: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Segment>, TransferError>> {
        loop {
            if let Some(next) = self.next() {
                return Poll::Ready(Ok(next));
            }
            let polled = match within_limit {
                true => stream.poll_recv_within_limit(context),
                false => stream.poll_recv(context),
            };
            self.came(ready!(polled).map_err(TransferError::Socket)?)?;
        }
    }

    /// Appends decrypted bytes to `into`, or waits for more. Returns false at the end.
    pub(crate) async fn recv_chain(
        &self,
        into: &mut Chain,
        most: usize,
        within_limit: bool,
    ) -> Result<bool, TransferError> {
        loop {
            if let Some(next) = self.next() {
                let Some(segment) = next else { return Ok(false) };
                let memory = |error: manylane_buf::PushError| TransferError::Tls(Error::Memory(error.into()));
                into.push_compact(segment).map_err(memory)?;
                let plain = &mut self.state.borrow_mut().plain;
                while into.len() < most
                    && let Some(segment) = plain.pop_front()
                {
                    into.push_compact(segment).map_err(memory)?;
                }
                return Ok(true);
            }
            let mut came = Chain::new();
            let some = match &self.under {
                Under::Socket(stream) if within_limit => {
                    stream.recv_chain_within_limit(&mut came, most).await.map_err(TransferError::Socket)?
                }
                Under::Socket(stream) => {
                    stream.recv_chain(&mut came, most).await.map_err(TransferError::Socket)?
                }
                Under::Local(local) => local.recv_chain(&mut came).await.map_err(TransferError::Local)?,
            };
            if !some {
                self.came(None)?;
            }
            while let Some(segment) = came.pop_front() {
                self.came(Some(segment))?;
            }
        }
    }

    /// Returns whether something may be received without waiting.
    pub(crate) fn has_news(&self) -> bool {
        let state = self.state.borrow();
        !state.plain.is_empty() || state.ended || self.socket().is_none_or(Stream::has_news)
    }

    /// Encrypts `chain` into records, behind the bytes that have to be sent before.
    fn encrypted(&self, chain: &mut Chain, last: bool) -> Result<Chain, TransferError> {
        let State { tls, out, .. } = &mut *self.state.borrow_mut();
        tls.send(chain, out).map_err(TransferError::Tls)?;
        if last {
            tls.close_notify(out).map_err(TransferError::Tls)?;
        }
        Ok(std::mem::take(out))
    }

    async fn send_under(&self, out: &mut Chain) -> Result<(), TransferError> {
        match &self.under {
            Under::Socket(stream) => stream.send(out).await.map_err(TransferError::Socket),
            Under::Local(local) => local.send(out).await.map_err(TransferError::Local),
        }
    }

    /// Encrypts all of `chain` at the first poll, so it is sent as on other connections.
    pub(crate) async fn send(&self, chain: &mut Chain) -> Result<(), TransferError> {
        let mut out = self.encrypted(chain, false)?;
        self.send_under(&mut out).await
    }

    pub(crate) async fn send_last(&self, chain: &mut Chain) -> Result<(), TransferError> {
        let mut out = self.encrypted(chain, true)?;
        match &self.under {
            Under::Socket(stream) => stream.send_last(&mut out).await.map_err(TransferError::Socket),
            Under::Local(local) => {
                local.send(&mut out).await.map_err(TransferError::Local)?;
                local.socket().shutdown(net::Shutdown::Write).map_err(TransferError::Local)
            }
        }
    }

    /// Sends a `close_notify` and ends the sending direction.
    pub(crate) async fn finish(&self) -> Result<(), TransferError> {
        let mut out = self.encrypted(&mut Chain::new(), true)?;
        if !out.is_empty() {
            self.send_under(&mut out).await?;
        }
        match &self.under {
            Under::Socket(stream) => stream.shutdown(Shutdown::Write).await.map_err(TransferError::Socket),
            Under::Local(local) => {
                local.socket().shutdown(net::Shutdown::Write).map_err(TransferError::Local)
            }
        }
    }

    /// Sends a `close_notify`, and waits until the system has taken all that was sent.
    pub(crate) async fn close(&self) -> Result<(), TransferError> {
        let mut out = self.encrypted(&mut Chain::new(), true)?;
        if !out.is_empty() {
            self.send_under(&mut out).await?;
        }
        match &self.under {
            Under::Socket(stream) => stream.flush().await.map_err(TransferError::Socket),
            Under::Local(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_no_more_handshakes_than_the_bound() {
        let begin = |_| Handshake::begin(&OF_CLIENTS).expect("there is room");
        let mut all: Vec<_> = (0..MOST_HANDSHAKES).map(begin).collect();
        assert!(matches!(Handshake::begin(&OF_CLIENTS), Err(TransferError::Tls(Error::Busy))));
        assert!(Handshake::begin(&OF_SERVERS).is_ok(), "clients leave room for servers");
        all.pop();
        assert!(Handshake::begin(&OF_CLIENTS).is_ok(), "the place of one that has ended is another's");
    }
}
