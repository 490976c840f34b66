//! `peers` sections: processes that share stick tables.

use super::bind::{self, Listener, text};
use super::process::Process;
use super::proxies::Ids;
use super::refuse::Refuse;
use super::stick::StickTable;
use manylane_config::table::BindOptions;
use manylane_config::tree::{self, Bind, Config, Settings};
use manylane_net::{Bound, Endpoint};
use manylane_peers::{PeerReport, Resync, Section, SharedTable, Status};
use manylane_sync::{Arc, LockClass, Mutex};

static SECTION_TASKS: LockClass = LockClass::new("peers section between generations", LockClass::LEAF);

/// Variable with the name of this process among its peers.
const LOCAL_PEER: &[u8] = b"HAPROXY_LOCALPEER";

/// A `peers` section. Generations whose sections are the same share one object. One lane of the latest
/// generation serves it.
#[derive(Debug)]
pub struct Peers {
    /// Name of the section.
    pub name: Box<str>,
    /// Name of this process.
    pub local: Box<str>,
    /// True if the section is `disabled`, or this process is not among its peers.
    pub is_off: bool,
    /// All peers, this process included.
    pub peers: Vec<Peer>,
    /// Listener of this process.
    pub listener: Option<Listener>,
    /// True if this process takes over from another one.
    pub follows: bool,
    desk: Mutex<SectionTask>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the peer.
    pub name: Box<str>,
    /// Address of the peer.
    pub endpoint: Option<Endpoint>,
    /// True if the peer is this process.
    pub is_local: bool,
}

/// State that the lane that serves the section shares with others.
#[derive(Debug, Default)]
struct SectionTask {
    state: State,
    /// Bound sockets, from the bind to the end of the process.
    sockets: Option<Arc<[Bound]>>,
    report: Option<Report>,
}

/// Owner of the knowledge about the peers.
#[derive(Debug, Default)]
enum State {
    /// No lane has served the section yet.
    #[default]
    Fresh,
    /// A lane serves the section.
    Taken,
    /// The lane stopped; another one continues with its state.
    Left(Box<Section>),
}

/// Status of a section.
#[derive(Clone, Debug)]
pub struct Report {
    /// Progress of the resync.
    pub resync: Resync,
    /// Remaining time of the resync, in milliseconds.
    pub left: u64,
    /// Peers, in the order of the section.
    pub peers: Vec<(Link, PeerReport)>,
}

/// Status of the connection to a peer.
#[derive(Clone, Debug)]
pub struct Link {
    /// True while it connects.
    pub is_connecting: bool,
    /// Response to the last greeting.
    pub status: Option<Status>,
    /// Age of that response, in seconds.
    pub since: Option<u64>,
    /// Time until the next attempt to connect, in milliseconds.
    pub retry: Option<u64>,
}

impl Peers {
    /// Returns the tables that the section shares.
    pub fn tables<'t>(&'t self, all: &'t [StickTable]) -> impl Iterator<Item = SharedTable> + 't {
        let own = all.iter().filter(|table| table.peers.as_deref() == Some(&*self.name));
        own.map(|table| SharedTable {
            name: table.wire_name().into(),
            table: table.table.clone(),
            receives_only: table.receives_only,
        })
    }

    /// Returns true if both sections and their tables are the same. `own` and `others` are the tables of the
    /// two generations.
    pub(super) fn is_like(&self, own: &[StickTable], other: &Self, others: &[StickTable]) -> bool {
        let place = |section: &Self| section.listener.as_ref().map(|listener| listener.endpoint.clone());
        let of =
            |section: &Self| (section.name.clone(), section.local.clone(), section.is_off, place(section));
        let same = |(one, two): (SharedTable, SharedTable)| {
            one.name == two.name
                && Arc::ptr_eq(&one.table, &two.table)
                && one.receives_only == two.receives_only
        };
        of(self) == of(other)
            && self.peers == other.peers
            && self.tables(own).count() == other.tables(others).count()
            && self.tables(own).zip(other.tables(others)).all(same)
    }

    /// Returns the sockets, once they are bound.
    pub fn sockets(&self) -> Option<Arc<[Bound]>> {
        self.desk.lock().sockets.clone()
    }

    /// Stores the bound sockets, or `None` after they are closed.
    pub fn set_sockets(&self, sockets: Option<Arc<[Bound]>>) {
        let before = std::mem::replace(&mut self.desk.lock().sockets, sockets);
        drop(before); // dropped outside the lock
    }

