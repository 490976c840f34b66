//! Resolves names of servers (R-G9): each `resolvers` section belongs to one lane, which queries the name
//! servers, sets the addresses of servers and answers rules.
//!
//! # Protocol
//! 1. Only the section's lane knows and changes which member of a service a template's server stands for, and
//!    which names are resolved. The consequences for a server are changes like all others (`lane/changes.rs`,
//!    `generation/server_addr.rs`).
//! 2. A server that loses its address enters maintenance first and loses the address then. A server that gets
//!    an address gets it first and leaves maintenance then. So no request is sent to a server without an
//!    address.
//! 3. Other lanes queue orders and notify the section's task.
//! 4. When a generation begins beside another with the same section, the task that began last does all of
//!    this, and the other waits: it ends with its generation, or continues if the later generation fails.

use super::checks::{CheckGuard, unless_stopped};
use manylane_balance::{Availability, Index};
use manylane_buf::{Chain, Segment};
use manylane_io::{Datagram, Outgoing};
use manylane_lanes::{Local, change, say, set_weight};
use manylane_logs::Level;
use manylane_net::address::Port;
use manylane_net::{ConnectOptions, Connector, Endpoint};
use manylane_plan::ConnLimit;
use manylane_plan::generation::notify::Notify;
use manylane_plan::generation::{Backend, Order, Question, Resolvers, ServerAddrState, ServerNumber};
use manylane_resolve::{
    AddressChoice, AnswerOutcome, AssignmentChange, Entry, Id, Item, Kind, Name, NameUpdate, Query, Section,
    Service, ServiceMember, Status, TcpMessage, choose, members, weight,
};
use manylane_sched::{Class, TaskKind, Time};
use manylane_sync::{Arc, LaneId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

static NAMES: TaskKind = TaskKind::new("resolvers");
static QUESTION: TaskKind = TaskKind::new("question to a name server");

/// Most concurrent queries to a name server for the section's servers, and as many for rules, each with a
/// socket of its own; others wait. They are apart because clients may choose the names that rules ask for.
/// Each name server has its own because one that is silent keeps each query until its time is over.
const MOST_QUESTIONS: u32 = 256;

/// Most queries to a name server for rules, including those that wait. Further queries count as unanswered.
const MOST_OF_RULES: usize = 2048;

/// Time for which a query for a rule keeps its permit while others wait; then it counts as unanswered.
/// Clients can ask for any number of names that no name server answers; the slice keeps those from occupying
/// all permits. Name servers that take longer are then of no use to rules.
const TIME_SLICE: Duration = Duration::from_millis(100);

/// Starts the tasks of this lane's share of the sections; `lanes` share all sections.
///
/// # Errors
/// A sentence, if there is no memory.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let Some(own) = lanes.iter().position(|lane| *lane == local.here().lane()) else { return Ok(()) };
    for number in (0..local.generation.resolvers.len()).filter(|number| number % lanes.len() == own) {
        // The earlier task stops only now, so a task is always there for rules.
        let notify: Arc<Notify> = Arc::default();
        let section = local.generation.resolvers[number].begin(&notify);
        let task = run_section(local.clone(), number, notify.clone(), section);
        if let Err(error) = local.here().spawn(&NAMES, Class::Normal, task) {
            local.generation.resolvers[number].close(&notify);
            return Err(error.to_string());
        }
    }
    Ok(())
}

/// Time after which the task checks again whether the system has a default route for IPv6.
const ROUTE_CHECK: Duration = Duration::from_secs(30);

/// Returns whether the system has a route to any IPv6 address. Connecting a datagram socket sends nothing;
/// the address is one of those for documentation (RFC 3849).
fn has_ipv6_route() -> bool {
    let anywhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok_and(|socket| socket.connect((anywhere, 53)).is_ok())
}

/// Clock of a section.
fn clock(local: &Local) -> Duration {
    local.here().now().since(Time::ZERO)
}

/// State of a section on its lane.
struct SectionTask {
    local: Rc<Local>,
    number: usize,
    section: RefCell<Section>,
    /// Limits of each name server.
    limits: Box<[QueryLimits]>,
    /// When to look next whether the system has a default route for IPv6.
    route_check: Cell<Duration>,
    /// Wakes the section's task.
    notify: Arc<Notify>,
}

/// What a name server may occupy of a section.
struct QueryLimits {
    of_servers: ConnLimit,
    of_rules: ConnLimit,
    /// Number of queries for rules.
    for_rules: Cell<usize>,
}

