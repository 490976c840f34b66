//! From listeners to sessions: binds sockets, accepts within `maxconn`, and gives connections to the least
//! loaded lane.

use super::local::Local;
use crate::conn_limit::ConnLimit;
use crate::generation::{Frontend, FrontendGateState, Generation, Listener, Owner, Peers, has_lanes};
use crate::session::Session;
use manylane_net::hand_over::Offer;
use manylane_net::{
    Acceptor, Balance, Begun, Bound, Endpoint, HandedOver, Incoming, ListenOptions, PendingAccepts,
    SocketError, listen_or_take,
};
use manylane_sched::{Class, Here, Remote, TaskKind, Time};
use manylane_sync::{Arc, LaneId};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

static ACCEPT: TaskKind = TaskKind::new("accept");
static GATES: TaskKind = TaskKind::new("news of gates");
static HOUSEKEEPING: TaskKind = TaskKind::new("housekeeping");
static METER: TaskKind = TaskKind::new("rates");
pub(crate) static SESSION: TaskKind = TaskKind::new("session");

/// The sockets of a listener.
#[derive(Debug)]
pub struct BoundListener {
    frontend: usize,
    listener: usize,
    sockets: Arc<[Bound]>,
    /// The settings that the sockets were made with, whatever newer files say.
    made: Made,
}

/// Settings that a socket is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    options: ListenOptions,
    user: Option<Owner>,
    group: Option<Owner>,
    count: usize,
}

impl Made {
    /// Returns the settings that a listener asks for, when `lanes` lanes serve.
    fn of(listener: &Listener, lanes: usize) -> Self {
        let count = if matches!(listener.endpoint, Endpoint::Ip(_)) { listener.sockets(lanes) } else { 1 };
        Self {
            options: listener.options.clone(),
            user: listener.user.clone(),
            group: listener.group.clone(),
            count,
        }
    }
}

impl BoundListener {
    /// Returns the listener's address, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        self.sockets[0].endpoint() // there is at least one socket
    }

    /// Returns the number of the frontend.
    pub fn frontend(&self) -> usize {
        self.frontend
    }

    /// Returns the sockets that can be handed to another process. Unix sockets cannot, since the other
    /// process replaces their files; listeners inside this process cannot either.
    pub fn offers(&self) -> impl Iterator<Item = Offer<'_>> {
        let offered = |bound: &&Bound| matches!(bound.endpoint(), Endpoint::Ip(_) | Endpoint::Abstract(_));
        self.sockets.iter().filter(offered).filter_map(|bound| {
            let ListenOptions { namespace, interface, .. } = &self.made.options;
            Some(Offer {
                socket: bound.socket()?,
                namespace: namespace.as_deref(),
                interface: interface.as_deref(),
            })
        })
    }
}

/// A listener that could not be bound.
#[derive(Debug)]
pub struct BindFailure {
    /// Name of the frontend.
    pub frontend: Box<str>,
    /// The reason, in one sentence that names the address.
    pub reason: String,
}

impl fmt::Display for BindFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding for frontend {}: {}", self.frontend, self.reason)
    }
}

/// Binds all listeners of a generation that `lanes` lanes will serve.
///
/// `owner` looks up a user or a group: its arguments are whether it is a group, and the name. Sockets that
/// another process handed over are used where they fit. Everything that other processes could see waits for
/// [`HandedOver::begin`].
///
/// # Errors
/// The listeners that could not be bound. All others are closed.
pub fn bind(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    let bound = bind_each(generation, |listener| {
        let sockets = bind_listener(listener, lanes, &owner, handed_over)?;
        Ok((sockets.into(), Made::of(listener, lanes)))
    })?;
    bind_peers(generation, |listener| Ok(bind_listener(listener, lanes, &owner, handed_over)?.into()))?;
    Ok(bound)
}

