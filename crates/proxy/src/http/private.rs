//! Server connections that serve only one client's session.
//!
//! A connection is private
//! - if it [identifies its client](crate::server::PoolKey::shared);
//! - with `http-reuse never`;
//! - once a message on it [authenticates it](manylane_http::Head::authenticates_connection), as NTLM and
//!   Negotiate do: the server attributes all later requests on it to that client. This holds in each mode of
//!   reuse, until the connection ends.
//!
//! A private connection never enters an idle pool, so no other client, lane or check gets it. One of HTTP/1
//! closes with its session, which stays with its generation. One of HTTP/2 carries one stream at a time and
//! closes with its session, too, or earlier (`lane/shared_conns.rs`): after `pool-purge-delay` without a
//! stream, when descriptors are short, or when its generation stops.

use crate::server::PoolKey;
use manylane_balance::Index;
use manylane_lanes::Idle;
use manylane_mux::h2;
use manylane_plan::generation::{Backend, Reuse};
use manylane_pool::{Pool, Pooled};

/// Most private connections that one session keeps; `max-session-srv-conns` applies where it is lower. The
/// number is the default of that option: a client whose server asks for NTLM visits few servers, and each
/// connection is a descriptor that the client holds without a request.
pub(super) const MOST_PRIVATE: usize = 5;

/// The requests that a connection can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    backend: usize,
    index: Index,
    key: PoolKey,
}

impl Purpose {
    pub(super) fn new(backend: &Backend, index: Index, key: PoolKey) -> Self {
        let shared = key.shared && backend.http.reuse != Reuse::Never;
        Self { backend: backend.number, index, key: PoolKey { shared, ..key } }
    }

    /// Returns the key under which other clients find such a connection; `None` if it is private.
    pub(super) fn shared_key(self) -> Option<u64> {
        self.key.shared.then_some(self.key.hash)
    }
}

/// A connection without a request.
#[derive(Debug)]
pub(super) enum PrivateEnd {
    Http1(Idle),
    /// A task of the lane drives the connection and closes it (`lane/shared_conns.rs`).
    Http2(h2::WeakConn),
}

impl PrivateEnd {
    fn is_quiet(&self) -> bool {
        match self {
            Self::Http1(idle) => idle.is_quiet(),
            Self::Http2(conn) => conn.can_begin(),
        }
    }

    fn may_be_used(&self) -> bool {
        match self {
            Self::Http1(idle) => idle.may_be_used(),
            Self::Http2(conn) => conn.can_begin(),
        }
    }

    /// Returns true for a connection of HTTP/2 that takes no further stream.
    fn has_ended(&self) -> bool {
        matches!(self, Self::Http2(conn) if !conn.can_begin())
    }
}

#[derive(Debug)]
struct PrivateConn {
    purpose: Purpose,
    authenticated: bool,
    /// `None` once it is taken.
    end: Option<PrivateEnd>,
}

impl Drop for PrivateConn {
    fn drop(&mut self) {
        if let Some(PrivateEnd::Http2(conn)) = &self.end
            && let Some(conn) = conn.upgrade()
        {
            conn.shutdown();
        }
    }
}

/// The private connections of one session, the most recently used one last.
#[derive(Debug, Default)]
struct List {
    conns: [Option<PrivateConn>; MOST_PRIVATE],
}

manylane_sync::lazy_static! {
    static LISTS: Pool<List> = Pool::new("private \
        connections").expect("the size is a constant below the bound");
}

/// The private connections of a session that no request uses now. Few sessions have any.
#[derive(Debug, Default)]
pub(crate) struct Private(Option<Pooled<List>>);

impl Private {
    /// Returns true if no connection is left. One of HTTP/1 counts even if the server has closed it: to find
    /// out may cost a system call.
    pub(super) fn is_empty(&self) -> bool {
        let Some(list) = &self.0 else { return true };
        list.conns.iter().flatten().all(|conn| conn.end.as_ref().is_none_or(PrivateEnd::has_ended))
    }

    /// Takes the connection for `purpose`, if there is one that still works and `may_serve` accepts it, and
    /// returns whether it is authenticated. Closes the others that are private only because they identify the
    /// client: the session has gone to another server.
    pub(super) fn take(
        &mut self,
        purpose: Option<Purpose>,
        may_serve: impl FnOnce(&PrivateEnd) -> bool,
    ) -> Option<(PrivateEnd, bool)> {
        let list = self.0.as_mut()?;
        let is_it =
            |conn: &Option<PrivateConn>| conn.as_ref().is_some_and(|conn| Some(conn.purpose) == purpose);
        let taken = list.conns.iter_mut().rev().find(|conn| is_it(conn)).and_then(Option::take);
        for conn in &mut list.conns {
            let is_quiet = |conn: &PrivateConn| conn.end.as_ref().is_some_and(PrivateEnd::is_quiet);
            if conn.as_ref().is_some_and(|conn| !conn.authenticated || !is_quiet(conn)) {
                *conn = None;
            }
        }
        if list.conns.iter().all(Option::is_none) {
            self.0 = None;
        }
        let mut taken = taken?;
        let end = taken.end.take_if(|end| may_serve(end) && end.may_be_used())?;
        Some((end, taken.authenticated))
    }

    /// Keeps a connection for later requests of the session. If there are `most` already, this closes the
    /// oldest.
    pub(super) fn put(&mut self, purpose: Purpose, end: PrivateEnd, authenticated: bool, most: usize) {
        let conn = PrivateConn { purpose, authenticated, end: Some(end) };
        let most = most.min(MOST_PRIVATE);
        if most == 0 {
            return;
        }
        if self.0.is_none() {
            // Without memory the connection is closed.
            let Ok(list) = LISTS.alloc(List::default()) else { return };
            self.0 = Some(list);
        }
        let Some(list) = &mut self.0 else { return };
        // Free slots go to the front; the oldest connections follow and are closed where there are too many.
        let conns = &mut list.conns;
        conns.sort_by_key(Option::is_some);
        conns[..=MOST_PRIVATE - most].fill_with(|| None);
        conns.rotate_left(1);
        conns[MOST_PRIVATE - 1] = Some(conn);
    }

    /// Returns the server of this backend that the session authenticated with last; the next request goes
    /// there, too.
    pub(super) fn authenticated_with(&self, backend: &Backend) -> Option<Index> {
        let conns = self.0.as_ref()?.conns.iter().rev().flatten();
        conns
            .filter(|conn| conn.authenticated)
            .map(|conn| conn.purpose)
            .find(|purpose| purpose.backend == backend.number)
            .map(|purpose| purpose.index)
    }
}
