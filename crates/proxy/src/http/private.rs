//! Connections to servers that serve one client's session alone.
//!
//! A connection is private
//! - where its [key](crate::run::Local::key) says so: it tells of its client;
//! - with `http-reuse never`;
//! - once a message on it [authenticates it](manylane_http::Head::authenticates_connection), NTLM and
//!   Negotiate: the server takes all that comes on it later for that client's. So it is in each mode of
//!   reuse, until it ends.
//!
//! A private connection never lies on a idle pool, so no other client, no other lane and no check gets it. It
//! is closed with its session, which stays with its generation.

use crate::generation::{Backend, Server};
use crate::run::Idle;
use manylane_balance::Index;
use manylane_pool::{Pool, Pooled};

/// Connections that one session keeps at most: `max-session-srv-conns` where that is less. As many as its
/// default, since a client whose server asks for NTLM visits few servers, and each is a descriptor that the
/// client holds without a request.
pub(super) const MOST_PRIVATE: usize = 5;

/// What a private connection is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    backend: usize,
    index: Index,
    /// Where the server is.
    addr: u32,
    /// What the connection is good for beside that; none: for requests that say nothing of their own about
    /// it.
    key: Option<u64>,
}

impl Purpose {
    pub(super) fn new(backend: &Backend, server: &Server, index: Index, key: Option<u64>) -> Self {
        Self { backend: backend.number, index, addr: server.addr.word() >> 1, key }
    }

    /// What a shared connection is good for; none: it is for one client alone.
    pub(super) fn key(&self) -> Option<u64> {
        self.key
    }
}

#[derive(Debug)]
struct PrivateConn {
    purpose: Purpose,
    authenticated: bool,
    idle: Idle,
}

/// Those of one session, the one that was used last at the end.
#[derive(Debug, Default)]
struct List {
    conns: [Option<PrivateConn>; MOST_PRIVATE],
}

manylane_sync::lazy_static! {
    static LISTS: Pool<List> = Pool::new("private \
        connections").expect("the size is a constant below the bound");
}

/// The private connections of a session that no request uses. Few sessions have any.
#[derive(Debug, Default)]
pub(crate) struct Private(Option<Pooled<List>>);

impl Private {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The connection for this, if it is there and still good, and whether it is authenticated. Others that
    /// only tell of their client are closed: the session has gone elsewhere.
    pub(super) fn take(&mut self, purpose: Purpose, may_serve: bool) -> Option<(Idle, bool)> {
        let list = self.0.as_mut()?;
        let is_it = |conn: &Option<PrivateConn>| conn.as_ref().is_some_and(|conn| conn.purpose == purpose);
        let taken = list.conns.iter_mut().rev().find(|conn| is_it(conn)).and_then(Option::take);
        for conn in &mut list.conns {
            if conn.as_ref().is_some_and(|conn| !conn.authenticated || !conn.idle.is_quiet()) {
                *conn = None;
            }
        }
        if list.conns.iter().all(Option::is_none) {
            self.0 = None;
        }
        taken.filter(|conn| may_serve && conn.idle.may_be_used()).map(|conn| (conn.idle, conn.authenticated))
    }

    /// Keeps a connection for the session's next requests; the oldest is closed where there are `most`.
    pub(super) fn put(&mut self, purpose: Purpose, idle: Idle, authenticated: bool, most: usize) {
        let most = most.min(MOST_PRIVATE);
        if most == 0 {
            return;
        }
        if self.0.is_none() {
            let Ok(list) = LISTS.alloc(List::default()) else { return }; // no memory: it is closed
            self.0 = Some(list);
        }
        let Some(list) = &mut self.0 else { return };
        // What is free goes to the front, and with it what is too old.
        let conns = &mut list.conns;
        conns.sort_by_key(Option::is_some);
        conns[..=MOST_PRIVATE - most].fill_with(|| None);
        conns.rotate_left(1);
        conns[MOST_PRIVATE - 1] = Some(PrivateConn { purpose, authenticated, idle });
    }

    /// The server of this backend that the session authenticated with last: its next request goes there, too.
    pub(super) fn authenticated_with(&self, backend: &Backend) -> Option<Index> {
        let conns = self.0.as_ref()?.conns.iter().rev().flatten();
        conns
            .filter(|conn| conn.authenticated)
            .map(|conn| conn.purpose)
            .find(|purpose| purpose.backend == backend.number)
            .map(|purpose| purpose.index)
    }
}
