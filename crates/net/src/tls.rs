//! TLS over a socket of the system or of the process.
//!
//! Records are read from the driver's clusters and written into clusters. A connection holds decrypted bytes
//! that were not asked for yet, and the beginning of an incomplete record; an idle one holds neither.

use crate::connection::{LocalStream, TransferError};
use manylane_buf::{Chain, Segment};
use manylane_io::{Shutdown, Stream};
use manylane_sched::{Class, Here, Time};
use manylane_tls::{Connection as Tls, Error, Info, Progress};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::poll_fn;
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
    under: InnerTransport,
    /// Never borrowed across an await.
    state: RefCell<State>,
    /// Result of the handshake, or with early data of its first half.
    info: OnceCell<Rc<Info>>,
    /// Dropped with the stream.
    _held: Option<Box<dyn fmt::Debug>>,
}

/// Transport below TLS.
#[derive(Debug)]
pub(crate) enum InnerTransport {
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
    /// The handshake is incomplete, and early data is served or sent meanwhile.
    unfinished: bool,
    /// Messages of a handshake with a server have to be sent, though nobody sends.
    owes: bool,
    /// Begin of the handshake.
    begun: Time,
    /// Tasks that wait for the end of such a handshake. Each has a request of the early data, which is short.
    waiting: Vec<Waker>,
}

/// One handshake of the lane, in the count of its kind.
#[derive(Debug)]
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