impl QueryLimits {
    fn new() -> Self {
        Self {
            of_servers: ConnLimit::new(MOST_QUESTIONS),
            of_rules: ConnLimit::new(MOST_QUESTIONS),
            for_rules: Cell::new(0),
        }
    }
}

/// Task of a section, until the lane stops.
async fn run_section(local: Rc<Local>, number: usize, notify: Arc<Notify>, section: Section) {
    let generation = local.generation.clone();
    let own = &generation.resolvers[number];
    let section_task = Rc::new(SectionTask {
        local: local.clone(),
        number,
        section: RefCell::new(section),
        limits: own.servers.iter().map(|_| QueryLimits::new()).collect(),
        route_check: Cell::default(),
        notify: notify.clone(),
    });
    let mut users = AddressUsers::default();
    users.begin(&section_task, &local);
    section_task.section.borrow_mut().resumed(clock(&local));
    let here = local.here();
    loop {
        // Once a later task has begun, only that one moves servers, because the two may know different
        // addresses. If the later one ends first, this one handles what has arrived meanwhile.
        let due = own.is_querier(&notify).then(|| section_task.work(&mut users, &notify)).flatten();
        let sleep = here.sleep_until(due.map_or(Time::MAX, |due| Time::ZERO + due));
        if unless_stopped(&local, notify.or(sleep)).await.is_none() {
            break;
        }
    }
    let rest = own.close(&notify);
    users.leave(&section_task);
    rest.into_iter().for_each(|order| match order {
        Order::Ask(question) => question.answer(None),
        Order::Rename(_) => {}
    });
}

impl SectionTask {
    fn resolvers(&self) -> &Resolvers {
        &self.local.generation.resolvers[self.number]
    }

    /// Handles all orders and results that have arrived. Returns when the next work is due.
    fn work(self: &Rc<Self>, users: &mut AddressUsers, notify: &Arc<Notify>) -> Option<Duration> {
        let (local, own) = (&self.local, self.resolvers());
        if own.ipv6_by_route && clock(local) >= self.route_check.get() {
            self.section.borrow_mut().accept_ipv6(has_ipv6_route());
            self.route_check.set(clock(local) + ROUTE_CHECK);
        }
        for order in own.orders(notify) {
            match order {
                Order::Rename(number) => users.renamed(self, local, number),
                Order::Ask(question) => users.ask(self, local, question),
            }
        }
        self.section.borrow_mut().handle_timeout(clock(local));
        let mut found = Vec::new();
        while let Some(update) = self.next_update() {
            found.extend(self.section.borrow().memo(update.name));
            if self.section.borrow().status(update.name) != Status::Valid {
                local.generation.process_stats.failed_resolutions.add(1);
            }
            users.heard(self, local, update);
        }
        while let Some(ask) = self.next_ask() {
            let for_rule = match users.has_servers(ask.query.name()) {
                true => None,
                false if self.limits[ask.query.server].for_rules.get() == MOST_OF_RULES => continue,
                false => Some(ForRule::new(self, ask.query.server)),
            };
            // Without memory for the task, the query counts as unanswered.
            let _ =
                local.here().spawn_made(&QUESTION, Class::Normal, || exchange(self.clone(), ask, for_rule));
        }
        let gone = std::iter::from_fn(|| self.section.borrow_mut().poll_gone()).collect();
        own.note(notify, found, gone, self.section.borrow().counters());
        self.section.borrow().next_timeout()
    }

    fn next_ask(&self) -> Option<Query> {
        self.section.borrow_mut().poll_ask()
    }

    fn next_update(&self) -> Option<NameUpdate> {
        self.section.borrow_mut().poll_update()
    }

    fn handle_answer(&self, ask: &Query, over_tcp: bool, bytes: &[u8]) -> AnswerOutcome {
        let heard = self.section.borrow_mut().handle_answer(clock(&self.local), &ask.query, over_tcp, bytes);
        if heard == AnswerOutcome::Over {
            self.notify.notify_one();
        }
        heard
    }
}

/// Counts a query to a name server that only rules wait for, until it is dropped.
struct ForRule(Rc<SectionTask>, usize);

impl ForRule {
    fn new(section_task: &Rc<SectionTask>, server: usize) -> Self {
        let count = &section_task.limits[server].for_rules;
        count.set(count.get() + 1);
        Self(section_task.clone(), server)
    }
}