/// Binds the sockets of `peers` sections, which each of them keeps.
fn bind_peers(
    generation: &Generation,
    mut one: impl FnMut(&Listener) -> Result<Arc<[Bound]>, String>,
) -> Result<(), Vec<BindFailure>> {
    let mut failures = Vec::new();
    for section in generation.peers.iter().filter(|section| section.sockets().is_none()) {
        let Some(listener) = &section.listener else { continue };
        match one(listener) {
            Ok(sockets) => section.set_sockets(Some(sockets)),
            Err(reason) => failures.push(BindFailure { frontend: section.name.clone(), reason }),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Result of [`bind_beside`].
#[derive(Debug)]
pub struct Beside {
    /// The listeners.
    pub bound: Vec<BoundListener>,
    /// Names, as in the file, of listeners whose options differ from the file because their sockets existed
    /// before.
    pub as_before: Vec<Box<str>>,
    /// New backlogs of sockets that existed before.
    pub backlogs: Backlogs,
    /// New unix sockets, whose files get their final names when the generation begins to serve.
    pub begun: Begun,
}

/// Backlogs to be set, each with the number of its frontend and its sockets.
#[derive(Debug)]
pub struct Backlogs(Vec<(usize, Arc<[Bound]>, u32)>);

impl Backlogs {
    /// Sets the backlogs once the generation serves. Setting a backlog makes a socket listen, so a disabled
    /// frontend sets its backlog when it is enabled.
    pub fn take_effect(&self, generation: &Generation) {
        let is_open =
            |frontend: usize| generation.frontends[frontend].gate.state() == FrontendGateState::Open;
        for (_, sockets, backlog) in self.0.iter().filter(|(frontend, ..)| is_open(*frontend)) {
            // A failure leaves the old backlog, which loses no connection.
            let _ = sockets.iter().try_for_each(|socket| socket.set_backlog(*backlog));
        }
    }
}

/// Makes sockets listen again that come from a disabled frontend but now belong to an open one. To be called
/// before a lane accepts.
pub fn listen_again(generation: &Generation, bound: &[BoundListener]) {
    let is_open =
        |bound: &&BoundListener| generation.frontends[bound.frontend].gate.state() == FrontendGateState::Open;
    for bound in bound.iter().filter(is_open) {
        for socket in bound.sockets.iter().filter(|socket| !socket.listens()) {
            // a lane that cannot accept reports the failure
            let _ = socket.set_backlog(bound.made.options.backlog);
        }
    }
}

/// Binds the listeners of a generation that will replace `before`. Sockets that exist already are shared, so
/// no connection to them is lost, and nothing has changed if the reload fails.
///
/// # Errors
/// As of [`bind`]. Also for inherited descriptors (`fd@`, `sockpair@`) that the generation before does not
/// have: their numbers may mean other files by now.
pub fn bind_beside(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    before: (&Generation, &[BoundListener]),
) -> Result<Beside, Vec<BindFailure>> {
    let (older, bound) = before;
    let mut known: HashMap<&Endpoint, Vec<&BoundListener>> = HashMap::new();
    let of = |bound: &BoundListener| &older.frontends[bound.frontend].listeners[bound.listener];
    for bound in bound.iter().rev() {
        known.entry(&of(bound).endpoint).or_default().push(bound);
    }
    let (mut as_before, mut backlogs) = (Vec::new(), Vec::new());
    let mut none = HandedOver::default();
    let bound = bind_each(generation, |listener| {
        // Two lines with one address have two sockets.
        if let Some(same) = known.get_mut(&listener.endpoint).and_then(Vec::pop) {
            let (wanted, mut made) = (Made::of(listener, lanes), same.made.clone());
            if made.options.backlog != wanted.options.backlog {
                backlogs.push((listener.frontend, same.sockets.clone(), wanted.options.backlog));
                made.options.backlog = wanted.options.backlog;
            }
            if made != wanted {
                as_before.push(listener.written.clone());
            }
            return Ok((same.sockets.clone(), made));
        }
        if matches!(listener.endpoint, Endpoint::Descriptor(_) | Endpoint::SocketPair(_)) {
            return Err(format!(
                "'{}' can be taken over when the process starts only; start another one with '-sf', or \
                    listen at an address",
                listener.written
            ));
        }
        let sockets = bind_listener(listener, lanes, &owner, &mut none)?;
        Ok((sockets.into(), Made::of(listener, lanes)))
    })?;
    bind_peers(generation, |listener| {
        let at = |section: &&Arc<Peers>| {
            section.listener.as_ref().is_some_and(|own| own.endpoint == listener.endpoint)
        };
        match older.peers.iter().find(at).and_then(|section| section.sockets()) {
            Some(sockets) => Ok(sockets),
            None => Ok(bind_listener(listener, lanes, &owner, &mut none)?.into()),
        }
    })?;
    let failed = |error: SocketError| vec![BindFailure { frontend: "".into(), reason: error.to_string() }];
    let begun = none.begin(false).map_err(failed)?;
    Ok(Beside { bound, as_before, backlogs: Backlogs(backlogs), begun })
}

fn bind_each(
    generation: &Generation,
    mut one: impl FnMut(&Listener) -> Result<(Arc<[Bound]>, Made), String>,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    let mut bound = Vec::new();
    let mut failures = Vec::new();
    for frontend in &generation.frontends {
        for listener in &frontend.listeners {
            match one(listener) {
                Ok((sockets, made)) => bound.push(BoundListener {
                    made,
                    frontend: frontend.number,
                    listener: listener.index,
                    sockets,
                }),
                Err(reason) => failures.push(BindFailure { frontend: frontend.name.clone(), reason }),
            }
        }
    }
    if failures.is_empty() { Ok(bound) } else { Err(failures) }
}

/// Binds one listener for `lanes` lanes, or uses sockets that another process handed over.
///
/// # Errors
/// The reason, in one sentence that names the address.
pub fn bind_listener(
    listener: &Listener,
    lanes: usize,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<Bound>, String> {
    let mut options = listener.options.clone();
    let look_up = |group, wanted: &Option<Owner>| match wanted {
        Some(Owner::Name(name)) => owner(group, name).map(Some),
        Some(Owner::Number(number)) => Ok(Some(*number)),
        None => Ok(None),
    };
    options.unix.user = options.unix.user.or(look_up(false, &listener.user)?);
    options.unix.group = options.unix.group.or(look_up(true, &listener.group)?);
    listen_or_take(&listener.endpoint, &options, listener.sockets(lanes), handed_over)
        .map_err(|error| error.to_string())
}

/// Permits that a connection holds while it is served: one of each of three limits. Also counts the
/// connection.
#[derive(Debug)]
pub(crate) struct ConnGuard {
    pub(crate) generation: Arc<Generation>,
    pub(crate) frontend: usize,
    pub(crate) listener: usize,
    /// The serving lane counts the connection as a session.
    is_session: bool,
    /// It speaks TLS, which has a limit of its own.
    is_tls: bool,
}

impl ConnGuard {
    /// Waits for the rates, then for a permit of each limit.
    async fn enter(here: Here, generation: Arc<Generation>, frontend: usize, listener: usize) -> Self {
        let is_tls = generation.frontends[frontend].listeners[listener].tls.is_some();
        let guard = Self { generation, frontend, listener, is_session: false, is_tls };
        let generation = &guard.generation;
        let rates = [&guard.counted().0.rate, &*generation.connection_rate, &*generation.session_rate];
        for rate in rates.into_iter().chain(is_tls.then_some(&*generation.tls_rate)) {
            // The lane's clock is the machine's, the same on all lanes.
            while let Err(wait) = rate.enter(here.now().since(Time::ZERO)) {
                here.sleep(wait).await;
            }
        }
        for limit in guard.limits() {
            limit.enter().await; // never dropped amid the wait: an accepted connection waits to the end
        }
        let (limit, at) = guard.counted();
        limit.counts.own().connections.add(1);
        at.counts.own().connections.add(1);
        if is_tls {
            generation.process_stats.tls_clients.own().connections.add(1);
        }
        guard
    }

    fn counted(&self) -> (&Frontend, &Listener) {
        let frontend = &self.generation.frontends[self.frontend];
        (frontend, &frontend.listeners[self.listener])
    }

    fn limits(&self) -> impl Iterator<Item = &ConnLimit> {
        let (frontend, listener) = self.counted();
        let limits: [&ConnLimit; 3] = [&self.generation.places, &frontend.places, &listener.places];
        limits.into_iter().chain(self.is_tls.then_some(&*self.generation.tls_places))
    }
}

impl ConnGuard {
    /// Counts the connection as a session of the calling lane.
    pub(crate) fn begin_session(&mut self) {
        self.is_session = true;
        let (frontend, listener) = self.counted();
        frontend.counts.own().begin_session();
        listener.counts.own().begin_session();
    }

    /// Moves the connection to another generation.
    pub(crate) fn follow(&mut self, generation: &Arc<Generation>, frontend: usize, listener: usize) {
        let before = std::mem::replace(&mut self.generation, generation.clone());
        let left = &before.frontends[std::mem::replace(&mut self.frontend, frontend)];
        let left_at = &left.listeners[std::mem::replace(&mut self.listener, listener)];
        let (front, at) = self.counted();
        // Mostly both generations share the counters.
        if !Arc::ptr_eq(&front.counts, &left.counts) {
            front.counts.own().connections.add(1);
            left.counts.own().connections_ended.add(1);
            if self.is_session {
                front.counts.own().begin_session();
                front.counts.own().sessions_admitted.add(1); // the session moves between two requests
                left.counts.own().sessions_ended.add(1);
            }
        }
        if !Arc::ptr_eq(&at.counts, &left_at.counts) {
            at.counts.own().connections.add(1);
            left_at.counts.own().connections_ended.add(1);
            if self.is_session {
                at.counts.own().begin_session();
                at.counts.own().sessions_admitted.add(1);
                left_at.counts.own().sessions_ended.add(1);
            }
        }
        let of_before = [&before.places, &left.places, &left_at.places];
        let of_before = of_before.into_iter().chain(self.is_tls.then_some(&before.tls_places));
        for (own, left) in self.limits().zip(of_before) {
            if !std::ptr::eq(own, &**left) {
                own.enter_anyway();
                left.leave();
            }
        }
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        for limit in self.limits() {
            limit.leave();
        }
        let (frontend, listener) = self.counted();
        frontend.counts.own().connections_ended.add(1);
        if self.is_session {
            frontend.counts.own().sessions_ended.add(1);
            listener.counts.own().sessions_ended.add(1);
        }
        listener.counts.own().connections_ended.add(1);
        if self.is_tls {
            self.generation.process_stats.tls_clients.own().connections_ended.add(1);
        }
    }
}

/// Starts to accept on the lane of `local` from its share of `bound`. `lanes` are all lanes that serve the
/// generation.
///
/// # Errors
/// A sentence, if the lane has no descriptors or no memory for a listener.
pub fn accept(local: &Rc<Local>, bound: &Arc<Vec<BoundListener>>, lanes: &[LaneId]) -> Result<(), String> {
    *local.lane_ids.borrow_mut() = lanes.into();
    local.share_limits();
    let housekeeping = local.clone().housekeeping();
    local.here().spawn(&HOUSEKEEPING, Class::Bulk, housekeeping).map_err(|error| error.to_string())?;
    if lanes.first() == Some(&local.here().lane()) {
        local
            .here()
            .spawn(&METER, Class::Bulk, super::meter::watch(local.clone()))
            .map_err(|error| error.to_string())?;
    }
    super::checks::start(local, lanes)?;
    super::names::start(local, lanes)?;
    super::peers::start(local, lanes)?;
    *local.bound.borrow_mut() = Arc::downgrade(bound);
    for (which, listener) in bound.iter().enumerate() {
        // The gate was closed before this generation began.
        let closed = local.generation.frontends[listener.frontend].gate.state() != FrontendGateState::Open;
        if closed && lanes.first() == Some(&local.here().lane()) {
            refuse(&local.generation, listener);
        }
        let Listener { lanes: wanted, groups, .. } =
            &local.generation.frontends[listener.frontend].listeners[listener.listener];
        let mut chosen: Vec<LaneId> = match wanted {
            Some(some) => some.iter().filter_map(|&n| lanes.get(n)).copied().collect(),
            None => lanes.to_vec(),
        };
        if chosen.is_empty() {
            chosen = lanes.to_vec(); // `thread` names none of the existing lanes
        }
        let own = local.here().lane();
        let Some(mut place) = chosen.iter().position(|lane| *lane == own) else { continue };
        let number = lanes.iter().position(|lane| *lane == own);
        let groups = || groups.iter().filter(|group| has_lanes(group, lanes.len())).enumerate();
        let own_group = groups().find(|(_, group)| number.is_some_and(|number| group.contains(&number)));
        let mut among = chosen.len();
        if let Some((socket, group)) = own_group {
            (place, among) = (socket, groups().count());
            chosen = group.iter().filter_map(|&n| lanes.get(n)).copied().collect();
        }
        // An older generation may have made more sockets than lanes serve now; every socket needs a lane.
        let own_sockets =
            listener.sockets.iter().enumerate().filter(|(number, _)| match among < listener.sockets.len() {
                true => number % among == place,
                false => *number == place % listener.sockets.len(),
            });
        for (number, socket) in own_sockets {
            let acceptor = socket.acceptor(&local.io).map_err(|error| error.to_string())?;
            let balance = match local.generation.process.spreads_connections {
                true => Balance::new(chosen.clone()),
                false => Balance::new([own]),
            };
            let task = accepting(local.clone(), acceptor, balance, (which, number), bound.clone());
            local.here().spawn(&ACCEPT, Class::Urgent, task).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Result of a wait for a connection.
enum Next {
    Came(Incoming),
    /// The listener cannot accept as it is.
    Failed,
    /// The state of the frontend's gate has changed.
    FrontendGate,
    Stops,
}

/// Accepts from socket `number` of the listener `bound[which]` until the generation stops on this lane. The
/// last lane that drops `bound` closes the sockets.
async fn accepting(
    local: Rc<Local>,
    acceptor: Acceptor,
    balance: Balance,
    (which, number): (usize, usize),
    bound: Arc<Vec<BoundListener>>,
) {
    local.begun();
    let BoundListener { frontend, listener, sockets, .. } = &bound[which];
    let (frontend, listener, socket) = (*frontend, *listener, &sockets[number]);
    let generation = &local.generation;
    let gate = &generation.frontends[frontend].gate;
    let mut seen = gate.seen();
    let mut acceptor = Some(acceptor);
    let mut changed = seen.state() != FrontendGateState::Open;
    loop {
        if std::mem::take(&mut changed) {
            // Connections from before the change are served, even if the gate is open again: the driver may
            // have accepted ahead.
            if let Some(acceptor) = acceptor.take() {
                for incoming in acceptor.close().await.unwrap_or_default() {
                    let guard = ConnGuard::enter(local.here(), generation.clone(), frontend, listener).await;
                    give(&local, &balance, incoming, guard);
                }
            }
            if seen.state() == FrontendGateState::Open {
                acceptor = socket.acceptor(&local.io).ok();
                if acceptor.is_none() {
                    break;
                }
            }
        }
        let next = {
            let mut next = pin!(async {
                match &acceptor {
                    Some(acceptor) => acceptor.accept().await,
                    None => std::future::pending().await,
                }
            });
            let mut stopping = local.stopping.waiter();
            poll_fn(|context| match stopping.poll(context) {
                Poll::Ready(()) => Poll::Ready(Next::Stops),
                // A change of the gate wakes this task.
                Poll::Pending if gate.seen() != seen => Poll::Ready(Next::FrontendGate),
                Poll::Pending => {
                    next.as_mut().poll(context).map(|came| came.map_or(Next::Failed, Next::Came))
                }
            })
            .await
        };
        match next {
            Next::Came(incoming) => {
                let guard = ConnGuard::enter(local.here(), generation.clone(), frontend, listener).await;
                give(&local, &balance, incoming, guard);
            }
            // the gate has not changed, so the listener itself has failed
            Next::Failed if gate.seen() == seen => break,
            Next::Failed | Next::FrontendGate => (seen, changed) = (gate.seen(), true),
            Next::Stops => {
                let rest = match acceptor.take() {
                    Some(acceptor) => acceptor.close().await.unwrap_or_default(),
                    None => PendingAccepts::default(),
                };
                for incoming in rest {
                    let (successor, frontend, listener) = local.successor_or_self(frontend, listener);
                    let guard =
                        ConnGuard::enter(local.here(), successor.generation.clone(), frontend, listener)
                            .await;
                    give(&successor, &balance, incoming, guard);
                }
                break;
            }
        }
    }
    drop(bound);
    local.ended();
}

/// Returns the listeners that the calling lane accepts from for a generation; `None` once it has stopped.
pub fn bound(generation: &Arc<Generation>) -> Option<Arc<Vec<BoundListener>>> {
    Local::of(generation).and_then(|local| local.bound.borrow().upgrade())
}

/// Makes a frontend's sockets refuse connections, where possible.
fn refuse(generation: &Generation, bound: &BoundListener) {
    // Another process may use an inherited socket, so there clients wait. A port that the system chose would
    // be lost.
    let endpoint = &generation.frontends[bound.frontend].listeners[bound.listener].endpoint;
    if matches!(endpoint, Endpoint::Ip(address) if address.port() != 0) {
        bound.sockets.iter().for_each(Bound::refuse);
    }
}

/// Opens or closes a frontend's gate, unless it is shut down, tells the lanes, and returns the previous
/// state. Only the first lane may call this, so no two calls run at once. Amid a reload two generations share
/// the gate, and this changes the sockets of both.
///
/// # Errors
/// A sentence, if the system does not let a socket listen again. Then nothing has changed.
pub fn set_gate(frontend: &Frontend, to: FrontendGateState) -> Result<FrontendGateState, String> {
    let served = Local::all().filter(|local| !local.stopping.has_happened());
    let served: Vec<_> = served
        .filter_map(|local| Some((local.bound.borrow().upgrade()?, local.generation.clone())))
        .collect();
    let own = || {
        served.iter().flat_map(|(bound, generation)| {
            let is_own = |bound: &&BoundListener| {
                Arc::ptr_eq(&generation.frontends[bound.frontend].gate, &frontend.gate)
            };
            bound.iter().filter(is_own).map(move |bound| (&**generation, bound))
        })
    };
    // The sockets listen before the gate opens: a lane that sees an open gate can accept, and a lane whose
    // socket stopped listening sees a closed gate.
    if to == FrontendGateState::Open && frontend.gate.state() == FrontendGateState::Paused {
        let mut listen = Vec::new();
        for (_, bound) in own() {
            for socket in bound.sockets.iter() {
                let listened = socket.listens();
                match socket.set_backlog(bound.made.options.backlog) {
                    Err(error) if !listened => {
                        listen.into_iter().for_each(Bound::refuse);
                        return Err(error.to_string());
                    }
                    Ok(()) if !listened => listen.push(socket),
                    _ => {}
                }
            }
        }
    }
    let before = frontend.gate.set(to);
    if before == FrontendGateState::Open && to != FrontendGateState::Open {
        own().for_each(|(generation, bound)| refuse(generation, bound));
    }
    for lane in manylane_sched::report() {
        let make = |here: Here| async move {
            here.wake_kind(&ACCEPT);
        };
        // A lane that has ended accepts nothing.
        let _ = Remote::new(lane.lane).spawn_with(&GATES, Class::Urgent, make);
    }
    Ok(before)
}

/// Gives a connection to the least loaded lane, or to the lane that connected, if it is one of this process.
/// The connection is closed if there is no memory for its task or that lane has just ended.
fn give(local: &Rc<Local>, balance: &Balance, incoming: Incoming, guard: ConnGuard) {
    let lane_guard = balance.guard_for(&incoming);
    let (here, lane) = (local.here(), lane_guard.lane());
    if lane == here.lane() {
        let _ = here.spawn(
            &SESSION,
            Class::Normal,
            Session::new(Some(local.clone()), incoming, lane_guard, guard),
        );
    } else {
        let make = move |_| {
            let mut guard = guard;
            Session::new(Local::for_guard(&mut guard), incoming, lane_guard, guard)
        };
        let _ = Remote::new(lane).spawn_with(&SESSION, Class::Normal, make);
    }
}
