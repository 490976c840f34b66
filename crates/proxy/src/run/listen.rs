//! From listeners to sessions: binding, accepting within `maxconn`, giving to the least loaded lane.

use super::local::Local;
use crate::generation::{Frontend, Generation, Listener, Owner, Shards};
use crate::places::Places;
use crate::session::Session;
use manylane_net::{Acceptor, Balance, Bound, Endpoint, Incoming, listen_sharded};
use manylane_sched::{Class, Here, Remote, TaskKind, Time};
use manylane_sync::{Arc, LaneId};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

static ACCEPT: TaskKind = TaskKind::new("accept");
static HOUSEKEEPING: TaskKind = TaskKind::new("housekeeping");
static SESSION: TaskKind = TaskKind::new("session");

/// The sockets of a listener.
#[derive(Debug)]
pub struct BoundListener {
    frontend: usize,
    listener: usize,
    sockets: Vec<Bound>,
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
/// `owner` looks up users and groups by name: whether it is a group, and the name.
///
/// # Errors
/// All that could not be bound. The others are closed.
pub fn bind(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    let mut bound = Vec::new();
    let mut failures = Vec::new();
    for frontend in &generation.frontends {
        for listener in &frontend.listeners {
            match bind_listener(listener, lanes, &owner) {
                Ok(sockets) => bound.push(BoundListener {
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

/// Binds one listener, for so many lanes.
///
/// # Errors
/// Why not, in one sentence that names the address.
pub fn bind_listener(
    listener: &Listener,
    lanes: usize,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
) -> Result<Vec<Bound>, String> {
    let mut options = listener.options.clone();
    let look_up = |group, wanted: &Option<Owner>| match wanted {
        Some(Owner::Name(name)) => owner(group, name).map(Some),
        Some(Owner::Number(number)) => Ok(Some(*number)),
        None => Ok(None),
    };
    options.unix.user = options.unix.user.or(look_up(false, &listener.user)?);
    options.unix.group = options.unix.group.or(look_up(true, &listener.group)?);
    let accepting = listener.lanes.as_ref().map_or(lanes, |some| some.iter().filter(|&&n| n < lanes).count());
    let shards = match listener.shards {
        Shards::Number(n) => n.min(accepting.max(1)),
        Shards::ByLane => accepting.max(1),
        Shards::ByGroup => listener.groups.iter().filter(|group| has_lanes(group, lanes)).count().max(1),
    };
    listen_sharded(&listener.endpoint, &options, shards).map_err(|error| error.to_string())
}

/// Whether one of a group's lanes is among the first `lanes`, which are those that there are.
fn has_lanes(group: &[usize], lanes: usize) -> bool {
    group.iter().any(|&lane| lane < lanes)
}

/// What a connection holds while it is served: a place at each of three doors, and its part in the counters.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) generation: Arc<Generation>,
    pub(crate) frontend: usize,
    pub(crate) listener: usize,
}

impl Ticket {
    /// As soon as there is a place at each door.
    async fn enter(here: Here, generation: Arc<Generation>, frontend: usize, listener: usize) -> Self {
        let ticket = Self { generation, frontend, listener };
        for rate in [&ticket.counted().0.rate, &ticket.generation.rate].into_iter().flatten() {
            // The lane's clock is the machine's, the same on all lanes.
            while let Err(wait) = rate.enter(here.now().since(Time::ZERO)) {
                here.sleep(wait).await;
            }
        }
        for door in ticket.doors() {
            door.enter().await; // not dropped meanwhile: an accepted connection waits to the end
        }
        let (door, at) = ticket.counted();
        door.counts.own().connections.add(1);
        at.counts.own().connections.add(1);
        ticket
    }

    fn counted(&self) -> (&Frontend, &Listener) {
        let frontend = &self.generation.frontends[self.frontend];
        (frontend, &frontend.listeners[self.listener])
    }

    fn doors(&self) -> [&Places; 3] {
        let (frontend, listener) = self.counted();
        [&self.generation.places, &frontend.places, &listener.places]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        for door in self.doors() {
            door.leave();
        }
        let (frontend, listener) = self.counted();
        frontend.counts.own().connections_ended.add(1);
        listener.counts.own().connections_ended.add(1);
    }
}

/// Has the lane of `local` accept from all of `bound` that it should, for all of `lanes`, which serve the same generation.
///
/// # Errors
/// A sentence, when the lane has no descriptors or no memory left for a listener.
pub fn accept(local: &Rc<Local>, bound: &Arc<Vec<BoundListener>>, lanes: &[LaneId]) -> Result<(), String> {
    local.lanes.set(lanes.len().max(1));
    let housekeeping = local.clone().housekeeping();
    local.here().spawn(&HOUSEKEEPING, Class::Bulk, housekeeping).map_err(|error| error.to_string())?;
    super::checks::start(local, lanes)?;
    for listener in bound.iter() {
        let Listener { lanes: wanted, groups, .. } = &local.generation.frontends[listener.frontend].listeners[listener.listener];
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
        let groups = groups.iter().filter(|group| has_lanes(group, lanes.len())).enumerate();
        let mut own_group = groups.filter(|(_, group)| number.is_some_and(|number| group.contains(&number)));
        if let Some((socket, group)) = own_group.next() {
            place = socket;
            chosen = group.iter().filter_map(|&n| lanes.get(n)).copied().collect();
        }
        let socket = &listener.sockets[place % listener.sockets.len()];
        let acceptor = socket.acceptor(&local.io).map_err(|error| error.to_string())?;
        let task = accepting(local.clone(), acceptor, Balance::new(chosen), listener.frontend, listener.listener, bound.clone());
        local.here().spawn(&ACCEPT, Class::Urgent, task).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Accepts until the lane stops. The last lane that drops `bound` closes the sockets.
async fn accepting(
    local: Rc<Local>,
    acceptor: Acceptor,
    balance: Balance,
    frontend: usize,
    listener: usize,
    bound: Arc<Vec<BoundListener>>,
) {
    local.begun();
    let generation = &local.generation;
    loop {
        let next = {
            let mut next = pin!(acceptor.accept());
            let mut stopping = local.stopping.waiter();
            poll_fn(|context| match stopping.poll(context) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => next.as_mut().poll(context).map(Some),
            })
            .await
        };
        match next {
            Some(Ok(incoming)) => {
                let ticket = Ticket::enter(local.here(), generation.clone(), frontend, listener).await;
                give(&local, &balance, incoming, ticket);
            }
            Some(Err(_)) => break, // the listener itself is of no use any more
            None => {
                for incoming in acceptor.close().await.unwrap_or_default() {
                    let ticket = Ticket::enter(local.here(), generation.clone(), frontend, listener).await;
                    give(&local, &balance, incoming, ticket);
                }
                break;
            }
        }
    }
    drop(bound);
    local.ended();
}

/// Has a connection served on the least loaded lane. It is closed if there is no memory for its task, or that lane just ended.
fn give(local: &Rc<Local>, balance: &Balance, incoming: Incoming, ticket: Ticket) {
    let seat = balance.seat();
    let (here, lane) = (local.here(), seat.lane());
    if lane == here.lane() {
        let _ = here.spawn(&SESSION, Class::Normal, Session::new(Some(local.clone()), incoming, seat, ticket));
    } else {
        let make = move |_| Session::new(Local::of(&ticket.generation), incoming, seat, ticket);
        let _ = Remote::new(lane).spawn_with(&SESSION, Class::Normal, make);
    }
}
