//! `peers` sections: processes that share stick tables.

use super::bind::{self, Listener, text};
use super::process::Process;
use super::proxies::Ids;
use super::refuse::Refuse;
use super::stick::StickTable;
use super::tls::ServerTls;
use manylane_config::table::{ServerOptions, TlsOptions};
use manylane_config::tree::{self, Bind, Config, Settings};
use manylane_net::{Bound, Endpoint};
use manylane_peers::{PeerReport, PeerSpec, Resync, Section, Shard, SharedTable, Status};
use manylane_sync::{Arc, LockClass, Mutex};
use manylane_tls::ServerContext;

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
    shared: Mutex<SectionTask>,
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
    /// `shard`: the part of the keys that the peer gets.
    pub shard: Option<Shard>,
}

/// TLS of a `peers` section. It belongs to one generation, so that a reload takes new certificates.
#[derive(Debug, Default)]
pub struct PeersTls {
    /// `ssl` of the `bind` line.
    pub listener: Option<ServerContext>,
    /// `ssl` of the peers, in their order. This process connects to its successor as this one says.
    pub peers: Vec<Option<ServerTls>>,
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
            write_to: table.write_to.map(|id| all[id.0 as usize].table.clone()),
        })
    }

    /// Returns true if both sections and their tables are the same. `own` and `others` are the tables of the
    /// two generations.
    pub(super) fn is_like(&self, own: &[StickTable], other: &Self, others: &[StickTable]) -> bool {
        let endpoint = |section: &Self| section.listener.as_ref().map(|listener| listener.endpoint.clone());
        let of =
            |section: &Self| (section.name.clone(), section.local.clone(), section.is_off, endpoint(section));
        let same = |(one, two): (SharedTable, SharedTable)| {
            let at = |table: &SharedTable| table.write_to.as_ref().map(Arc::as_ptr);
            one.name == two.name
                && Arc::ptr_eq(&one.table, &two.table)
                && one.receives_only == two.receives_only
                && at(&one) == at(&two)
        };
        of(self) == of(other)
            && self.peers == other.peers
            && self.tables(own).count() == other.tables(others).count()
            && self.tables(own).zip(other.tables(others)).all(same)
    }

    /// Returns the sockets, once they are bound.
    pub fn sockets(&self) -> Option<Arc<[Bound]>> {
        self.shared.lock().sockets.clone()
    }

    /// Stores the bound sockets, or `None` after they are closed.
    pub fn set_sockets(&self, sockets: Option<Arc<[Bound]>>) {
        let before = std::mem::replace(&mut self.shared.lock().sockets, sockets);
        drop(before); // dropped outside the lock
    }

    /// Takes the state to serve the section; new state if no lane has served it before. Returns `None` while
    /// another lane serves it.
    pub fn take(&self, tables: &[StickTable], now: u64) -> Option<Section> {
        let mut shared = self.shared.lock();
        match std::mem::replace(&mut shared.state, State::Taken) {
            State::Taken => None,
            State::Left(section) => Some(*section),
            State::Fresh => {
                drop(shared);
                let spec = |peer: &Peer| PeerSpec { is_local: peer.is_local, shard: peer.shard };
                let peers = self.peers.iter().map(spec);
                Some(Section::new(self.tables(tables), peers, self.follows, now))
            }
        }
    }

    /// Stores the state when a lane stops serving the section.
    pub fn leave(&self, section: Section) {
        let mut shared = self.shared.lock();
        shared.state = State::Left(Box::new(section));
        shared.report = None;
    }

    /// Stores the status for reports.
    pub fn note(&self, report: Report) {
        self.shared.lock().report = Some(report);
    }

    /// Returns the status, while a lane serves the section.
    pub fn report(&self) -> Option<Report> {
        self.shared.lock().report.clone()
    }
}

/// Builds all `peers` sections.
pub(super) fn sections(
    config: &Config,
    process: &Process,
    follows: bool,
    refuse: &mut Refuse<'_>,
) -> (Vec<Arc<Peers>>, Vec<PeersTls>) {
    let local = config.environment.get(LOCAL_PEER).unwrap_or_default();
    let local: Box<str> = String::from_utf8_lossy(local).into();
    let mut one = |section| {
        let (peers, tls) = one(section, &local, config, process, follows, refuse);
        (Arc::new(peers), tls)
    };
    config.peers.iter().map(&mut one).unzip()
}

