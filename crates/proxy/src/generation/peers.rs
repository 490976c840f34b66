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

static DESKS: LockClass = LockClass::new("peers section between generations", LockClass::LEAF);

/// The variable with the name of this process among its peers.
const LOCAL_PEER: &[u8] = b"HAPROXY_LOCALPEER";

/// A section. Generations whose sections are the same have one; the lane of the last of them serves it.
#[derive(Debug)]
pub struct Peers {
    /// Its name.
    pub name: Box<str>,
    /// The name of this process.
    pub local: Box<str>,
    /// `disabled`, or this process is not among its peers: nobody is told anything.
    pub is_off: bool,
    /// All peers, this process among them.
    pub peers: Vec<Peer>,
    /// Where this process listens.
    pub listener: Option<Listener>,
    /// It takes over from another process.
    pub follows: bool,
    desk: Mutex<Desk>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Box<str>,
    /// Where it is.
    pub endpoint: Option<Endpoint>,
    /// It is this process.
    pub is_local: bool,
}

/// What lies between the lane that serves the section and others.
#[derive(Debug, Default)]
struct Desk {
    state: State,
    /// From the moment on at which they are bound, until the process ends.
    sockets: Option<Arc<[Bound]>>,
    report: Option<Report>,
}

/// Who has what is known of the peers.
#[derive(Debug, Default)]
enum State {
    /// Nobody has begun yet.
    #[default]
    Fresh,
    /// The lane that serves the section.
    Taken,
    /// It stopped; another one goes on with it.
    Left(Box<Section>),
}

/// What reports say of a section.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether it was told what others have.
    pub resync: Resync,
    /// Milliseconds for which it waits for that.
    pub left: u64,
    /// Its peers, in their order.
    pub peers: Vec<(Link, PeerReport)>,
}

/// How a peer is reached.
#[derive(Clone, Debug)]
pub struct Link {
    /// It is being connected to.
    pub is_connecting: bool,
    /// How the last greeting was answered.
    pub status: Option<Status>,
    /// Seconds since then.
    pub since: Option<u64>,
    /// Milliseconds until it is connected to again.
    pub retry: Option<u64>,
}

impl Peers {
    /// The tables that the section shares.
    pub(crate) fn tables<'t>(&'t self, all: &'t [StickTable]) -> impl Iterator<Item = SharedTable> + 't {
        let own = all.iter().filter(|table| table.peers.as_deref() == Some(&*self.name));
        own.map(|table| SharedTable {
            name: table.wire_name().into(),
            table: table.table.clone(),
            receives_only: table.receives_only,
        })
    }

    /// Whether it is the same section with the same tables, as `other` with those of its generation.
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

    /// Its sockets, once they are bound.
    pub fn sockets(&self) -> Option<Arc<[Bound]>> {
        self.desk.lock().sockets.clone()
    }

    /// They are bound, or closed.
    pub(crate) fn set_sockets(&self, sockets: Option<Arc<[Bound]>>) {
        let before = std::mem::replace(&mut self.desk.lock().sockets, sockets);
        drop(before); // outside of the lock
    }

    /// A lane begins to serve it, as soon as nobody else does: what is known of the peers, which is new
    /// where nobody has served it before.
    pub(crate) fn take(&self, tables: &[StickTable], now: u64) -> Option<Section> {
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

    /// The lane serves it no more.
    pub(crate) fn leave(&self, section: Section) {
        let mut desk = self.desk.lock();
        desk.state = State::Left(Box::new(section));
        desk.report = None;
    }

    /// What reports are to say.
    pub(crate) fn note(&self, report: Report) {
        self.desk.lock().report = Some(report);
    }

    /// What reports say, while a lane serves it.
    pub fn report(&self) -> Option<Report> {
        self.desk.lock().report.clone()
    }
}

/// All sections.
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
    let tree::Peers { name, disabled, binds, peers, tables: _ } = section; // with the other tables
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
        desk: Mutex::new(&DESKS, Desk::default()),
    }
}
