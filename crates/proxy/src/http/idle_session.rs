//! A session between two requests. Most connections of a proxy are idle, so an idle session takes only a few
//! hundred bytes in its task's block. The state that serves a request has a block of its own, which returns
//! to the lane's pool with the request. A session is idle also while its client has sent only a part of a
//! head: it keeps these bytes and a [`PartialHead`].

use super::private::Private;
use super::request::{PartialHead, ends_in_silence, timeouts};
use super::{Next, Session};
use crate::client::{Client, QuietClient};
use crate::flow::StreamTimeouts;
use manylane_balance::Index;
use manylane_buf::Segment;
use manylane_expr::Variables;
use manylane_lanes::{Event, IdleClient, Local, SessionTracks, Timer, WaiterSlot};
use manylane_net::{Connection, TransferError};
use manylane_plan::generation::{Frontend, Listener};
use manylane_pool::{Pool, Pooled};
use manylane_sched::{Here, Time};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How a wait ended.
pub(crate) enum Woken {
    Bytes(Segment),
    Left,
    Late,
    Stopping,
}

/// State that few sessions have between two requests.
#[derive(Debug, Default)]
pub(super) struct More {
    private: Private,
    variables: Option<Variables>,
    tracks: SessionTracks,
    /// The part of the next request that has arrived.
    pub(super) partial: Option<Pooled<PartialHead>>,
}

impl More {
    fn is_empty(&self) -> bool {
        let Self { private, variables, tracks, partial } = self;
        private.is_empty() && variables.is_none() && tracks.is_none() && partial.is_none()
    }
}

manylane_sync::lazy_static! {
    static MORE: Pool<More> = Pool::new("idle session").expect("the size is a constant below the bound");
}

/// Allocates a [`More`]; `None` if there is no memory.
pub(super) fn allocate() -> Option<Pooled<More>> {
    MORE.alloc(More::default()).ok()
}

/// Time for the first request of a client that has just connected, when its generation ends and no successor
/// takes the connection. The client may have sent its request already, and only this process has the accepted
/// connection.
const FIRST_WORDS: Duration = Duration::from_secs(5);

/// Time for the next request of a client that has just had a response, in the same situation. Its request may
/// be on its way, and closing now would lose it: only a response can announce the end of the connection.
const NEXT_WORDS: Duration = Duration::from_secs(1);

/// Returns the time until which a client may send a request although its generation ends, or `None` if that
/// time has passed. The client connected or had its last response at `since`, and has made `requests`
/// requests.
pub(super) fn may_begin(local: &Local, since: Time, requests: u64) -> Option<Time> {
    let end = since + if requests == 0 { FIRST_WORDS } else { NEXT_WORDS };
    (local.here().now() < end).then_some(end)
}

/// A session without a request.
#[derive(Debug)]
pub(crate) struct IdleSession {
    client: QuietClient,
    timer: Timer,
    /// When the wait for the next request began.
    since: Time,
    /// Number of requests so far; stops at the maximum of the type.
    requests: u32,
    /// Backend and server of the last request.
    last: Option<(u32, Index)>,
    more: Option<Pooled<More>>,
    _idle: IdleClient,
}

impl IdleSession {
    /// Returns a session that begins now, with a client that has sent nothing. `None` for a stream of HTTP/2.
    pub(crate) fn new(client: Client, local: &Local) -> Option<Self> {
        let (timer, since) = (Timer::new(local.here()), local.here().now());
        Some(Self {
            client: client.into_idle()?,
            timer,
            since,
            requests: 0,
            last: None,
            more: None,
            _idle: IdleClient::begin(),
        })
    }

    /// Returns true if the lane can wait for this client in an idle session: the client has a socket of the
    /// kernel and has sent nothing. Clients inside the process wait in a future of their own.
    pub(crate) fn is_for(client: &Client) -> bool {
        client.end.whole().is_some_and(Connection::is_pollable) && client.received.is_empty()
    }

