//! Between two requests. Most connections of a proxy are idle: so what a session is then is a few hundred
//! bytes in the block of its task, and all that serves a request is in a block of its own, which goes back to
//! the lane's pool with the request. A session whose client has sent a part of a head rests, too: it keeps
//! these bytes and a [`PartialHead`].

use super::Session;
use super::private::Private;
use super::request::{PartialHead, ends_in_silence, timeouts};
use crate::flow::{StreamTimeouts, Timer};
use crate::generation::{Frontend, Listener};
use crate::rules::SessionTracks;
use crate::run::{Event, IdleClient, Local, WaiterSlot};
use crate::session::{Client, QuietClient};
use manylane_balance::Index;
use manylane_buf::Segment;
use manylane_expr::Variables;
use manylane_net::{Connection, TransferError};
use manylane_pool::{Pool, Pooled};
use manylane_sched::{Here, Time};
use std::cell::{Cell, RefCell};
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

/// What few sessions have between two requests.
#[derive(Debug, Default)]
pub(super) struct More {
    private: Private,
    variables: Option<Variables>,
    tracks: SessionTracks,
    /// What came of the next request.
    partial: Option<Pooled<PartialHead>>,
}

manylane_sync::lazy_static! {
    static MORE: Pool<More> = Pool::new("idle session").expect("the size is a constant below the bound");
}

/// Room for what few sessions have; none without memory.
pub(super) fn place() -> Option<Pooled<More>> {
    MORE.alloc(More::default()).ok()
}

/// How long a client that has just connected may take to ask when its generation ends and no other goes on.
/// It may have sent its request already, and what was accepted is nobody else's.
const FIRST_WORDS: Duration = Duration::from_secs(5);

/// How long one that has just had an answer may take to ask again then. Its next request may be on its way,
/// and only an answer can tell it that the connection ends: to close it would lose that request.
const NEXT_WORDS: Duration = Duration::from_secs(1);

/// Until when a client may ask although its generation ends, which connected or had its last answer at
/// `since` and has made so many `requests`; none where that is over.
pub(super) fn may_begin(local: &Local, since: Time, requests: u64) -> Option<Time> {
    let end = since + if requests == 0 { FIRST_WORDS } else { NEXT_WORDS };
    (local.here().now() < end).then_some(end)
}

/// A session without a request.
#[derive(Debug)]
pub(crate) struct IdleSession {
    client: QuietClient,
    timer: Timer,
    /// Nothing came since then.
    since: Time,
    /// As far as that goes.
    requests: u32,
    /// The number of the backend, and which of its servers.
    last: Option<(u32, Index)>,
    more: Option<Pooled<More>>,
    _idle: IdleClient,
}

impl IdleSession {
    /// A session that begins now, with a client that has sent nothing. None: it is a stream of one.
    pub(crate) fn new(client: Client, local: &Local) -> Option<Self> {
        let (timer, since) = (Timer::new(local.here()), local.here().now());
        Some(Self {
            client: client.into_idle()?,
            timer,
            since,
            requests: 0,
            last: None,
            more: None,
            _idle: IdleClient::new(),
        })
    }

    /// Whether a client is one that can be waited for here: of the system. Those of the process keep their
    /// place in a future.
    pub(crate) fn is_for(client: &Client) -> bool {
        client.end.whole().is_some_and(Connection::is_pollable) && client.received.is_empty()
    }

    /// Whether it has something that only its generation understands.
    pub(crate) fn belongs(&self) -> bool {
        self.more.is_some()
    }

    /// Whether the system has not taken all of the last response: as long as that is so, nothing but bytes of
    /// the client may end this.
    pub(crate) fn owes(&self) -> bool {
        self.client.connection.unsent() > 0
    }

