//! `log-forward`: receives syslog messages over connections and as datagrams, and forwards them to the
//! section's targets.
//!
//! The receiving task never waits for a target: a message that finds no room at one is lost there, and
//! counted. So the task reads as fast as a sender sends, and the memory is bounded: one incomplete message
//! for each connection, and the datagrams of one system call.

use crate::client::Client;
use manylane_io::{Datagram, Datagrams};
use manylane_lanes::{Local, MessageBuffer, Parties, datagram_listeners};
use manylane_logs::{Frame, Frames, Message};
use manylane_net::Bound;
use manylane_plan::generation::{Frontend, FrontendGateState, LogForward};
use manylane_sched::{Class, TaskKind};
use manylane_sync::{Arc, LaneId};
use std::fmt::Write;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The tasks that receive messages over UDP.
pub static RECEIVE: TaskKind = TaskKind::new("receive messages");

/// Time before the next read of a socket, if there was no memory for its data.
const RETRY: Duration = Duration::from_millis(100);

/// Most calls that read what is left in a socket at the end of a generation. Each reads up to 32 datagrams.
const LAST_CALLS: usize = 256;

/// Sender of messages: its address, and the text that names it as their host.
#[derive(Debug, Default)]
struct Sender {
    address: Option<IpAddr>,
    name: String,
}

impl Sender {
    /// Sets the sender of the next messages. Writes the text of the address only if the sender has changed.
    fn is(&mut self, address: Option<SocketAddr>) {
        let address = address.map(|address| address.ip());
        if address != self.address {
            self.address = address;
            self.name.clear();
            if let Some(address) = address {
                let _ = write!(self.name, "{address}"); // a String takes it
            }
        }
    }
}

/// Forwards one message.
fn forward(local: &Local, forward: &LogForward, bytes: &[u8], sender: &Sender) {
    manylane_logs::count_received(1);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let message = match forward.parses {
        true => Message::parse(bytes, time).from_host(forward.hosts, sender.name.as_bytes()),
        false => Message::raw(bytes, time),
    };
    if !message.is_empty() {
        forward.targets.iter().for_each(|target| local.forward_log(*target, &message));
    }
}

/// Forwards the messages of a client until its connection ends, it is silent for `timeout client`, or its
/// bytes are not a message.
pub(crate) async fn serve(local: &Local, frontend: &Frontend, client: Client) {
    let Some(section) = &frontend.forward else { return };
    let parties = Parties { frontend: Some(frontend), ..Parties::new(&local.generation) };
    parties.stream_begins();
    messages_of(local, frontend, section, client).await;
    parties.stream_ends();
}

async fn messages_of(local: &Local, frontend: &Frontend, section: &LogForward, mut client: Client) {
    let mut sender = Sender::default();
    sender.is(client.source);
    let mut frames = Frames::new(section.longest, section.lines_only);
    // The beginning of a message whose end is still to come.
    let mut part = MessageBuffer::default();
    let mut take = |received: &[u8]| {
        part.read(received, |bytes| messages(local, section, &mut frames, bytes, &sender).ok_or(())).is_ok()
    };
    while let Some(segment) = client.received.pop_front() {
        if !take(&segment) {
            return;
        }
    }
    let connection = client.end.connection();
    loop {
        let receiving = async { connection.recv().await.ok().flatten() };
        let received = match frontend.timeouts.client {
            Some(time) => local.here().timeout(time, receiving).await.ok().flatten(),
            None => receiving.await,
        };
        if !received.is_some_and(|segment| take(&segment)) {
            break;
        }
    }
}

/// Forwards the complete messages at the front of `bytes`. Returns the number of their bytes, or `None` if
/// other bytes than a message follow them.
fn messages(
    local: &Local,
    section: &LogForward,
    frames: &mut Frames,
    bytes: &[u8],
    sender: &Sender,
) -> Option<usize> {
    let mut from = 0;
    loop {
        match frames.next(&bytes[from..]) {
            Frame::Part => return Some(from),
            Frame::Broken => return None,
            Frame::Whole { message: (begin, end), used } => {
                forward(local, section, &bytes[from + begin..from + end], sender);
                from += used;
            }
        }
    }
}

/// Starts the tasks of this lane's share of the datagram sockets; `lanes` share all sockets.
///
/// # Errors
/// A sentence, if there is no memory.
pub fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let Some(own) = lanes.iter().position(|lane| *lane == local.here().lane()) else { return Ok(()) };
    let mut number = 0;
    for (frontend, _, listener) in datagram_listeners(&local.generation) {
        let Some(sockets) = listener.sockets() else { continue };
        let wanted = listener.listener.lanes.as_deref().unwrap_or_default();
        let wanted: Vec<usize> = wanted.iter().copied().filter(|lane| *lane < lanes.len()).collect();
        for (which, _) in sockets.iter().enumerate() {
            number += 1;
            let lane = if wanted.is_empty() { number % lanes.len() } else { wanted[number % wanted.len()] };
            if lane == own {
                let task = receive(local.clone(), frontend.number, sockets.clone(), which);
                local.here().spawn(&RECEIVE, Class::Normal, task).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Forwards the datagrams of a socket until the generation stops on this lane.
async fn receive(local: Rc<Local>, frontend: usize, sockets: Arc<[Bound]>, which: usize) {
    local.begun();
    let frontend = &local.generation.frontends[frontend];
    let opened = sockets[which].duplicate().ok().and_then(|socket| local.io.datagrams(socket).ok());
    if let (Some(mut socket), Some(section)) = (opened, &frontend.forward) {
        socket.set_room(section.longest);
        let (mut sender, mut received) = (Sender::default(), Vec::new());
        let mut all = |received: &mut Vec<Datagram>| {
            for Datagram { bytes, from, .. } in received.drain(..) {
                sender.is(from.and_then(|from| SocketAddr::try_from(from).ok()));
                forward(&local, section, &bytes, &sender);
            }
        };
        while next(&local, frontend, &socket, &mut received).await {
            all(&mut received);
        }
        // If another process has its own sockets, only this one can read what has arrived here.
        for _ in 0..LAST_CALLS {
            let Ok(1..) = socket.recv_now(&mut received) else { break };
            all(&mut received);
            local.here().yield_now().await;
        }
    }
    drop(sockets);
    local.ended();
}

/// Waits for datagrams while the frontend's gate is open; false when the generation stops.
async fn next(local: &Local, frontend: &Frontend, socket: &Datagrams, received: &mut Vec<Datagram>) -> bool {
    loop {
        let snapshot = frontend.gate.snapshot();
        let mut receiving = pin!(async {
            match snapshot.state() {
                FrontendGateState::Open => socket.recv_batch(received).await.is_ok(),
                // Meanwhile the system queues a few datagrams and drops the others.
                _ => std::future::pending().await,
            }
        });
        let mut stopping = local.stopping.waiter();
        let came = poll_fn(|context| match stopping.poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            // A change of the gate wakes this task.
            Poll::Pending if frontend.gate.snapshot() != snapshot => Poll::Ready(Some(false)),
            Poll::Pending => receiving.as_mut().poll(context).map(Some),
        });
        match came.await {
            None => return false,
            Some(true) => return true,
            Some(false) if frontend.gate.snapshot() != snapshot => {}
            // There is no memory for a datagram.
            Some(false) => local.here().sleep(RETRY).await,
        }
    }
}