impl Drop for ForRule {
    fn drop(&mut self) {
        let count = &self.0.limits[self.1].for_rules;
        count.set(count.get() - 1);
    }
}

/// Sends one query to one name server, and waits until it is answered or its time is over.
async fn exchange(section_task: Rc<SectionTask>, ask: Query, for_rule: Option<ForRule>) {
    let local = &section_task.local;
    let until = Time::ZERO + ask.until;
    let work = async {
        let own = &section_task.limits[ask.query.server];
        let limits = if for_rule.is_some() { &own.of_rules } else { &own.of_servers };
        let _guard = CheckGuard::enter(limits).await;
        let server = &section_task.resolvers().servers[ask.query.server];
        let talk = async {
            let reached = if server.tcp {
                over_tcp(&section_task, &ask, server.address, until).await
            } else {
                match over_udp(&section_task, &ask, server.address).await {
                    Some(AnswerOutcome::Truncated) => {
                        over_tcp(&section_task, &ask, server.address, until).await
                    }
                    heard => heard.map(drop),
                }
            };
            if reached.is_none() {
                section_task.section.borrow_mut().handle_failure(&ask.query);
            }
        };
        let mut talk = pin!(talk);
        let here = local.here();
        if for_rule.is_none() {
            return talk.await;
        }
        while here.timeout(TIME_SLICE, talk.as_mut()).await.is_err() {
            if limits.is_awaited() {
                break;
            }
        }
    };
    let here = local.here();
    let _ = unless_stopped(local, here.timeout(until.since(here.now()), work)).await;
}

/// Sends a query over UDP, from a random port that the system chooses. The socket is connected, so the system
/// delivers only datagrams of this name server. `None` if the name server cannot be reached.
async fn over_udp(section_task: &SectionTask, ask: &Query, server: SocketAddr) -> Option<AnswerOutcome> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    let mut socket = section_task.local.io.datagrams(socket).ok()?;
    socket.set_room(section_task.resolvers().settings.payload.into());
    let mut bytes = Chain::new();
    bytes.append(&ask.bytes).ok()?;
    let mut out = VecDeque::from([Outgoing { bytes, to: None }]);
    socket.send_batch(&mut out).await.ok()?;
    let mut came: Vec<Datagram> = Vec::new();
    loop {
        socket.recv_batch(&mut came).await.ok()?;
        for datagram in came.drain(..) {
            if datagram.truncated {
                return Some(AnswerOutcome::Truncated); // longer than the advertised payload
            }
            match section_task.handle_answer(ask, false, &datagram.bytes) {
                AnswerOutcome::Not => {}
                heard => return Some(heard),
            }
        }
        // A server that keeps sending unrelated datagrams shares the lane with other tasks, until the query's
        // time is over.
        section_task.local.here().yield_now().await;
    }
}

/// Sends a query over TCP, with a length before each message (RFC 1035, 4.2.2).
async fn over_tcp(section_task: &SectionTask, ask: &Query, server: SocketAddr, until: Time) -> Option<()> {
    let connector = Connector::new(ConnectOptions::default());
    let connection =
        connector.connect(&section_task.local.io, &Endpoint::Ip(server), None, Some(until)).await.ok()?;
    let mut bytes = Chain::new();
    bytes.append(&(ask.bytes.len() as u16).to_be_bytes()).ok()?;
    bytes.append(&ask.bytes).ok()?;
    connection.send(&mut bytes).await.ok()?;
    let mut answer = TcpMessage::default();
    loop {
        if let Some(message) = answer.message() {
            section_task.handle_answer(ask, true, message);
            return Some(());
        }
        let segment: Segment = connection.recv().await.ok()??;
        answer.receive(&segment);
    }
}

/// Users of a section's answers.
#[derive(Debug, Default)]
struct AddressUsers {
    /// Servers that have the address of a name.
    servers: HashMap<Id, Vec<ServerNumber>>,
    /// Names that are resolved for servers.
    names: HashMap<ServerNumber, Id>,
    /// Templates that stand for services.
    services: HashMap<Id, Vec<Template>>,
    /// Questions of rules.
    questions: HashMap<Id, Vec<Arc<Question>>>,
}

/// Servers of one backend that stand for the members of a service.
#[derive(Debug)]
struct Template {
    backend: usize,
    members: Vec<ServerNumber>,
}

/// Returns the address of an entry, if it is one.
fn addresses(entry: &Entry) -> Option<IpAddr> {
    match entry.item {
        Item::Address(address) => Some(address),
        Item::Service(_) => None,
    }
}

