//! The servers of one backend: what they are and how they are.

use crate::spec::{BuildError, Index, MAX_SERVERS, MAX_WEIGHT, ServerSpec, WEIGHT_SCALE};
use crate::state::ServerState;
use manylane_sync::Arc;
use std::collections::HashMap;
use std::ops::Index as IndexBy;

/// A server: its configuration, which never changes, and its state.
#[derive(Debug)]
pub struct Server {
    pub(crate) spec: ServerSpec,
    /// The same for all balancers that have the server.
    pub(crate) state: Arc<ServerState>,
    /// Its place in the order of ids.
    pub(crate) rank: u16,
}

impl Server {
    /// As it was configured.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How it is now.
    pub fn state(&self) -> &ServerState {
        &self.state
    }
}

/// All servers of a backend in the order of the configuration, and the ways to find one.
#[derive(Debug)]
pub struct Servers {
    list: Box<[Server]>,
    /// Servers in the order of their ids, equal ones as configured.
    by_rank: Box<[Index]>,
    names: HashMap<Box<str>, Index>,
    ids: HashMap<u32, Index>,
    cookies: HashMap<Box<[u8]>, Index>,
}

impl Servers {
    /// The servers of `specs`, in this order. They are up, those that are `disabled` in maintenance.
    ///
    /// # Errors
    /// [`BuildError`] for names or ids that are there twice, weights out of range and more than
    /// [`MAX_SERVERS`].
    pub fn new(specs: impl IntoIterator<Item = ServerSpec>) -> Result<Self, BuildError> {
        Self::with_states(specs, |_| None)
    }

    /// The same, where `state` gives the states of those that were there before.
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
                cookies.entry(cookie.clone()).or_insert(index); // the first of those that share a cookie
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

    /// How many.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Each with its index, as configured.
    pub fn iter(&self) -> impl Iterator<Item = (Index, &Server)> {
        self.list.iter().enumerate().map(|(number, server)| (Index(number as u16), server))
    }

    /// The server with this place in the configuration.
    pub fn index(&self, number: usize) -> Option<Index> {
        (number < self.list.len()).then_some(Index(number as u16))
    }

    /// The server with this name.
    pub fn by_name(&self, name: &str) -> Option<Index> {
        self.names.get(name).copied()
    }

    /// The server with this id.
    pub fn by_id(&self, id: u32) -> Option<Index> {
        self.ids.get(&id).copied()
    }

    /// The first server with this cookie.
    pub fn by_cookie(&self, value: &[u8]) -> Option<Index> {
        self.cookies.get(value).copied()
    }

    /// It is the server that has this state.
    pub(crate) fn set_state(&mut self, index: Index, state: Arc<ServerState>) {
        self.list[index.get()].state = state;
    }

    pub(crate) fn at_rank(&self, rank: usize) -> Index {
        self.by_rank[rank]
    }

    /// Active servers that take new requests, or backups that would.
    pub fn usable(&self, backups: bool) -> usize {
        self.list.iter().filter(|server| server.spec.backup == backups && server.state.is_usable()).count()
    }

    /// Servers that new requests go to: the active ones, or backups where there are none, all or the first
    /// (`option allbackups`).
    pub fn serving(&self, all_backups: bool) -> impl Iterator<Item = Index> {
        let backups = self.usable(false) == 0;
        let most = if backups && !all_backups { 1 } else { usize::MAX };
        let of =
            self.iter().filter(move |(_, server)| server.spec.backup == backups && server.state.is_usable());
        of.map(|(index, _)| index).take(most)
    }

    /// The sum of the weights that are in effect, in units of configured weight, of active servers, or of
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
