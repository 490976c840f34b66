//! From listeners to sessions: binding, accepting within `maxconn`, giving to the least loaded lane.

use super::local::Local;
use crate::conn_limit::ConnLimit;
use crate::generation::{Frontend, FrontendGateState, Generation, Listener, Owner, has_lanes};
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
    /// With what they were made, whatever the file says since.
    made: Made,
}

/// What a socket is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    options: ListenOptions,
    user: Option<Owner>,
    group: Option<Owner>,
    count: usize,
}

impl Made {
    /// As a listener asks for it, where `lanes` serve.
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
    /// Where it listens, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        self.sockets[0].endpoint() // there is at least one
    }

    /// The number of its frontend.
    pub fn frontend(&self) -> usize {
        self.frontend
    }

    /// Its sockets, for another process. Unix sockets are not handed over, since their files are replaced;
    /// what is inside this process cannot be.
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
    /// The frontend's name.
    pub frontend: Box<str>,
    /// Why, in one sentence that names the address.
    pub reason: String,
}

impl fmt::Display for BindFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding for frontend {}: {}", self.frontend, self.reason)
    }
}

/// Binds all listeners of a generation that `lanes` lanes will serve.
///
/// `owner` looks up users and groups by name: whether it is a group, and the name. Sockets that another
/// process has handed over are taken where they fit. What others would see waits for [`HandedOver::begin`].
///
/// # Errors
/// All that could not be bound. The others are closed.
pub fn bind(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    bind_each(generation, |listener| {
        let sockets = bind_listener(listener, lanes, &owner, handed_over)?;
        Ok((sockets.into(), Made::of(listener, lanes)))
    })
}

/// What [`bind_beside`] gives.
#[derive(Debug)]
pub struct Beside {
    /// The listeners.
    pub bound: Vec<BoundListener>,
    /// As their lines name them: those whose options are not what the file says, since their sockets were
    /// there before.
    pub as_before: Vec<Box<str>>,
    /// Those of sockets that were there before.
    pub backlogs: Backlogs,
    /// Files of unix sockets that are new, which take their places when the generation serves.
    pub begun: Begun,
}

/// What becomes of the backlogs of sockets, each with its frontend's number.
#[derive(Debug)]
pub struct Backlogs(Vec<(usize, Arc<[Bound]>, u32)>);

impl Backlogs {
    /// The generation serves: they are what it says. To set one is to listen, so that of a frontend that is
    /// disabled waits until it is enabled.
    pub fn take_effect(&self, generation: &Generation) {
        let is_open =
            |frontend: usize| generation.frontends[frontend].gate.state() == FrontendGateState::Open;
        for (_, sockets, backlog) in self.0.iter().filter(|(frontend, ..)| is_open(*frontend)) {
            // Where it cannot be changed, it is what it was: nobody who connects is lost by that.
            let _ = sockets.iter().try_for_each(|socket| socket.set_backlog(*backlog));
        }
    }
}

/// Sockets that were taken over from a frontend that was disabled listen again, where whose they are now is
/// open. Before a lane accepts.
pub fn listen_again(generation: &Generation, bound: &[BoundListener]) {
    let is_open =
        |bound: &&BoundListener| generation.frontends[bound.frontend].gate.state() == FrontendGateState::Open;
    for bound in bound.iter().filter(is_open) {
        for socket in bound.sockets.iter().filter(|socket| !socket.listens()) {
            let _ = socket.set_backlog(bound.made.options.backlog); // who cannot is told of by its lanes
        }
    }
}

/// Binds the listeners of a generation that shall replace `before`: sockets that are there already are
/// shared, so that nobody who connects to them meanwhile is lost, and nothing is different if it comes to
/// nothing.
///
/// # Errors
/// As of [`bind`]; also for descriptors to inherit (`fd@`, `sockpair@`) that were not there before: whose
/// they are is not known any more.
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

/// Binds one listener, for so many lanes, or takes sockets for it that another process has handed over.
///
/// # Errors
/// Why not, in one sentence that names the address.
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

/// What a connection holds while it is served: a place at each of three limits, and its part in the counters.
#[derive(Debug)]
pub(crate) struct ConnGuard {
    pub(crate) generation: Arc<Generation>,
    pub(crate) frontend: usize,
    pub(crate) listener: usize,
    /// The lane that serves it counts it as a session.
    is_session: bool,
}