    /// Takes the state to serve the section; new state if no lane has served it before. Returns `None` while
    /// another lane serves it.
    pub fn take(&self, tables: &[StickTable], now: u64) -> Option<Section> {
        let mut desk = self.desk.lock();
        match std::mem::replace(&mut desk.state, State::Taken) {
            State::Taken => None,
            State::Left(section) => Some(*section),
            State::Fresh => {
                drop(desk);
                let peers = self.peers.iter().map(|peer| peer.is_local);
                Some(Section::new(self.tables(tables), peers, self.follows, now))
            }
        }
    }

    /// Stores the state when a lane stops serving the section.
    pub fn leave(&self, section: Section) {
        let mut desk = self.desk.lock();
        desk.state = State::Left(Box::new(section));
        desk.report = None;
    }

    /// Stores the status for reports.
    pub fn note(&self, report: Report) {
        self.desk.lock().report = Some(report);
    }

    /// Returns the status, while a lane serves the section.
    pub fn report(&self) -> Option<Report> {
        self.desk.lock().report.clone()
    }
}

/// Builds all `peers` sections.
pub(super) fn sections(
    config: &Config,
    process: &Process,
    follows: bool,
    refuse: &mut Refuse<'_>,
) -> Vec<Arc<Peers>> {
    let local = config.environment.get(LOCAL_PEER).unwrap_or_default();
    let local: Box<str> = String::from_utf8_lossy(local).into();
    let one = |section| Arc::new(one(section, &local, config, process, follows, refuse));
    config.peers.iter().map(one).collect()
}

fn one(
    section: &tree::Peers,
    local: &str,
    config: &Config,
    process: &Process,
    follows: bool,
    refuse: &mut Refuse<'_>,
) -> Peers {
    let tree::Peers { name, disabled, binds, peers, tables: _ } = section; // built with the other tables
    let mut all: Vec<Peer> = Vec::new();
    let mut places: Vec<Bind> = Vec::new();
    for bind in binds {
        match bind.options.tls.ssl {
            Some(set) => refuse.keyword(set.pos, "ssl", "peers speak plain TCP"),
            None => places.push(bind.clone()),
        }
    }
    for peer in peers {
        let is_local = peer.name.bytes() == local.as_bytes();
        let endpoint = peer.address.as_ref().and_then(|set| {
            match set.value.resolve().and_then(|address| address.endpoints()) {
                Ok(mut all) if !all.is_empty() => Some(all.swap_remove(0)),
                Ok(_) => None,
                Err(error) => {
                    refuse.found.alert(set.pos, format!("'peer' : {error}"));
                    None
                }
            }
        });
        if let Some(address) = peer.address.as_ref().filter(|_| is_local && binds.is_empty()) {
            let addresses = vec![address.clone()];
            places.push(Bind { addresses, options: BindOptions::default(), pos: address.pos });
        }
        if endpoint.is_none() && !is_local {
            let message = format!("peer '{}' expects an address, found none", peer.name.shown());
            refuse.found.alert(peer.name.pos(), message);
        }
        all.push(Peer { name: text(&peer.name), endpoint, is_local });
    }
    let mut listeners = Vec::new();
    for place in &places {
        listeners.extend(bind::listeners(
            place,
            0,
            0,
            &Settings::default(),
            &mut Ids::new(1, std::iter::empty()),
            (&config.global, &process.groups, bind::Shards::Number(1)),
            refuse,
        ));
    }
    let is_disabled = disabled.is_some_and(|set| set.value);
    if let Some(second) = listeners.get(1) {
        let message = format!("peers '{}' expects one address to listen at, found more", name.shown());
        refuse.found.alert(second.pos, message);
    }
    let own = all.iter_mut().find(|peer| peer.is_local);
    let mut is_off = is_disabled;
    match own {
        Some(own) => {
            let place = listeners.first().map(|listener| listener.endpoint.clone());
            if place.is_none() && !is_disabled {
                let message = format!("peers '{}' expects an address to listen at, found none", name.shown());
                refuse.found.alert(name.pos(), message);
            }
            own.endpoint = own.endpoint.take().or(place);
        }
        None if is_disabled => {}
        None => {
            is_off = true;
            let message = format!(
                "peers '{}' is not used: none of its peers is named '{local}', as this process is \
                 ('localpeer', '-L')",
                name.shown()
            );
            refuse.found.warning(name.pos(), message);
        }
    }
    Peers {
        name: text(name),
        local: local.into(),
        is_off,
        peers: all,
        listener: listeners.into_iter().next().filter(|_| !is_off),
        follows,
        desk: Mutex::new(&SECTION_TASKS, SectionTask::default()),
    }
}