/// Hashes a set of addresses, independently of their order, to recognize an answer with the same addresses.
fn mark(addresses: impl Iterator<Item = IpAddr>) -> u64 {
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    let mut hasher = DefaultHasher::new();
    addresses.hash(&mut hasher);
    hasher.finish()
}

impl AddressUsers {
    /// Begins with the servers of the configuration.
    fn begin(&mut self, section_task: &SectionTask, local: &Local) {
        let now = clock(local);
        for backend in &local.generation.backends {
            for server in backend.listed() {
                let Some(resolution) =
                    server.resolution.as_ref().filter(|own| own.section == section_task.number)
                else {
                    continue;
                };
                let number = ServerNumber { backend: backend.number, server: server.index };
                let Some(service) = &resolution.service else {
                    self.follow(section_task, local, number);
                    continue;
                };
                let Some(id) = section_task.section.borrow_mut().want(service.clone(), Kind::Srv, now) else {
                    continue;
                };
                let templates = self.services.entry(id).or_default();
                match templates.iter_mut().find(|one| one.backend == backend.number) {
                    Some(template) => template.members.push(number),
                    None => templates.push(Template { backend: backend.number, members: vec![number] }),
                }
            }
        }
        // New servers here also use what the section knew before.
        let known = |id: &Id| section_task.section.borrow().status(*id) == Status::Valid;
        let services: Vec<Id> = self.services.keys().copied().filter(known).collect();
        services.into_iter().for_each(|id| self.member(section_task, local, id));
    }

    /// Returns true if servers have the name.
    fn has_servers(&self, id: Id) -> bool {
        self.services.contains_key(&id) || self.servers.get(&id).is_some_and(|servers| !servers.is_empty())
    }

    /// Begins to resolve the server's name.
    fn follow(&mut self, section_task: &SectionTask, local: &Local, number: ServerNumber) {
        let (_, server) = local.generation.server(number);
        let Some(resolution) = &server.resolution else { return };
        let Some(Ok(name)) = server.addr.read().name.map(|name| Name::parse(&name)) else { return };
        let now = clock(local);
        let wanted = section_task.section.borrow_mut().want(name, resolution.wish.family, now);
        let Some(id) = wanted else { return };
        self.unfollow(section_task, local, number);
        self.names.insert(number, id);
        self.servers.entry(id).or_default().push(number);
        let status = section_task.section.borrow().status(id);
        if status == Status::Valid {
            // The name was resolved for another server before.
            self.settle(section_task, local, number, id, None);
        }
    }

    /// Stops resolving the server's name for this server.
    fn unfollow(&mut self, section_task: &SectionTask, local: &Local, number: ServerNumber) {
        let Some(id) = self.names.remove(&number) else { return };
        if let Some(servers) = self.servers.get_mut(&id) {
            servers.retain(|own| *own != number);
        }
        section_task.section.borrow_mut().forget(id, clock(local));
    }

    /// Handles a server that an operator gave another name.
    fn renamed(&mut self, section_task: &SectionTask, local: &Local, number: ServerNumber) {
        if local.generation.known(number).is_none() {
            return; // the server belongs to the generation before
        }
        self.follow(section_task, local, number);
    }

    /// Handles a question of a rule.
    fn ask(&mut self, section_task: &SectionTask, local: &Local, question: Arc<Question>) {
        let now = clock(local);
        let wanted = section_task.section.borrow_mut().want(question.name.clone(), question.kind, now);
        let Some(id) = wanted else { return question.answer(None) };
        self.questions.entry(id).or_default().push(question);
        let fresh = section_task.section.borrow().is_fresh(id, now);
        if fresh {
            self.answer(section_task, local, id);
        } else {
            section_task.section.borrow_mut().hurry(id, now);
        }
    }

    /// Answers all rules that wait for a name.
    fn answer(&mut self, section_task: &SectionTask, local: &Local, id: Id) {
        let now = clock(local);
        for question in self.questions.remove(&id).unwrap_or_default() {
            let mut section = section_task.section.borrow_mut();
            let address =
                section.records(id).filter(|_| section.status(id) == Status::Valid).and_then(|records| {
                    let all = || records.iter().filter_map(addresses);
                    all()
                        .find(|address| address.is_ipv4() == (question.kind == Kind::A))
                        .or_else(|| all().next())
                });
            if let (Some(address), Some(records)) = (address, section.records_mut(id)) {
                records.took(address);
            }
            question.answer(address);
            section.forget(id, now);
        }
    }