impl TlsStream {
    /// Creates a stream over `under`, from which `early` was received already.
    pub(crate) fn new(
        under: InnerTransport,
        tls: Tls,
        early: Chain,
        held: Option<Box<dyn fmt::Debug>>,
    ) -> Self {
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
                unfinished: false,
                owes: false,
                begun: Time::ZERO,
                waiting: Vec::new(),
            }),
            info: OnceCell::new(),
            _held: held,
        }
    }

    /// Returns the system's stream below, if there is one.
    pub(crate) fn socket(&self) -> Option<&Stream> {
        match &self.under {
            InnerTransport::Socket(stream) => Some(stream),
            InnerTransport::Local(_) => None,
        }
    }

    pub(crate) fn local(&self) -> Option<&LocalStream> {
        match &self.under {
            InnerTransport::Socket(_) => None,
            InnerTransport::Local(local) => Some(local),
        }
    }

    /// Performs the handshake. Call it once, before anything else; a caller that runs out of time drops the
    /// connection. The cryptography runs in the class of [heavy](Class::Heavy) tasks.
    ///
    /// With `takes_early` it returns as soon as early data of a client has come, or may be sent to a server.
    /// Whoever receives does the rest of the handshake then. [`info`](Self::info) says how long that lasts
    /// with a client, and is empty until then with a server. Early data that a server does not accept is sent
    /// again behind the handshake.
    ///
    /// # Errors
    /// [`TransferError`]: the settings refuse the peer, which got an alert, or the peer has gone.
    pub async fn handshake(&self, here: Here, takes_early: bool) -> Result<(), TransferError> {
        let is_of_client = self.state.borrow().tls.is_server();
        // Freed on return, also if the handshake goes on behind early data: from then on the connection is
        // bounded as those that are established.
        let _one = Handshake::begin(if is_of_client { &OF_CLIENTS } else { &OF_SERVERS })?;
        self.state.borrow_mut().begun = here.now();
        let mut came = std::mem::take(&mut self.state.borrow_mut().early);
        loop {
            if !came.is_empty() {
                self.state.borrow_mut().heard = true;
                here.turn_in(Class::Heavy).await;
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
            let early = match progress.map_err(TransferError::Tls)? {
                Progress::Handshaking => None,
                Progress::Early => takes_early.then_some(true),
                // rustls refuses a `close_notify` amid the handshake. Should it accept one, early data must
                // not count as that of a complete handshake.
                Progress::PeerClosed if !self.state.borrow().tls.is_complete() => {
                    return Err(TransferError::Tls(Error::Ended));
                }
                Progress::Open | Progress::PeerClosed => Some(false),
            };
            if let Some(early) = early {
                let state = &mut *self.state.borrow_mut();
                state.took = here.now().since(state.begun);
                state.unfinished = early;
                if is_of_client || !early {
                    self.tell(&state.tls, early);
                }
                return Ok(());
            }
            let segment = match &self.under {
                InnerTransport::Socket(stream) => {
                    stream.recv_within_limit().await.map_err(TransferError::Socket)?
                }
                InnerTransport::Local(local) => local.recv().await.map_err(TransferError::Local)?,
            };
            let segment = segment.ok_or(TransferError::Tls(Error::Ended))?;
            came.push_back(segment).map_err(|error| TransferError::Tls(Error::Memory(error.into())))?;
        }
    }

    /// Makes the result of the handshake known.
    fn tell(&self, tls: &Tls, early: bool) {
        let secrets = tls.secrets().cloned().map(Box::new);
        let info = Info { secrets, early: early.into(), ..tls.negotiated().into() };
        let _ = self.info.set(Rc::new(info)); // it is not set yet
    }

    /// Returns whether the peer ended without a `close_notify`.
    pub(crate) fn is_truncated(&self) -> bool {
        self.state.borrow().truncated
    }

    /// Returns true as long as the handshake is incomplete behind early data, that was served or can be sent.
    pub fn is_unfinished(&self) -> bool {
        self.state.borrow().unfinished
    }

    /// Returns whether the peer has sent something.
    pub fn has_heard(&self) -> bool {
        self.state.borrow().heard
    }

    /// Returns the duration of the handshake, or of its part before early data.
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

    /// Waits until the handshake behind early data is complete. For a connection that nobody else receives
    /// from.
    ///
    /// # Errors
    /// [`TransferError`]: the peer has gone, or does not complete it.
    pub async fn complete(&self) -> Result<(), TransferError> {
        loop {
            let (complete, ended) = {
                let state = self.state.borrow();
                (state.tls.is_complete(), state.ended)
            };
            match (complete, ended) {
                (true, _) => return Ok(()),
                (false, true) => return Err(TransferError::Tls(Error::Ended)),
                (false, false) => self.receive_under(false).await?,
            }
        }
    }

    /// Waits until another task that receives has completed the handshake behind early data. Does not learn
    /// of the connection's end.
    pub fn poll_complete(&self, context: &Context<'_>) -> Poll<()> {
        let State { tls, waiting, .. } = &mut *self.state.borrow_mut();
        if tls.is_complete() {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns the result of the handshake; `None` before its end, unless early data is served.
    pub fn info(&self) -> Option<&Rc<Info>> {
        self.info.get()
    }

    /// Handles bytes from below; `None` is their end.
    fn came(&self, segment: Option<Segment>) -> Result<(), TransferError> {
        let State { tls, plain, out, ended, truncated, unfinished, owes, waiting, .. } =
            &mut *self.state.borrow_mut();
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
                if let InnerTransport::Socket(stream) = &self.under {
                    // Sends as much of the alert as the socket takes at once, without waiting.
                    let _ = stream.poll_send(Some(out), &mut Context::from_waker(Waker::noop()));
                }
                return Err(TransferError::Tls(error));
            }
        }
        *owes |= *unfinished && !tls.is_server(); // the end, or another hello
        if *unfinished && tls.is_complete() {
            *unfinished = false;
            match self.info.get() {
                Some(info) => info.early.set(false),
                None => self.tell(tls, false),
            }
            waiting.drain(..).for_each(Waker::wake);
            // Tickets, for which the client may wait. What does not leave at once goes before the next data.
            if let InnerTransport::Socket(stream) = &self.under {
                let _ = stream.send_at_once(out); // the next send fails likewise
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
            self.receive_under(within_limit).await?;
        }
    }

    /// Hands messages of a handshake with a server over to the driver, which sends them.
    fn send_owed(&self, context: &mut Context<'_>) -> Result<(), TransferError> {
        let State { out, owes, .. } = &mut *self.state.borrow_mut();
        if !std::mem::take(owes) || out.is_empty() {
            return Ok(());
        }
        match &self.under {
            InnerTransport::Socket(stream) => match stream.poll_send(Some(out), context) {
                Poll::Ready(Err(error)) => Err(TransferError::Socket(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
            },
            InnerTransport::Local(_) => Ok(()), // it has no early data
        }
    }

    /// Waits for bytes from below, and handles them.
    async fn receive_under(&self, within_limit: bool) -> Result<(), TransferError> {
        let segment = match &self.under {
            InnerTransport::Socket(stream) if within_limit => {
                stream.recv_within_limit().await.map_err(TransferError::Socket)?
            }
            InnerTransport::Socket(stream) => stream.recv().await.map_err(TransferError::Socket)?,
            InnerTransport::Local(local) => local.recv().await.map_err(TransferError::Local)?,
        };
        self.came(segment)?;
        poll_fn(|context| Poll::Ready(self.send_owed(context))).await
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
            self.send_owed(context)?;
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
                InnerTransport::Socket(stream) if within_limit => {
                    stream.recv_chain_within_limit(&mut came, most).await.map_err(TransferError::Socket)?
                }
                InnerTransport::Socket(stream) => {
                    stream.recv_chain(&mut came, most).await.map_err(TransferError::Socket)?
                }
                InnerTransport::Local(local) => {
                    local.recv_chain(&mut came).await.map_err(TransferError::Local)?
                }
            };
            if !some {
                self.came(None)?;
            }
            while let Some(segment) = came.pop_front() {
                self.came(Some(segment))?;
            }
            poll_fn(|context| Poll::Ready(self.send_owed(context))).await?;
        }
    }

    /// Returns whether something may be received without waiting.
    pub(crate) fn is_readable(&self) -> bool {
        let state = self.state.borrow();
        !state.plain.is_empty() || state.ended || self.socket().is_none_or(Stream::is_readable)
    }

    /// Encrypts all of `chain`, for a caller that hands the records over to the system's stream below, and
    /// has to know how many of them the system has taken.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn encrypt(&self, chain: &mut Chain) -> Result<Chain, TransferError> {
        self.encrypted(chain, false)
    }

    /// Encrypts `chain` into records, behind the bytes that have to be sent before.
    fn encrypted(&self, chain: &mut Chain, last: bool) -> Result<Chain, TransferError> {
        let State { tls, out, .. } = &mut *self.state.borrow_mut();
        if let Some(here) = Here::current() {
            tls.note_time(here.now().since(Time::ZERO));
        }
        tls.send(chain, out).map_err(TransferError::Tls)?;
        if last {
            tls.close_notify(out).map_err(TransferError::Tls)?;
        }
        Ok(std::mem::take(out))
    }

    async fn send_under(&self, out: &mut Chain) -> Result<(), TransferError> {
        match &self.under {
            InnerTransport::Socket(stream) => stream.send(out).await.map_err(TransferError::Socket),
            InnerTransport::Local(local) => local.send(out).await.map_err(TransferError::Local),
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
            InnerTransport::Socket(stream) => stream.send_last(&mut out).await.map_err(TransferError::Socket),
            InnerTransport::Local(local) => {
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
            InnerTransport::Socket(stream) => {
                stream.shutdown(Shutdown::Write).await.map_err(TransferError::Socket)
            }
            InnerTransport::Local(local) => {
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
            InnerTransport::Socket(stream) => stream.flush().await.map_err(TransferError::Socket),
            InnerTransport::Local(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_io::Driver;
    use manylane_local::{Kind, Socket};
    use manylane_sched::{Config, Lane};
    use manylane_sync::qsbr::Reader;
    use manylane_tls::{ServerContext, ServerSettings, Source, Store};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::io::Write;
    use std::sync::Arc;

    /// A listener with `allow-0rtt`, and a client of its certificate.
    fn both() -> (ServerContext, Arc<ClientConfig>) {
        let own = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let file = std::env::temp_dir().join(format!("manylane-net-{}.pem", std::process::id()));
        std::fs::write(&file, own.cert.pem() + &own.signing_key.serialize_pem()).unwrap();
        let certificates = vec![Source::Path(file.clone())];
        let settings =
            ServerSettings { early_data: true, sessions: 100, ..ServerSettings::new(certificates) };
        let server = Store::default().listener(&settings, &mut Vec::new()).unwrap();
        std::fs::remove_file(file).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.enable_early_data = true;
        (server, Arc::new(client))
    }

    /// What a client has to send.
    fn sent(client: &mut ClientConnection) -> Chain {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut chain = Chain::new();
        chain.append(&bytes).unwrap();
        chain
    }

    fn receives(client: &mut ClientConnection, bytes: &Chain) {
        let (bytes, mut at) = (bytes.to_vec(), 0);
        while at < bytes.len() {
            at += client.read_tls(&mut &bytes[at..]).unwrap();
            client.process_new_packets().unwrap();
        }
    }

    #[test]
    fn a_handshake_behind_early_data_holds_no_permit() {
        let (server, client) = both();
        let begun = move || ClientConnection::new(client.clone(), "a.example".try_into().unwrap()).unwrap();
        // The first connection leaves a session with the client.
        let mut first = begun();
        let mut tls = Tls::server(&server, &Reader::new()).unwrap();
        for _ in 0..2 {
            let mut out = Chain::new();
            tls.receive(&mut sent(&mut first), &mut Chain::new(), &mut out).unwrap();
            receives(&mut first, &out);
        }
        assert!(tls.is_complete());

        let mut lane = Lane::new(Config::new()).unwrap();
        let mut driver = Driver::from_environment(lane.here()).unwrap();
        let here = lane.here();
        let serving = async move {
            let (near, far) = Socket::pair(Kind::Stream);
            let (near, far) = (LocalStream::new(near), LocalStream::new(far));
            let tls = Tls::server(&server, &Reader::new()).unwrap();
            let stream = TlsStream::new(InnerTransport::Local(near), tls, Chain::new(), None);
            let mut client = begun();
            client.early_data().expect("there is a session").write_all(b"request").unwrap();
            far.send(&mut sent(&mut client)).await.unwrap();
            stream.handshake(here, true).await.unwrap();
            let info = stream.info().unwrap().clone();
            assert!(info.early.get());
            assert_eq!(OF_CLIENTS.get(), 0, "its permit is another's");

            let mut answer = Chain::new();
            far.recv_chain(&mut answer).await.unwrap();
            receives(&mut client, &answer);
            far.send(&mut sent(&mut client)).await.unwrap();
            stream.complete().await.unwrap();
            assert!(!info.early.get());
            assert_eq!(OF_CLIENTS.get(), 0);
        };
        lane.block_on(&mut driver, serving).unwrap();
    }

    #[test]
    fn a_lane_has_no_more_handshakes_than_the_bound() {
        let begin = |_| Handshake::begin(&OF_CLIENTS).expect("there is room");
        let mut all: Vec<_> = (0..MOST_HANDSHAKES).map(begin).collect();
        assert!(matches!(Handshake::begin(&OF_CLIENTS), Err(TransferError::Tls(Error::Busy))));
        assert!(Handshake::begin(&OF_SERVERS).is_ok(), "clients leave room for servers");
        all.pop();
        assert!(Handshake::begin(&OF_CLIENTS).is_ok(), "the permit of one that has ended is another's");
    }
}