impl ConnGuard {
    /// As soon as there is a place at each limit.
    async fn enter(here: Here, generation: Arc<Generation>, frontend: usize, listener: usize) -> Self {
        let guard = Self { generation, frontend, listener, is_session: false };
        let generation = &guard.generation;
        for rate in [&guard.counted().0.rate, &*generation.connection_rate, &*generation.session_rate] {
            // The lane's clock is the machine's, the same on all lanes.
            while let Err(wait) = rate.enter(here.now().since(Time::ZERO)) {
                here.sleep(wait).await;
            }
        }
        for limit in guard.limits() {
            limit.enter().await; // not dropped meanwhile: an accepted connection waits to the end
        }
        let (limit, at) = guard.counted();
        limit.counts.own().connections.add(1);
        at.counts.own().connections.add(1);
        guard
    }

    fn counted(&self) -> (&Frontend, &Listener) {
        let frontend = &self.generation.frontends[self.frontend];
        (frontend, &frontend.listeners[self.listener])
    }

    fn limits(&self) -> [&ConnLimit; 3] {
        let (frontend, listener) = self.counted();
        [&self.generation.places, &frontend.places, &listener.places]
    }
}

impl ConnGuard {
    /// The calling lane serves it from now on.
    pub(crate) fn begin_session(&mut self) {
        self.is_session = true;
        let (frontend, listener) = self.counted();
        frontend.counts.own().begin_session();
        listener.counts.own().begin_session();
    }

    /// The connection belongs to another generation from now on.
    pub(crate) fn follow(&mut self, generation: &Arc<Generation>, frontend: usize, listener: usize) {
        let before = std::mem::replace(&mut self.generation, generation.clone());
        let left = &before.frontends[std::mem::replace(&mut self.frontend, frontend)];
        let left_at = &left.listeners[std::mem::replace(&mut self.listener, listener)];
        let (front, at) = self.counted();
        // Mostly they are the same.
        if !Arc::ptr_eq(&front.counts, &left.counts) {
            front.counts.own().connections.add(1);
            left.counts.own().connections_ended.add(1);
            if self.is_session {
                front.counts.own().begin_session();
                front.counts.own().sessions_admitted.add(1); // it goes over between two requests
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
        for (own, left) in self.limits().into_iter().zip([&before.places, &left.places, &left_at.places]) {
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
    }
}

/// Has the lane of `local` accept from all of `bound` that it should, for all of `lanes`, which serve the
/// same generation.
///
/// # Errors
/// A sentence, when the lane has no descriptors or no memory left for a listener.
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
    *local.bound.borrow_mut() = Arc::downgrade(bound);
    for (which, listener) in bound.iter().enumerate() {
        // A gate that was closed before this generation began.
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
            chosen = lanes.to_vec(); // a `thread` that names none of the lanes there are
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
        // A socket that was there before may be one of more than there are lanes for now: each has somebody.
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

/// What comes of waiting for a connection.
enum Next {
    Came(Incoming),
    /// The listener is of no use as it is.
    Failed,
    /// The frontend's gate is another than it was.
    FrontendGate,
    Stops,
}

/// Accepts until the lane stops, from the socket of that number of the listener at that place in `bound`. The
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
            // Who connected before is served, also where it is open again by now: the driver may have
            // accepted ahead.
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
                Poll::Pending if gate.seen() != seen => Poll::Ready(Next::FrontendGate), /* who changes it
                                                                                           * wakes */
                // this task
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
            Next::Failed if gate.seen() == seen => break, // by itself: it is of no use any more
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

/// What the calling lane accepts from, for a generation: none once it has stopped.
pub fn bound(generation: &Arc<Generation>) -> Option<Arc<Vec<BoundListener>>> {
    Local::of(generation).and_then(|local| local.bound.borrow().upgrade())
}

/// Has a frontend's sockets refuse connections, as far as they can.
fn refuse(generation: &Generation, bound: &BoundListener) {
    // What was inherited may be others', too: at that who connects waits. The system forgets a port that it
    // chose itself.
    let endpoint = &generation.frontends[bound.frontend].listeners[bound.listener].endpoint;
    if matches!(endpoint, Endpoint::Ip(address) if address.port() != 0) {
        bound.sockets.iter().for_each(Bound::refuse);
    }
}

/// Opens or closes a frontend's gate, unless it was shut, and tells the lanes. What it was before. To be
/// called on the first lane only: no two of these are at work at once. Between the steps of a reload it is
/// the gate of two generations, and what is done is done to the sockets of both.
///
/// # Errors
/// A sentence, when the system does not let a socket listen again. All is as it was then.
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
    // Who finds the gate open finds sockets that listen; one that fails because it does not any more finds
    // the gate closed.
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

/// Has a connection served on the least loaded lane, or the one that connected if that is one of ours. It is
/// closed if there is no memory for its task, or that lane just ended.
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