    /// Passes the waiting questions of rules to the task that replaces this one; without one, answers them
    /// with no address.
    fn leave(&mut self, section_task: &SectionTask) {
        for question in self.questions.drain().flat_map(|(_, waiting)| waiting) {
            if !section_task.resolvers().order(Order::Ask(question.clone())) {
                question.answer(None);
            }
        }
    }

    /// Handles a new result for a name.
    fn heard(&mut self, section_task: &SectionTask, local: &Local, update: NameUpdate) {
        let mut by = update.server;
        for number in self.servers.get(&update.name).cloned().unwrap_or_default() {
            self.settle(section_task, local, number, update.name, by);
            by = None; // the other servers get it from the cache
        }
        if self.services.contains_key(&update.name) {
            self.member(section_task, local, update.name);
        }
        self.answer(section_task, local, update.name);
    }

    /// Gives a server an address of its name, or keeps the address that it has, or removes it.
    fn settle(
        &self,
        section_task: &SectionTask,
        local: &Local,
        number: ServerNumber,
        id: Id,
        by: Option<usize>,
    ) {
        let (_, server) = local.generation.server(number);
        let Some(resolution) = &server.resolution else { return };
        if section_task.section.borrow().status(id) != Status::Valid {
            if section_task.section.borrow().is_lost(id, clock(local)) {
                lose(local, number, reason(section_task.section.borrow().status(id)));
            }
            return;
        }
        let known = server.addr.read();
        let answer = section_task
            .section
            .borrow()
            .records(id)
            .map_or(0, |records| mark(records.iter().filter_map(addresses)));
        if known.keeps_operator_address(answer) {
            return;
        }
        // Two servers may have different ports of one address.
        let others: Vec<IpAddr> = self
            .servers
            .get(&id)
            .into_iter()
            .flatten()
            .filter(|other| other.backend == number.backend && **other != number)
            .map(|other| local.generation.server(*other).1.addr.read())
            .filter(|other| other.port == known.port)
            .filter_map(|other| other.ip())
            .collect();
        let current = known.ip();
        let choice = section_task.section.borrow().records(id).map_or(AddressChoice::None, |records| {
            choose(records.iter().filter_map(addresses), &resolution.wish, current, |address| {
                others.contains(&address)
            })
        });
        match choice {
            AddressChoice::Stay => {
                if known.set_by_operator || known.answer != Some(answer) {
                    server.addr.change(|known| known.heard(answer));
                }
                have(local, number);
            }
            AddressChoice::Go(address) => {
                let teller = match by {
                    Some(by) => {
                        section_task.section.borrow_mut().count_update(by);
                        format!(
                            "{}/{}",
                            section_task.resolvers().name,
                            section_task.resolvers().servers[by].name
                        )
                    }
                    None => "DNS cache".into(),
                };
                if let Some(records) = section_task.section.borrow_mut().records_mut(id) {
                    records.took(address);
                }
                go(local, number, &teller, |known| {
                    known.heard(answer);
                    known.settle(Some(address));
                });
                have(local, number);
            }
            AddressChoice::None => lose(local, number, " (No IP for server )"),
        }
    }

    /// Assigns the records of a service to the templates that stand for it.
    fn member(&mut self, section_task: &SectionTask, local: &Local, id: Id) {
        {
            let section = section_task.section.borrow();
            if section.status(id) != Status::Valid && !section.is_lost(id, clock(local)) {
                return;
            }
        }
        let services: Vec<Service> = {
            let section = section_task.section.borrow();
            let entries = section.records(id).into_iter().flat_map(|records| records.iter());
            let service = |entry: &Entry| match &entry.item {
                Item::Service(service) => Some(service.clone()),
                Item::Address(_) => None,
            };
            entries.filter_map(service).collect()
        };
        let Some(templates) = self.services.remove(&id) else { return };
        for template in &templates {
            let member = |number: &ServerNumber| -> ServiceMember {
                let known = local.generation.server(*number).1.addr.read();
                let port = match known.port {
                    Port::One(port) => port,
                    _ => 0,
                };
                Some((Name::parse(&known.name?).ok()?, port))
            };
            let taken: Vec<ServiceMember> = template.members.iter().map(member).collect();
            for step in members(&taken, &services) {
                match step {
                    AssignmentChange::Leave(index) => {
                        let number = template.members[index];
                        self.unfollow(section_task, local, number);
                        lose(local, number, " (entry removed from SRV record)");
                        local.generation.server(number).1.addr.change(|known| {
                            known.name = None;
                            known.port = Port::Unset;
                        });
                    }
                    AssignmentChange::Take(position, service) => {
                        self.stand_for(section_task, local, template.members[position], service, true)
                    }
                    AssignmentChange::Stay(at, service) => {
                        self.stand_for(section_task, local, template.members[at], service, false)
                    }
                }
            }
        }
        self.services.insert(id, templates);
    }

