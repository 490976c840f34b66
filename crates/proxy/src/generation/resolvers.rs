//! `resolvers` sections, and what servers want of them.

use super::bind::text;
use super::notify::Notify;
use super::refuse::Refuse;
use super::track::ServerNumber;
use manylane_config::lex::Word;
use manylane_config::table::ServerOptions;
use manylane_config::tree::{self, Set};
use manylane_net::address::{Host, Location, Port, Transport};
use manylane_resolve::{Counters, Kind, Memo, Name, Network, Past, Section, Settings, Wish, system_servers};
use manylane_sync::{Arc, LockClass, Mutex};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

static DESKS: LockClass = LockClass::new("orders to a resolvers section", LockClass::LEAF);
static QUESTIONS: LockClass = LockClass::new("question of a rule to name servers", LockClass::LEAF);

/// The file of `parse-resolv-conf`.
const SYSTEM: &str = "/etc/resolv.conf";

/// Orders that wait for the lane that asks the name servers; more are refused, and a rule goes on without an
/// address.
pub const MOST_ORDERS: usize = 16_384;

/// A section.
#[derive(Debug)]
pub struct Resolvers {
    /// Its name.
    pub name: Box<str>,
    /// Whom it asks.
    pub servers: Vec<NameServer>,
    /// How.
    pub settings: Settings,
    /// What others want of it.
    desk: Mutex<Desk>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    /// Its name.
    pub name: Box<str>,
    /// Where it is.
    pub address: SocketAddr,
    /// It is asked over TCP only: `tcp@`.
    pub tcp: bool,
}

/// What lies between the lane that asks and the others. Generations whose sections are the same have one; the
/// lane of the last of them asks.
#[derive(Debug, Default)]
struct Desk {
    orders: Vec<Order>,
    /// Wakes the lane that asks, the last one; those before it still have what was asked of them, and ask
    /// again when it goes.
    clerks: Vec<Arc<Notify>>,
    /// What has been found out, for whoever asks next.
    past: Past,
    counters: Vec<Counters>,
    /// What was counted when an operator cleared the counters.
    cleared: Vec<Counters>,
}

impl Desk {
    fn is_of(&self, clerk: &Arc<Notify>) -> bool {
        self.clerks.last().is_some_and(|own| Arc::ptr_eq(own, clerk))
    }
}

/// What another lane wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// A server has another name: `set server fqdn`.
    Rename(ServerNumber),
    /// A rule wants an address.
    Ask(Arc<Question>),
}

/// A rule's question.
#[derive(Debug)]
pub(crate) struct Question {
    /// The name.
    pub(crate) name: Name,
    /// The family that is asked for first.
    pub(crate) kind: Kind,
    state: Mutex<Reply>,
}

#[derive(Debug, Default)]
struct Reply {
    /// There is one: an address, or none.
    answer: Option<Option<IpAddr>>,
    waiter: Option<Waker>,
}

impl Question {
    pub(crate) fn new(name: Name, kind: Kind) -> Self {
        Self { name, kind, state: Mutex::new(&QUESTIONS, Reply::default()) }
    }

    /// Whoever waits goes on.
    pub(crate) fn answer(&self, address: Option<IpAddr>) {
        let waiter = {
            let mut state = self.state.lock();
            state.answer.get_or_insert(address);
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits for the answer.
    pub(crate) async fn answered(&self) -> Option<IpAddr> {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            match state.answer {
                Some(answer) => std::task::Poll::Ready(answer),
                None => {
                    state.waiter = Some(context.waker().clone());
                    std::task::Poll::Pending
                }
            }
        })
        .await
    }
}

