//! `resolvers` sections, and the resolution that servers ask of them.

use super::bind::text;
use super::notify::Notify;
use super::refuse::Refuse;
use super::track::ServerNumber;
use manylane_config::lex::Word;
use manylane_config::table::ServerOptions;
use manylane_config::tree::{self, Set};
use manylane_net::address::{Host, Location, Port, Transport};
use manylane_resolve::{
    AddressPreference, Counters, Families, Kind, Name, NameResult, NameResults, Network, Section, Settings,
    system_servers,
};
use manylane_sync::{Arc, LockClass, Mutex};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

static SECTION_TASKS: LockClass = LockClass::new("orders to a resolvers section", LockClass::LEAF);
static QUESTIONS: LockClass = LockClass::new("question of a rule to name servers", LockClass::LEAF);

/// File that `parse-resolv-conf` reads.
const SYSTEM: &str = "/etc/resolv.conf";

/// Most orders that wait for the section's lane. Further orders are refused, and a rule then continues
/// without an address.
pub const MOST_ORDERS: usize = 16_384;

/// A `resolvers` section.
#[derive(Debug)]
pub struct Resolvers {
    /// Name of the section.
    pub name: Box<str>,
    /// Name servers that the section queries.
    pub servers: Vec<NameServer>,
    /// Timeouts and limits of queries.
    pub settings: Settings,
    /// IPv6 addresses are asked for only while the system has a default route for them.
    pub ipv6_by_route: bool,
    /// State shared with other lanes.
    shared: Mutex<SectionTask>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    /// Name of the server.
    pub name: Box<str>,
    /// Address of the server.
    pub address: SocketAddr,
    /// The server is queried only over TCP: `tcp@`.
    pub tcp: bool,
}

/// State that the section's lane shares with other lanes. Generations with the same section share one; the
/// lane of the newest generation sends the queries.
#[derive(Debug, Default)]
struct SectionTask {
    orders: Vec<Order>,
    /// Wake-ups of the lanes that began to query, the active one last. Earlier lanes keep their orders, and
    /// query again when later ones end.
    wake_ups: Vec<Arc<Notify>>,
    /// Results so far, for the next lane that begins to query.
    past: NameResults,
    counters: Vec<Counters>,
    /// Counter values when an operator cleared the counters.
    cleared: Vec<Counters>,
}

impl SectionTask {
    fn is_of(&self, wake_up: &Arc<Notify>) -> bool {
        self.wake_ups.last().is_some_and(|own| Arc::ptr_eq(own, wake_up))
    }
}

/// Order from another lane.
#[derive(Debug)]
pub enum Order {
    /// A server has another name: `set server fqdn`.
    Rename(ServerNumber),
    /// A rule asks for an address.
    Ask(Arc<Question>),
}

/// A rule's question for an address.
#[derive(Debug)]
pub struct Question {
    /// Name to resolve.
    pub name: Name,
    /// Address family that is queried first.
    pub kind: Kind,
    state: Mutex<Reply>,
}

#[derive(Debug, Default)]
struct Reply {
    /// The answer, once there is one: an address or none.
    answer: Option<Option<IpAddr>>,
    waiter: Option<Waker>,
}

impl Question {
    /// A question without an answer so far.
    pub fn new(name: Name, kind: Kind) -> Self {
        Self { name, kind, state: Mutex::new(&QUESTIONS, Reply::default()) }
    }

    /// Sets the answer and wakes the waiter.
    pub fn answer(&self, address: Option<IpAddr>) {
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
    pub async fn answered(&self) -> Option<IpAddr> {
        let _waits = Waits(self);
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

/// A wait for the answer. Dropping it removes the waker, so a later answer wakes no task.
struct Waits<'a>(&'a Question);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let waiter = self.0.state.lock().waiter.take();
        drop(waiter); // outside of the lock
    }
}

impl Resolvers {
    /// Returns true if the configurations define both sections alike.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.settings, of.ipv6_by_route);
        (&self.name, &self.servers, parts(self)) == (&other.name, &other.servers, parts(other))
    }

    /// Makes the caller the querying lane. It continues with the results of the lane before.
    pub fn begin(&self, wake_up: &Arc<Notify>) -> Section {
        let (past, counters) = {
            let mut shared = self.shared.lock();
            shared.wake_ups.push(wake_up.clone());
            (shared.past.clone(), shared.counters.clone())
        };
        wake_up.notify_one(); // orders for the lane before may be waiting
        Section::resume(self.settings, past, counters)
    }

    /// Queues an order of another lane. Returns false if there is no room.
    pub fn order(&self, order: Order) -> bool {
        let wake_up = {
            let mut shared = self.shared.lock();
            let Some(wake_up) = shared.wake_ups.last().cloned().filter(|_| shared.orders.len() < MOST_ORDERS)
            else {
                return false;
            };
            shared.orders.push(order);
            wake_up
        };
        wake_up.notify_one();
        true
    }

    /// Returns true if `wake_up` is the querying lane: no lane that began later is left.
    pub fn is_querier(&self, wake_up: &Arc<Notify>) -> bool {
        self.shared.lock().is_of(wake_up)
    }

    /// Takes the orders, if `wake_up` is the querying lane.
    pub fn orders(&self, wake_up: &Arc<Notify>) -> Vec<Order> {
        let mut shared = self.shared.lock();
        if shared.is_of(wake_up) { std::mem::take(&mut shared.orders) } else { Vec::new() }
    }

    /// Ends the querying by `wake_up`. Returns the orders for which no other lane is left.
    pub fn close(&self, wake_up: &Arc<Notify>) -> Vec<Order> {
        let successor = {
            let mut shared = self.shared.lock();
            shared.wake_ups.retain(|own| !Arc::ptr_eq(own, wake_up));
            match shared.wake_ups.last() {
                Some(successor) => successor.clone(),
                None => return std::mem::take(&mut shared.orders),
            }
        };
        successor.notify_one();
        Vec::new()
    }

    /// Stores results for the next querying lane, and counters for reports.
    pub fn note(
        &self,
        wake_up: &Arc<Notify>,
        found: Vec<((Name, Kind), NameResult)>,
        gone: Vec<(Name, Kind)>,
        counters: &[Counters],
    ) {
        let mut shared = self.shared.lock();
        if !shared.is_of(wake_up) {
            return;
        }
        shared.past.extend(found);
        for name in gone {
            shared.past.remove(&name);
        }
        shared.counters.clear();
        shared.counters.extend_from_slice(counters);
    }

    /// Returns the counters of each name server since they were cleared.
    pub fn counters(&self) -> Vec<Counters> {
        let shared = self.shared.lock();
        let of = |all: &[Counters], server: usize| all.get(server).copied().unwrap_or_default();
        (0..self.servers.len())
            .map(|server| of(&shared.counters, server).since(&of(&shared.cleared, server)))
            .collect()
    }

    /// Makes reports count from now on.
    pub fn clear(&self) {
        let mut shared = self.shared.lock();
        shared.cleared = shared.counters.clone();
    }
}