    /// Makes a server of a template stand for a member of a service.
    fn stand_for(
        &mut self,
        section_task: &SectionTask,
        local: &Local,
        number: ServerNumber,
        service: Service,
        new: bool,
    ) {
        let (backend, server) = local.generation.server(number);
        let (Some(resolution), Some(index)) =
            (&server.resolution, backend.balancer.servers().index(server.index))
        else {
            return;
        };
        let Service { target, port, weight: share, address, priority: _ } = service;
        if !resolution.ignores_weight && backend.balancer.servers()[index].state().weight() != weight(share) {
            // A static algorithm keeps the weights of the configuration.
            let _ = set_weight(local, backend, index, weight(share));
        }
        if let Some(address) = address {
            self.unfollow(section_task, local, number);
            let (known, answer) = (server.addr.read(), mark(std::iter::once(address)));
            if new || known.ip() != Some(address) && !known.keeps_operator_address(answer) {
                go(local, number, "DNS additional record", |known| {
                    known.heard(answer);
                    known.port = Port::One(port);
                    known.settle(Some(address));
                });
            } else if known.answer != Some(answer) {
                server.addr.change(|known| known.heard(answer));
            }
        }
        if new {
            server.addr.change(|known| {
                known.port = Port::One(port);
                known.name = Some(target.as_str().into());
                known.renamed = true;
            });
            let text = format!(
                "{}/{} changed its FQDN from (null) to {target} by 'SRV record'",
                backend.name, server.name
            );
            say(local, backend, Level::Notice, &text);
        }
        if address.is_some() {
            bring_up(local, backend, index);
        } else if !self.names.contains_key(&number) {
            self.follow(section_task, local, number);
        }
    }
}

/// Returns the reason for the logs why a server has no address.
fn reason(status: Status) -> &'static str {
    match status {
        Status::Nx => " (DNS NX status)",
        Status::Timeout => " (DNS timeout status)",
        Status::Refused => " (DNS refused status)",
        Status::New | Status::Valid | Status::Other => " (unspecified DNS error)",
    }
}

/// Moves a server to another address.
fn go(local: &Local, number: ServerNumber, by: &str, to: impl FnOnce(&mut ServerAddrState)) {
    let (backend, server) = local.generation.server(number);
    let before = server.addr.change(to).ip();
    let after = server.addr.read().ip();
    if before != after {
        let shown = |ip: Option<IpAddr>| ip.map_or("(none)".into(), |ip| ip.to_string());
        let text = format!(
            "{}/{}: IP changed from '{}' to '{}' by '{by}'.",
            backend.name,
            server.name,
            shown(before),
            shown(after)
        );
        say(local, backend, Level::Notice, &text);
    }
}

/// Takes a server with an address out of maintenance (rule 2). Returns true if the server had no address
/// before.
fn bring_up(local: &Local, backend: &Backend, index: Index) -> bool {
    let was = backend.balancer.servers()[index].state().standing().unresolved;
    if was {
        change(local, backend, index, "", |own| Availability { unresolved: false, ..own });
    }
    was
}

/// Like [`bring_up`], and logs it, for a server whose name was resolved.
fn have(local: &Local, number: ServerNumber) {
    let (backend, server) = local.generation.server(number);
    let Some(index) = backend.balancer.servers().index(server.index) else { return };
    if bring_up(local, backend, index) {
        let text = format!(
            "Server {}/{} administratively READY thanks to valid DNS answer.",
            backend.name, server.name
        );
        say(local, backend, Level::Notice, &text);
    }
}

/// Takes the address from a server (rule 2).
fn lose(local: &Local, number: ServerNumber, why: &str) {
    let (backend, server) = local.generation.server(number);
    let Some(index) = backend.balancer.servers().index(server.index) else { return };
    change(local, backend, index, why, |own| Availability { unresolved: true, ..own });
    server.addr.change(|known| {
        known.set_by_operator = false;
        known.settle(None);
    });
}