    /// Returns true if the client speaks TLS, which tells an end from a truncation.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.client.connection.tls().is_some()
    }

    /// Ends the session without a request; tells a TLS client by the closing alert.
    pub(crate) async fn close(self, here: Here) {
        // The system has to take a few bytes; a client that reads nothing may prevent that.
        const LONGEST: Duration = Duration::from_secs(1);
        let connection = self.client.connection;
        // The end of the handshake would meet a closed socket, and the client lose what is under way.
        if let Some(tls) = connection.tls()
            && tls.info().is_some_and(|info| info.early.get())
        {
            let _ = here.timeout(LONGEST, tls.complete()).await;
        }
        let _ = here.timeout(LONGEST, connection.close()).await;
    }

    /// Returns true if the session has state that only its generation understands. Drops that state first if
    /// nothing of it is left but private connections that have ended.
    pub(crate) fn belongs(&mut self) -> bool {
        self.more.take_if(|more| more.is_empty());
        self.more.is_some()
    }

    /// Returns true if the kernel has not taken the whole last response. Until it has, only bytes of the
    /// client may end the idle session.
    pub(crate) fn owes(&self) -> bool {
        self.client.connection.unsent() > 0
    }

    /// Waits until the client has taken the rest of its response, each step within `timeout client`, and
    /// starts the time between two requests anew. Returns true if the client took everything.
    async fn deliver(&mut self, frontend: &Frontend, here: Here) -> bool {
        let timeouts = StreamTimeouts::for_client(frontend.timeouts.client, here.now());
        let flushing = pin!(timeouts.down.flush(here, &self.client.connection));
        let taken = timeouts.in_time(&self.timer, flushing).await;
        self.since = here.now();
        matches!(taken, Ok(Ok(())))
    }

    /// Returns true if a part of a request has arrived: then its generation serves the request.
    pub(crate) fn has_partial_head(&self) -> bool {
        self.partial().is_some()
    }

    fn partial(&self) -> Option<&PartialHead> {
        self.more.as_ref()?.partial.as_deref()
    }

    /// Returns the time until which the client may send a request although the generation ends.
    pub(crate) fn may_begin(&self, local: &Local) -> Option<Time> {
        may_begin(local, self.since, self.requests.into())
    }

    /// Forgets the server of the last request, which no longer means anything.
    pub(crate) fn forget_server(&mut self) {
        self.last = None;
    }

    /// Waits for the client, until `end` if given; with `stopping` also for the end of the generation.
    /// Returns `None` if the session ends here without a response.
    pub(crate) fn poll(
        &mut self,
        frontend: &Frontend,
        stopping: Option<(&Event, &mut WaiterSlot)>,
        end: Option<Time>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Woken>> {
        let (deadline, silently) = match self.partial() {
            Some(partial) => (partial.deadline, false),
            None => {
                let requests = self.requests.into();
                let idle = timeouts(frontend, requests).0;
                let deadline = idle.map_or(Time::MAX, |idle| self.since + idle);
                (deadline, ends_in_silence(frontend, requests))
            }
        };
        let (deadline, ends) = end.filter(|&end| end < deadline).map_or((deadline, false), |end| (end, true));
        let connection = &self.client.connection;
        if !connection.is_pollable() {
            return Poll::Ready(None);
        }
        let begun = self.has_partial_head();
        let receive =
            |context: &mut Context<'_>| connection.poll_recv(!begun, context).unwrap_or(Poll::Pending);
        Poll::Ready(match ready!(until(receive, stopping, &self.timer, deadline, context)) {
            Woken::Stopping => None,
            Woken::Late if ends => None,
            Woken::Left | Woken::Late if silently => None,
            woken => Some(woken),
        })
    }

    /// Turns this into a session that serves requests. Returns also what had arrived of its next request.
    #[inline(always)] // builds the session at its final place
    pub(super) fn wake<'a>(
        self,
        local: &'a Rc<Local>,
        frontend: &'a Frontend,
        listener: &'a Listener,
    ) -> (Session<'a>, Option<Pooled<PartialHead>>) {
        let Self { client, timer, since, requests, last, more, _idle: _ } = self;
        let (requests, last) = (requests.into(), last.map(|(backend, server)| (backend as usize, server)));
        let scopes = local.scopes.take();
        let More { private, variables, tracks, partial } =
            more.map_or_else(More::default, Pooled::into_inner);
        if let Some(variables) = variables {
            scopes.put_session(variables);
        }
        if !tracks.is_none() {
            scopes.tracks.put_session(tracks);
        }
        let mut client = Client::wake(client);
        if local.generation.reads_connections {
            client.identify();
        }
        (
            Session { local, frontend, listener, client, requests, last, private, timer, since, scopes },
            partial,
        )
    }
}

impl Session<'_> {
    /// Returns true if the session has nothing to do but to wait, and can wait as an [`IdleSession`].
    pub(super) fn may_idle(&self) -> bool {
        IdleSession::is_for(&self.client)
    }

    /// Releases everything that belongs to requests. Returns `None` if the session does not continue, or if
    /// there is no memory for its [`More`].
    #[inline(always)] // takes the session apart in place, without a copy
    pub(super) fn into_idle(self, next: Next) -> Option<IdleSession> {
        let Self { local, client, requests, last, private, timer, since, scopes, .. } = self;
        let (variables, tracks) = (scopes.take_session(), scopes.tracks.take_session());
        local.scopes.put(scopes);
        let Next::Idle(more) = next else { return None };
        let more = match (more, variables) {
            (None, None) if private.is_empty() && tracks.is_none() => None,
            (more, variables) => {
                let mut more = more.or_else(allocate)?;
                (more.private, more.variables, more.tracks) = (private, variables, tracks);
                Some(more)
            }
        };
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        // The number counts backends of a file, so it fits.
        let last = last.map(|(backend, server)| (backend as u32, server));
        Some(IdleSession {
            client: client.into_idle()?,
            timer,
            since,
            requests,
            last,
            more,
            _idle: IdleClient::begin(),
        })
    }
}

/// Waits until the client of an idle session has taken its whole response, whatever else would have ended the
/// session. Returns `None` when the connection is over.
pub(crate) async fn deliver(
    local: Rc<Local>,
    whose: (usize, usize),
    mut idle: IdleSession,
) -> Option<IdleSession> {
    idle.deliver(&local.generation.frontends[whose.0], local.here()).await.then_some(idle)
}

/// Waits until the client sends or leaves, the generation ends (with `stopping`), or the deadline passes.
pub(super) fn until(
    receive: impl FnOnce(&mut Context<'_>) -> Poll<Result<Option<Segment>, TransferError>>,
    stopping: Option<(&Event, &mut WaiterSlot)>,
    timer: &Timer,
    deadline: Time,
    context: &mut Context<'_>,
) -> Poll<Woken> {
    if let Poll::Ready(outcome) = receive(context) {
        return Poll::Ready(outcome.ok().flatten().map_or(Woken::Left, Woken::Bytes));
    }
    if let Some((event, slot)) = stopping
        && event.poll(slot, context).is_ready()
    {
        return Poll::Ready(Woken::Stopping);
    }
    timer.poll(deadline, context).map(|()| Woken::Late)
}