impl Resolvers {
    /// Whether it is the same section, as the file has it.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.name, &self.servers, &self.settings) == (&other.name, &other.servers, &other.settings)
    }

    /// A lane begins to ask, in the place of whoever did. It goes on where that one was.
    pub(crate) fn begin(&self, clerk: &Arc<Notify>) -> Section {
        let (past, counters) = {
            let mut desk = self.desk.lock();
            desk.clerks.push(clerk.clone());
            (desk.past.clone(), desk.counters.clone())
        };
        clerk.ring(); // orders may have come for the one before
        Section::resume(self.settings, past, counters)
    }

    /// Another lane wants something. Whether there is room for it.
    pub(crate) fn order(&self, order: Order) -> bool {
        let clerk = {
            let mut desk = self.desk.lock();
            let Some(clerk) = desk.clerks.last().cloned().filter(|_| desk.orders.len() < MOST_ORDERS) else {
                return false;
            };
            desk.orders.push(order);
            clerk
        };
        clerk.ring();
        true
    }

    /// Whether it is that lane that asks: none has begun after it and is still there.
    pub(crate) fn is_asked_by(&self, clerk: &Arc<Notify>) -> bool {
        self.desk.lock().is_of(clerk)
    }

    /// What is wanted, for the lane that asks.
    pub(crate) fn orders(&self, clerk: &Arc<Notify>) -> Vec<Order> {
        let mut desk = self.desk.lock();
        if desk.is_of(clerk) { std::mem::take(&mut desk.orders) } else { Vec::new() }
    }

    /// That one asks no more. What is still wanted and nobody is left for.
    pub(crate) fn close(&self, clerk: &Arc<Notify>) -> Vec<Order> {
        let successor = {
            let mut desk = self.desk.lock();
            desk.clerks.retain(|own| !Arc::ptr_eq(own, clerk));
            match desk.clerks.last() {
                Some(successor) => successor.clone(),
                None => return std::mem::take(&mut desk.orders),
            }
        };
        successor.ring();
        Vec::new()
    }

    /// What was found out, for whoever asks next, and what came of questions, for reports.
    pub(crate) fn note(
        &self,
        clerk: &Arc<Notify>,
        found: Vec<((Name, Kind), Memo)>,
        gone: Vec<(Name, Kind)>,
        counters: &[Counters],
    ) {
        let mut desk = self.desk.lock();
        if !desk.is_of(clerk) {
            return;
        }
        desk.past.extend(found);
        for name in gone {
            desk.past.remove(&name);
        }
        desk.counters.clear();
        desk.counters.extend_from_slice(counters);
    }

    /// What came of questions to each name server, since the counters were cleared.
    pub fn counters(&self) -> Vec<Counters> {
        let desk = self.desk.lock();
        let of = |all: &[Counters], server: usize| all.get(server).copied().unwrap_or_default();
        (0..self.servers.len())
            .map(|server| of(&desk.counters, server).since(&of(&desk.cleared, server)))
            .collect()
    }

    /// From now on only what comes is told.
    pub fn clear(&self) {
        let mut desk = self.desk.lock();
        desk.cleared = desk.counters.clone();
    }
}

/// How a server's name becomes its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Number of the section.
    pub section: usize,
    /// The service whose servers it stands for.
    pub service: Option<Name>,
    /// Which address it wants.
    pub wish: Wish,
    /// `resolve-opts ignore-weight`
    pub ignores_weight: bool,
}

/// All sections.
pub(super) fn sections(config: &tree::Config, refuse: &mut Refuse<'_>) -> Vec<Arc<Resolvers>> {
    config.resolvers.iter().map(|section| Arc::new(one(section, refuse))).collect()
}

fn one(section: &tree::Resolvers, refuse: &mut Refuse<'_>) -> Resolvers {
    let tree::Resolvers {
        name,
        nameservers,
        system,
        holds,
        payload,
        retries,
        timeout_resolve,
        timeout_retry,
    } = section;
    let mut servers: Vec<NameServer> = Vec::new();
    for own in nameservers {
        let address = &own.address.value;
        let Location::Ip { host, port: Port::One(port) } = &address.place else {
            let message = format!("'nameserver' expects an IP address and a port, found '{address}'");
            refuse.found.alert(own.address.pos, message);
            continue;
        };
        let ip: IpAddr = match host {
            Host::V4(ip) => (*ip).into(),
            Host::V6(ip) => (*ip).into(),
            Host::Name { .. } => continue, // names are refused there
        };
        let tcp = address.transport == Some(Transport::Stream);
        servers.push(NameServer { name: text(&own.name), address: (ip, *port).into(), tcp });
    }
    if *system {
        match std::fs::read(SYSTEM) {
            Ok(bytes) => {
                let found = system_servers(&String::from_utf8_lossy(&bytes));
                if found.is_empty() {
                    let message = format!("'parse-resolv-conf' expects name servers in {SYSTEM}, found none");
                    refuse.found.warning(name.pos(), message);
                }
                for address in found {
                    let name: Box<str> = address.ip().to_string().into();
                    if servers.iter().all(|own| own.name != name) {
                        servers.push(NameServer { name, address, tcp: false });
                    }
                }
            }
            Err(error) => refuse.found.alert(name.pos(), format!("'parse-resolv-conf' : {SYSTEM}: {error}")),
        }
    }
    if servers.is_empty() {
        let message = format!(
            "resolvers '{}' expects 'nameserver' lines, found none: it resolves nothing",
            name.shown()
        );
        refuse.found.warning(name.pos(), message);
    }
    let mut settings = Settings { servers: servers.len(), ..Settings::USUAL };
    for hold in holds {
        let of = &mut settings.holds;
        let place = match hold.kind {
            "nx" => &mut of.nx,
            "obsolete" => &mut of.obsolete,
            "refused" => &mut of.refused,
            "timeout" => &mut of.timeout,
            "valid" => &mut of.valid,
            _ => &mut of.other,
        };
        *place = hold.time;
    }
    settings.payload = payload.map_or(settings.payload, |set| set.value);
    settings.retries = retries.map_or(settings.retries, |set| set.value);
    settings.resolve = timeout_resolve.map_or(settings.resolve, |set| set.value);
    settings.retry = timeout_retry.map_or(settings.retry, |set| set.value);
    Resolvers { name: text(name), servers, settings, desk: Mutex::new(&DESKS, Desk::default()) }
}

