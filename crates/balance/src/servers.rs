//! The servers of one backend: their configuration and their state.

use crate::spec::{BuildError, Index, MAX_SERVERS, MAX_WEIGHT, ServerSpec, WEIGHT_SCALE};
use crate::state::ServerState;
use manylane_sync::Arc;
use std::collections::HashMap;
use std::ops::Index as IndexBy;

/// A server: its configuration, which never changes, and its running state.
#[derive(Debug)]
pub struct Server {
    pub(crate) spec: ServerSpec,
    /// State shared by all balancers that have the server.
    pub(crate) state: Arc<ServerState>,
    /// Position of the server in the order of ids.
    pub(crate) rank: u16,
}

impl Server {
    /// Returns the server's configuration.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Returns the server's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the server's running state.
    pub fn state(&self) -> &ServerState {
        &self.state
    }
}

/// All servers of a backend in the order of the configuration, with indexes to find one.
#[derive(Debug)]
pub struct Servers {
    list: Box<[Server]>,
    /// Servers in the order of their ids; among equal ids, in the order of the configuration.
    by_rank: Box<[Index]>,
    names: HashMap<Box<str>, Index>,
    ids: HashMap<u32, Index>,
    cookies: HashMap<Box<[u8]>, Index>,
}

impl Servers {
    /// Creates the servers of `specs`, in this order. They are up; those that are `disabled` are in
    /// maintenance.
    ///
    /// # Errors
    /// [`BuildError`] for duplicate names or ids, weights out of range, and more than [`MAX_SERVERS`]
    /// servers.
    pub fn new(specs: impl IntoIterator<Item = ServerSpec>) -> Result<Self, BuildError> {
        Self::with_states(specs, |_| None)
    }

    /// Does what [`new`](Self::new) does; a server for which `state` returns a state continues with it.
    pub(crate) fn with_states(
        specs: impl IntoIterator<Item = ServerSpec>,
        state: impl Fn(usize) -> Option<Arc<ServerState>>,
    ) -> Result<Self, BuildError> {
        let specs: Vec<ServerSpec> = specs.into_iter().collect();
        if specs.len() > MAX_SERVERS {
            return Err(BuildError::TooMany(specs.len()));
        }
        let mut names = HashMap::with_capacity(specs.len());
        let mut ids = HashMap::with_capacity(specs.len());
        let mut cookies = HashMap::new();
        for (number, spec) in specs.iter().enumerate() {
            let index = Index(number as u16);
            if spec.weight > MAX_WEIGHT {
                return Err(BuildError::Weight(spec.name.clone(), spec.weight));
            }
            if spec.gone {
                continue;
            }
            if names.insert(spec.name.clone(), index).is_some() {
                return Err(BuildError::SameName(spec.name.clone()));
            }
            if ids.insert(spec.id, index).is_some() {
                return Err(BuildError::SameId(spec.id));
            }
            if let Some(cookie) = &spec.cookie {
                cookies.entry(cookie.clone()).or_insert(index); // the first server with this cookie
            }
        }
        let mut by_rank: Vec<Index> = (0..specs.len()).map(|n| Index(n as u16)).collect();
        by_rank.sort_by_key(|index| specs[index.get()].id);
        let mut ranks = vec![0; specs.len()];
        for (rank, index) in by_rank.iter().enumerate() {
            ranks[index.get()] = rank as u16;
        }
        let list = specs
            .into_iter()
            .zip(ranks)
            .enumerate()
            .map(|(number, (spec, rank))| {
                let state = state(number).unwrap_or_else(|| Arc::new(ServerState::new(&spec)));
                Server { state, spec, rank }
            })
            .collect();
        Ok(Self { list, by_rank: by_rank.into(), names, ids, cookies })
    }

    /// Returns the number of servers.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns each server with its index, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = (Index, &Server)> {
        self.list.iter().enumerate().map(|(number, server)| (Index(number as u16), server))
    }

    /// Returns the index of the server at this position of the configuration.
    pub fn index(&self, number: usize) -> Option<Index> {
        (number < self.list.len()).then_some(Index(number as u16))
    }

    /// Returns the server with this name.
    pub fn by_name(&self, name: &str) -> Option<Index> {
        self.names.get(name).copied()
    }

    /// Returns the server with this id.
    pub fn by_id(&self, id: u32) -> Option<Index> {
        self.ids.get(&id).copied()
    }

    /// Returns the first server with this cookie.
    pub fn by_cookie(&self, value: &[u8]) -> Option<Index> {
        self.cookies.get(value).copied()
    }

    /// Replaces the state of a server.
    pub(crate) fn set_state(&mut self, index: Index, state: Arc<ServerState>) {
        self.list[index.get()].state = state;
    }

    pub(crate) fn at_rank(&self, rank: usize) -> Index {
        self.by_rank[rank]
    }

    /// Returns the number of active servers that take new requests; with `backups`, that of backup servers.
    pub fn usable(&self, backups: bool) -> usize {
        self.list.iter().filter(|server| server.spec.backup == backups && server.state.is_usable()).count()
    }

    /// Returns the servers that new requests go to: the active ones; if none is usable, all usable backups or
    /// the first of them (`option allbackups`).
    pub fn serving(&self, all_backups: bool) -> impl Iterator<Item = Index> {
        let backups = self.usable(false) == 0;
        let most = if backups && !all_backups { 1 } else { usize::MAX };
        let of =
            self.iter().filter(move |(_, server)| server.spec.backup == backups && server.state.is_usable());
        of.map(|(index, _)| index).take(most)
    }

    /// Returns the sum of the effective weights, in units of configured weight, of active servers or of
    /// backups.
    pub fn total_weight(&self, backups: bool) -> u32 {
        let of = self.list.iter().filter(|s| s.spec.backup == backups && s.state.is_usable());
        of.map(|s| s.state.effective_weight().div_ceil(WEIGHT_SCALE)).sum()
    }
}

impl IndexBy<Index> for Servers {
    type Output = Server;

    #[inline]
    fn index(&self, index: Index) -> &Server {
        &self.list[index.get()]
    }
}