    /// Has the client take the rest of its response, each step in `timeout client`. The time between two
    /// requests begins behind it. Whether the client took it.
    async fn deliver(&mut self, frontend: &Frontend, here: Here) -> bool {
        let timeouts = StreamTimeouts::for_client(frontend.timeouts.client, here.now());
        let flushing = pin!(timeouts.down.flush(here, &self.client.connection));
        let taken = timeouts.in_time(&self.timer, flushing).await;
        self.since = here.now();
        matches!(taken, Ok(Ok(())))
    }

    /// Whether a part of a request is there: its generation serves it.
    pub(crate) fn has_partial_head(&self) -> bool {
        self.partial().is_some()
    }

    fn partial(&self) -> Option<&PartialHead> {
        self.more.as_ref()?.partial.as_deref()
    }

    /// Until when its client may ask although the generation ends.
    pub(crate) fn may_begin(&self, local: &Local) -> Option<Time> {
        may_begin(local, self.since, self.requests.into())
    }

    /// The server of the last request is of no meaning any more.
    pub(crate) fn forget_server(&mut self) {
        self.last = None;
    }

    /// Waits for the client, up to `end` if there is one; with `stopping`, also for the end of its
    /// generation. None when it ends here, without a word.
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

    /// The session, which goes on with what it is [`woken`](Session::woken) with.
    #[inline(always)] // it is made where it stays
    pub(super) fn wake<'a>(
        self,
        local: &'a Rc<Local>,
        frontend: &'a Frontend,
        listener: &'a Listener,
    ) -> Session<'a> {
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
        let (client, record) = (Client::wake(client), RefCell::new(None));
        Session {
            local,
            frontend,
            listener,
            client,
            requests,
            last,
            private,
            lingers: false,
            stream: None,
            timer,
            since,
            scopes,
            record,
            came: 0,
            unsent: Cell::new(0),
            entered: Cell::new(None),
            replied: Cell::new(false),
            partial,
            place: None,
            upgraded: None,
        }
    }
}

impl Session<'_> {
    /// Whether it has nothing to do but to wait, for a client that can be waited for at rest.
    pub(super) fn may_idle(&self) -> bool {
        IdleSession::is_for(&self.client)
    }

    /// Whether its client can be waited for at rest, also amid a head.
    pub(super) fn may_wait_at_rest(&self) -> bool {
        self.client.end.whole().is_some_and(Connection::is_pollable)
    }

    /// Lets go of all that belongs to requests. None when it does not go on, or there is no memory for what
    /// few sessions have.
    #[inline(always)] // it is taken apart where it is
    pub(super) fn into_idle(self, goes_on: bool) -> Option<IdleSession> {
        let Self { local, client, requests, last, private, timer, since, scopes, partial, place, .. } = self;
        let (variables, tracks) = (scopes.take_session(), scopes.tracks.take_session());
        local.scopes.put(scopes);
        if !goes_on {
            return None;
        }
        let more = match variables {
            None if private.is_empty() && tracks.is_none() && partial.is_none() => None,
            variables => {
                let mut more = place.or_else(self::place)?;
                *more = More { private, variables, tracks, partial };
                Some(more)
            }
        };
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        // an index of what stands in a file
        let last = last.map(|(backend, server)| (backend as u32, server));
        Some(IdleSession {
            client: client.into_idle()?,
            timer,
            since,
            requests,
            last,
            more,
            _idle: IdleClient::new(),
        })
    }
}

/// A client that has not taken all of its response is waited for as its receiver, whatever else would have
/// ended its session. None when the connection is over.
pub(crate) async fn deliver(
    local: Rc<Local>,
    whose: (usize, usize),
    mut idle: IdleSession,
) -> Option<IdleSession> {
    idle.deliver(&local.generation.frontends[whose.0], local.here()).await.then_some(idle)
}

/// Waits until the client sends something or leaves, the generation ends if that matters, or the deadline has
/// come.
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
    if let Some((event, place)) = stopping
        && event.poll(place, context).is_ready()
    {
        return Poll::Ready(Woken::Stopping);
    }
    timer.poll(deadline, context).map(|()| Woken::Late)
}