/// How a server's name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Number of the section.
    pub section: usize,
    /// The service (SRV) that this server represents a member of; `None` for a host name.
    pub service: Option<Name>,
    /// Preferences for the address.
    pub wish: AddressPreference,
    /// Set by `resolve-opts ignore-weight`.
    pub ignores_weight: bool,
}

/// Returns all sections.
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
        let Location::Ip { host, port: Port::One(port) } = &address.location else {
            let message = format!("'nameserver' expects an IP address and a port, found '{address}'");
            refuse.found.alert(own.address.pos, message);
            continue;
        };
        let ip: IpAddr = match host {
            Host::V4(ip) => (*ip).into(),
            Host::V6(ip) => (*ip).into(),
            Host::Name { .. } => continue, // the configuration refuses names here
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
    // After an error, its line may be the missing one.
    if servers.is_empty() && refuse.found.errors() == 0 {
        let message = format!(
            "resolvers '{}' expects 'nameserver' lines, found none: it resolves nothing",
            name.shown()
        );
        refuse.found.warning(name.pos(), message);
    }
    let mut settings = Settings { servers: servers.len(), ..Settings::USUAL };
    for hold in holds {
        let of = &mut settings.holds;
        let slot = match hold.kind {
            "nx" => &mut of.nx,
            "obsolete" => &mut of.obsolete,
            "refused" => &mut of.refused,
            "timeout" => &mut of.timeout,
            "valid" => &mut of.valid,
            _ => &mut of.other,
        };
        *slot = hold.time;
    }
    let accepted = refuse
        .config
        .global
        .dns_families
        .map_or(Families::BOTH, |set| Families { ipv4: set.value.ipv4, ipv6: set.value.ipv6 });
    settings.families = accepted;
    settings.payload = payload.map_or(settings.payload, |set| set.value);
    settings.retries = retries.map_or(settings.retries, |set| set.value);
    settings.resolve = timeout_resolve.map_or(settings.resolve, |set| set.value);
    settings.retry = timeout_retry.map_or(settings.retry, |set| set.value);
    Resolvers {
        name: text(name),
        servers,
        settings,
        ipv6_by_route: !accepted.ipv6 && refuse.config.global.dns_families.is_some_and(|set| set.value.auto),
        shared: Mutex::new(&SECTION_TASKS, SectionTask::default()),
    }
}

/// Returns the resolution of a server, if it has a section.
pub(super) fn of_server(
    host: Option<&str>,
    options: &ServerOptions,
    at: Set<()>,
    refuse: &mut Refuse<'_>,
) -> Option<Resolution> {
    // Errors are reported even if an address makes the options useless.
    let (wish, ignores_weight) = wish(options, refuse);
    let set = options.resolvers.as_ref()?;
    let section =
        refuse.config.resolvers.iter().position(|section| section.name.bytes() == set.value.bytes())?;
    // A server with an address needs no queries until an operator gives it a name.
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

/// Returns a server's preferences for its address, and whether it ignores the weights of records.
fn wish(options: &ServerOptions, refuse: &mut Refuse<'_>) -> (AddressPreference, bool) {
    let prefers_v4 = options.resolve_prefer.is_some_and(|set| set.value == "ipv4");
    let mut wish = AddressPreference {
        family: if prefers_v4 { Kind::A } else { Kind::Aaaa },
        networks: Vec::new(),
        shares: false,
    };
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

/// Most networks of one server.
const MOST_NETWORKS: usize = 64;

/// Calls `take` for each word of a comma-separated list, and reports its errors.
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

    /// Two generations that serve beside each other for a moment share one section: the lane of one of them
    /// queries and moves servers.
    #[test]
    fn the_lane_that_began_last_asks_as_long_as_it_is_there() {
        let shared = Mutex::new(&SECTION_TASKS, SectionTask::default());
        let section = Resolvers {
            name: "r".into(),
            servers: Vec::new(),
            settings: Settings::USUAL,
            ipv6_by_route: false,
            shared,
        };
        let (before, after): (Arc<Notify>, Arc<Notify>) = Default::default();
        let asks = |wake_up| section.is_querier(wake_up);
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
