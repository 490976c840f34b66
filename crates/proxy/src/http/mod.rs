//! HTTP mode: a session is one request after another, each with its response.

mod answer;
mod body;
mod edit;
mod exchange;
mod look;
mod pump;
mod request;
mod ruled;

use crate::flow::{Patience, Splicing, Timer};
use crate::generation::{Backend, Frontend, Listener};
use crate::log::Record;
use crate::rules::{Facts, Scopes};
use crate::run::{Idle, Local, Waiter};
use crate::session::Client;
use exchange::After;
use manylane_balance::Index;
use request::NoMore;
use std::cell::RefCell;
use std::rc::Rc;

/// A client's session.
struct Session<'a> {
    local: &'a Rc<Local>,
    frontend: &'a Frontend,
    listener: &'a Listener,
    client: Client,
    /// Requests so far.
    requests: u64,
    /// The server of the last request: number of the backend, and which.
    last: Option<(usize, Index)>,
    /// A connection that is this session's alone: of this backend and server.
    private: Option<(usize, Index, Idle)>,
    /// For all that it waits for.
    timer: Timer,
    /// Woken when the process stops. It stays among those that wait, also while a request is at work.
    stopping: Waiter<'a>,
    /// Variables of rules.
    scopes: Scopes,
    /// What the log will say of the request at work; none where nothing is logged.
    record: RefCell<Option<Record>>,
}

/// Serves a connection until it ends.
pub(crate) async fn run(local: &Rc<Local>, frontend: &Frontend, listener: &Listener, client: Client, scopes: Scopes) {
    let mut session = Session { local, frontend, listener, client, requests: 0, last: None, private: None, timer: Timer::new(local.here()), stopping: local.stopping.waiter(), scopes, record: RefCell::new(None) };
    loop {
        match session.next_request().await {
            Ok(mut request) => {
                let counts = frontend.counts.own();
                counts.streams.add(1);
                counts.requests.add(1);
                let after = session.exchange(&mut request).await;
                frontend.counts.own().streams_ended.add(1);
                session.log();
                session.requests += 1;
                if after == After::Close {
                    break;
                }
            }
            Err(NoMore::Refused) => {
                frontend.counts.own().request_errors.add(1);
                session.last = None;
                session.log();
                break;
            }
            Err(NoMore::End) => break,
        }
    }
}

impl Session<'_> {
    /// What rules may look at.
    fn facts(&self) -> Facts<'_> {
        Facts {
            local: self.local,
            frontend: self.frontend,
            listener: self.listener,
            peers: self.client.peers(),
            first_request: self.requests == 0,
            scopes: &self.scopes,
        }
    }

    /// Notes something of the request at work, if that is logged.
    fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            what(record);
        }
    }

    /// Logs the request at work, if it was not logged yet.
    fn log(&self) {
        let Some(record) = self.record.take() else { return };
        self.write(&record);
    }

    /// `do-log`: a line of what is known by now.
    fn log_now(&self) {
        if let Some(record) = &*self.record.borrow() {
            self.write(record);
        }
    }

    fn write(&self, record: &Record) {
        let Some(log) = &self.frontend.log else { return };
        self.make_id(None);
        let backend = record.backend.map(|number| &self.local.generation.backends[number]);
        let server = backend.zip(record.server).map(|(backend, index)| &backend.servers[index.get()]);
        record.write(log, &self.facts(), backend, server, self.local.here().now());
    }

    /// Tells the counters of bytes from the client, and to it.
    fn count(&self, backend: &Backend, server: Option<Index>, up: u64, down: u64) {
        self.note(|record| {
            record.up += up;
            record.down += down;
        });
        let server = server.map(|index| backend.servers[index.get()].counts.own());
        let (f, b, l) = (self.frontend.counts.own(), backend.counts.own(), self.listener.counts.own());
        f.bytes_in.add(up);
        f.bytes_out.add(down);
        b.bytes_in.add(up);
        b.bytes_out.add(down);
        l.bytes_in.add(up);
        l.bytes_out.add(down);
        if let Some(server) = server {
            server.bytes_in.add(up);
            server.bytes_out.add(down);
        }
    }

    fn patience(&self, backend: &Backend) -> Patience {
        Patience {
            client: self.scopes.memory.client_timeout.get().or(self.frontend.timeouts.client),
            server: self.scopes.memory.server_timeout.get().or(backend.timeouts.server),
            client_fin: self.frontend.timeouts.client_fin,
            server_fin: backend.timeouts.server_fin,
            independent: self.frontend.common.independent || backend.common.independent,
            in_turn: true,
        }
    }

    fn splicing(&self, backend: &Backend) -> Splicing {
        if self.local.generation.process.no_splice {
            return Splicing::default();
        }
        let (f, b) = (&self.frontend.common, &backend.common);
        Splicing { up: f.splice_request.or(b.splice_request), down: f.splice_response.or(b.splice_response) }
    }
}

/// Counts a response's status, of a proxy's counters.
macro_rules! count_status {
    ($counts:expr, $status:expr) => {{
        let counts = $counts;
        match $status {
            100..=199 => counts.responses_1xx.add(1),
            200..=299 => counts.responses_2xx.add(1),
            300..=399 => counts.responses_3xx.add(1),
            400..=499 => counts.responses_4xx.add(1),
            500..=599 => counts.responses_5xx.add(1),
            _ => counts.responses_other.add(1),
        }
    }};
}
use count_status;