/// Returns the TLS of a peer, and reports options that have no effect for peers.
fn tls_of(peer: &tree::Peer, process: &Process, refuse: &mut Refuse<'_>) -> Option<ServerTls> {
    let options = &peer.options;
    let tls = TlsOptions { check_ssl: None, check_sni: None, check_alpn: None, ..options.tls.clone() };
    let built = ServerOptions { tls, shard: options.shard, ..ServerOptions::default() };
    if built != *options {
        let why = "of the options of a peer only 'shard' and those of TLS are built, without those of checks";
        refuse.keyword(peer.name.pos(), "peer", why);
    }
    super::tls::of_server_without_requests(&options.tls, &process.tls, peer.name.pos(), refuse)
}

fn one(
    section: &tree::Peers,
    local: &str,
    config: &Config,
    process: &Process,
    follows: bool,
    refuse: &mut Refuse<'_>,
) -> (Peers, PeersTls) {
    // Tables are built with those of proxies, and the defaults of servers are in the options of peers.
    let tree::Peers { name, disabled, binds, default_bind, peers, default_server: _, shards, tables: _ } =
        section;
    let shards = shards.map_or(0, |set| set.value);
    let mut all: Vec<Peer> = Vec::new();
    let mut all_tls = Vec::new();
    let mut binds_of_peers: Vec<Bind> = binds.clone();
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
            binds_of_peers.push(Bind { addresses, options: default_bind.clone(), pos: address.pos });
        }
        if endpoint.is_none() && !is_local {
            let message = format!("peer '{}' expects an address, found none", peer.name.shown());
            refuse.found.alert(peer.name.pos(), message);
        }
        let shard = peer.options.shard.filter(|set| set.value > 0);
        if let Some(set) = shard.filter(|set| set.value > shards) {
            let message = match shards {
                0 => "'shard' expects a line 'shards <number>' in the section, found none".to_owned(),
                _ => {
                    format!("'shard' expects a number up to that of 'shards', {shards}, found {}", set.value)
                }
            };
            refuse.found.alert(set.pos, message);
        }
        // The successor of this process needs all keys.
        let shard = shard.filter(|_| !is_local).map(|set| Shard { number: set.value, of: shards.max(1) });
        all.push(Peer { name: text(&peer.name), endpoint, is_local, shard });
        all_tls.push(tls_of(peer, process, refuse));
    }
    let mut listeners = Vec::new();
    for bind in &binds_of_peers {
        listeners.extend(bind::listeners(
            bind,
            0,
            0,
            &Settings::default(),
            &mut Ids::new(1, std::iter::empty()),
            (&config.global, &process.groups, bind::Shards::Number(1), None),
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
            let listens_at = listeners.first().map(|listener| listener.endpoint.clone());
            if listens_at.is_none() && !is_disabled {
                let message = format!("peers '{}' expects an address to listen at, found none", name.shown());
                refuse.found.alert(name.pos(), message);
            }
            own.endpoint = own.endpoint.take().or(listens_at);
        }
        None if is_disabled => {}
        // Its line was refused.
        None if ["peer", "server"]
            .iter()
            .any(|keyword| refuse.config.is_refused(name, keyword, local.as_bytes())) => {}
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
    let mut listener = listeners.into_iter().next().filter(|_| !is_off);
    if let Some(listener) = listener.as_ref().filter(|own| own.accept_proxy || own.netscaler.is_some()) {
        let why = "no proxy stands between peers: headers before their messages are not read";
        refuse.keyword(listener.pos, "accept-proxy", why);
    }
    let tls = PeersTls { listener: listener.as_mut().and_then(|own| own.tls.take()), peers: all_tls };
    let peers = Peers {
        name: text(name),
        local: local.into(),
        is_off,
        peers: all,
        listener,
        follows,
        shared: Mutex::new(&SECTION_TASKS, SectionTask::default()),
    };
    (peers, tls)
}