/// What a server wants of its section, if it has one.
pub(super) fn of_server(
    host: Option<&str>,
    options: &ServerOptions,
    at: Set<()>,
    refuse: &mut Refuse<'_>,
) -> Option<Resolution> {
    // What is wrong is told, also where an address makes it useless.
    let (wish, ignores_weight) = wish(options, refuse);
    let set = options.resolvers.as_ref()?;
    let section =
        refuse.config.resolvers.iter().position(|section| section.name.bytes() == set.value.bytes())?;
    // An address needs nobody to be asked, until an operator gives the server a name.
    let Some(host) = host else { return Some(Resolution { section, service: None, wish, ignores_weight }) };
    let name = match Name::parse(host) {
        Ok(name) => name,
        Err(why) => {
            refuse.found.alert(at.pos, format!("'server' expects a host name, found '{host}': {why}"));
            return None;
        }
    };
    Some(Resolution { section, service: name.is_service().then_some(name), wish, ignores_weight })
}

/// Which address a server wants, and whether weights of records are none of its business.
fn wish(options: &ServerOptions, refuse: &mut Refuse<'_>) -> (Wish, bool) {
    let prefers_v4 = options.resolve_prefer.is_some_and(|set| set.value == "ipv4");
    let mut wish =
        Wish { family: if prefers_v4 { Kind::A } else { Kind::Aaaa }, networks: Vec::new(), shares: false };
    let mut ignores_weight = false;
    each(
        &options.resolve_opts,
        |word| {
            match word {
                "allow-dup-ip" => wish.shares = true,
                "prevent-dup-ip" => wish.shares = false,
                "ignore-weight" => ignores_weight = true,
                _ => {
                    return Err(format!(
                        "'resolve-opts' expects allow-dup-ip, ignore-weight or prevent-dup-ip, found '{word}'"
                    ));
                }
            }
            Ok(())
        },
        refuse,
    );
    let networks = &mut wish.networks;
    each(
        &options.resolve_net,
        |word| match Network::parse(word) {
            Some(_) if networks.len() == MOST_NETWORKS => {
                Err(format!("'resolve-net' expects at most {MOST_NETWORKS} networks, found more"))
            }
            Some(network) => {
                networks.push(network);
                Ok(())
            }
            None => Err(format!("'resolve-net' expects networks such as 10.0.0.0/8, found '{word}'")),
        },
        refuse,
    );
    (wish, ignores_weight)
}

/// Networks of one server.
const MOST_NETWORKS: usize = 64;

/// Each word of a list with commas.
fn each(set: &Option<Set<Word>>, mut take: impl FnMut(&str) -> Result<(), String>, refuse: &mut Refuse<'_>) {
    let Some(set) = set else { return };
    for word in set.value.bytes().split(|byte| *byte == b',') {
        if let Err(why) = take(&String::from_utf8_lossy(word)) {
            refuse.found.alert(set.value.pos(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two generations that serve beside each other for a moment have one section: of their lanes one asks,
    /// and moves servers.
    #[test]
    fn the_lane_that_began_last_asks_as_long_as_it_is_there() {
        let desk = Mutex::new(&DESKS, Desk::default());
        let section = Resolvers { name: "r".into(), servers: Vec::new(), settings: Settings::USUAL, desk };
        let (before, after): (Arc<Notify>, Arc<Notify>) = Default::default();
        let asks = |clerk| section.is_asked_by(clerk);
        section.begin(&before);
        assert!(asks(&before) && !asks(&after));
        section.begin(&after);
        assert!(!asks(&before) && asks(&after));
        assert!(section.close(&after).is_empty());
        assert!(asks(&before), "the other came to nothing");
        section.close(&before);
        assert!(!asks(&before));
    }
}
