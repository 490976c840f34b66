//! From listeners to sessions: accepts within `maxconn`, and gives connections to the least loaded lane.

use super::ACCEPTOR_RETRY;
use super::checks::unless_stopped;
use manylane_lanes::{BoundListener, ConnGuard, Local, SESSION};
use manylane_net::{Acceptor, Balance, Bound, Endpoint, Incoming, PendingAccepts};
use manylane_plan::generation::{Frontend, FrontendGateState, Generation, Listener, has_lanes};
use manylane_proxy::Session;
use manylane_sched::{Class, Here, Remote, TaskKind};
use manylane_sync::{Arc, LaneId};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

static ACCEPT: TaskKind = TaskKind::new("accept");
static GATES: TaskKind = TaskKind::new("frontend enabled or disabled");
static HOUSEKEEPING: TaskKind = TaskKind::new("housekeeping");
static METER: TaskKind = TaskKind::new("rates");

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
            .spawn(&METER, Class::Bulk, super::meter::keep_sampling(local.clone()))
            .map_err(|error| error.to_string())?;
    }
    super::checks::start(local, lanes)?;
    super::names::start(local, lanes)?;
    super::ocsp::start(local, lanes)?;
    super::acme::start(local, lanes)?;
    super::watch::start(local, lanes)?;
    super::peers::start(local, lanes)?;
    manylane_proxy::forward::start(local, lanes)?;
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
        let Some(mut index) = chosen.iter().position(|lane| *lane == own) else { continue };
        let number = lanes.iter().position(|lane| *lane == own);
        let groups = || groups.iter().filter(|group| has_lanes(group, lanes.len())).enumerate();
        let own_group = groups().find(|(_, group)| number.is_some_and(|number| group.contains(&number)));
        let mut among = chosen.len();
        if let Some((socket, group)) = own_group {
            (index, among) = (socket, groups().count());
            chosen = group.iter().filter_map(|&n| lanes.get(n)).copied().collect();
        }
        // An older generation may have made more sockets than lanes serve now; every socket needs a lane.
        let own_sockets =
            listener.sockets.iter().enumerate().filter(|(number, _)| match among < listener.sockets.len() {
                true => number % among == index,
                false => *number == index % listener.sockets.len(),
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
    let mut snapshot = gate.snapshot();
    let mut acceptor = Some(acceptor);
    let mut changed = snapshot.state() != FrontendGateState::Open;
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
            if snapshot.state() == FrontendGateState::Open {
                acceptor = socket.acceptor(&local.io).ok();
                if acceptor.is_none() {
                    // No descriptor or no memory is left for the moment.
                    if unless_stopped(&local, local.here().sleep(ACCEPTOR_RETRY)).await.is_none() {
                        break;
                    }
                    (snapshot, changed) = (gate.snapshot(), true);
                    continue;
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
                Poll::Pending if gate.snapshot() != snapshot => Poll::Ready(Next::FrontendGate),
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
            Next::Failed if gate.snapshot() == snapshot => break,
            Next::Failed | Next::FrontendGate => (snapshot, changed) = (gate.snapshot(), true),
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
                match socket.set_backlog(bound.backlog()) {
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
            here.wake_kind(&manylane_proxy::forward::RECEIVE);
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
