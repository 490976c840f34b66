//! HTTP mode: a session serves one request after another, and is an [`IdleSession`] between them.

mod administer;
mod answer;
mod authenticate;
mod body;
mod body_peek;
mod cacheable;
mod choose;
pub mod dry_run;
mod edit;
mod exchange;
mod failure;
mod idle_session;
mod multiplexed;
mod pipeline;
mod private;
mod pump;
mod receive;
mod report;
mod request;
mod respond;
mod ruled;
mod service;
mod settle;
mod stream;
mod tries;
mod tunnel;
mod upload;
mod websocket;

use crate::client::Client;
use crate::tcp::Switched;
use idle_session::More;
pub(crate) use idle_session::{IdleSession, Woken, deliver};
use manylane_balance::Index;
use manylane_lanes::{Local, Scopes, Timer, caught};
use manylane_plan::generation::{Frontend, Listener};
use manylane_pool::Pooled;
use manylane_sched::{Boxed, Class, Time};
use multiplexed::Upgraded;
use pipeline::After;
use private::Private;
use request::{NoMore, PartialHead};
use std::pin::pin;
use std::rc::Rc;

/// Number of requests that one client may have served in a row, if they arrive together. Then other tasks
/// run.
const PIPELINED_AT_ONCE: u32 = 16;

/// Next step of a session.
enum Next {
    /// The session waits for the client's next request. Holds what has arrived of it, if anything.
    Idle(Option<Pooled<More>>),
    Over,
    /// The client speaks HTTP/2, perhaps by an upgrade.
    Http2(Option<Pooled<Upgraded>>),
}

/// A client's connection while it serves requests: the state that stays from one request to the next.
struct Session<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    client: Client,
    /// Number of requests so far.
    requests: u64,
    /// Backend and server of the last request.
    last: Option<(usize, Index)>,
    /// Server connections that only this session uses.
    private: Private,
    timer: Timer,
    /// When the wait for the current request began.
    since: Time,
    scopes: Box<Scopes>,
}

/// Starts a session and serves the requests that arrived with the connection, if any; the first continues the
/// stream of `switched`. Returns `None` when the connection is over.
pub(crate) async fn begin(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    client: Client,
    scopes: Box<Scopes>,
    switched: Option<Pooled<Switched>>,
) -> Option<IdleSession> {
    if switched.is_none() {
        scopes.next_request();
    }
    let mut session = Session {
        local,
        frontend,
        listener,
        client,
        requests: 0,
        last: None,
        private: Private::default(),
        timer: Timer::new(local.here()),
        since: local.here().now(),
        scopes,
    };
    let next = match switched {
        None if session.may_idle() => Next::Idle(None),
        switched => session.serve(None, None, switched).await,
    };
    if let Next::Http2(upgraded) = next {
        // In a block of its own, because most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session, upgraded)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(next)
}

/// Continues an idle session that was woken. `whose` holds the numbers of its frontend and listener. Returns
/// `None` when the connection is over.
pub(crate) async fn wake(
    local: Rc<Local>,
    whose: (usize, usize),
    idle: IdleSession,
    woken: Woken,
) -> Option<IdleSession> {
    let frontend = &local.generation.frontends[whose.0];
    let (mut session, partial) = idle.wake(&local, frontend, &frontend.listeners[whose.1]);
    let next = session.serve(Some(woken), partial, None).await;
    if let Next::Http2(upgraded) = next {
        // In a block of its own, because most sessions never need it.
        if let Ok(connection) = Boxed::new(|| multiplexed::serve(session, upgraded)) {
            connection.await;
        }
        return None;
    }
    session.into_idle(next)
}

impl Session<'_> {
    /// Serves one request after another until none has arrived. `woken` is the result of the wait before, and
    /// `partial` what had arrived of the first request before that, or `switched` the stream that it
    /// continues.
    async fn serve(
        &mut self,
        mut woken: Option<Woken>,
        mut partial: Option<Pooled<PartialHead>>,
        mut switched: Option<Pooled<Switched>>,
    ) -> Next {
        let frontend = self.frontend;
        let mut in_a_row = 0;
        if woken.is_none() {
            // Bytes that arrived before the session spoke HTTP.
            frontend.counts.own().received.add(self.client.received.len() as u64);
        }
        loop {
            let mut stream = self.stream();
            stream.switched = switched.take();
            let mut request = match stream.next_request(woken.take(), partial.take()).await {
                Ok(request) => request,
                Err(NoMore::Refused { is_error }) => {
                    stream.refused(is_error).await;
                    return Next::Over;
                }
                Err(NoMore::Partial(more)) => return Next::Idle(Some(more)),
                Err(NoMore::End) => return Next::Over,
                Err(NoMore::Http2(upgraded)) => return Next::Http2(upgraded),
            };
            stream.parties().request_begins();
            let mut up = stream.body_of(&request);
            let after = caught(pin!(stream.run(&mut request, &mut up))).await;
            let after = match after {
                Ok(after) => after,
                Err(cause) => stream.after_defect(cause).await,
            };
            stream.end();
            if after == After::Close || !up.is_done() && !pin!(stream.skip(&mut up)).await {
                stream.linger().await;
                return Next::Over;
            }
            self.requests += 1;
            self.since = self.local.here().now();
            if self.may_idle() {
                return Next::Idle(None);
            }
            self.scopes.next_request();
            self.client.is_itself();
            in_a_row += 1;
            if in_a_row % PIPELINED_AT_ONCE == 0 {
                self.after_others().await;
            }
        }
    }

    /// Lets all other ready tasks of the lane run first, and one round of the lane pass, in which it polls
    /// descriptors.
    async fn after_others(&self) {
        let here = self.local.here();
        let class = here.set_class(Class::Heavy);
        here.yield_now().await;
        if let Some(class) = class {
            here.set_class(class);
        }
    }
}
