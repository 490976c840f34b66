//! `log-forward`: syslog messages come, over connections and as datagrams, and go on to the section's
//! targets.
//!
//! Nobody waits for a target: a message that finds no room with one is lost there, and counted. So a sender
//! is read as fast as it sends, and what the program holds is bounded: of a connection at most one message
//! that is not whole, of datagrams those of one system call.

use crate::client::Client;
use crate::lane::{Local, datagram_listeners};
use manylane_io::{Datagram, Datagrams};
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

pub(crate) static RECEIVE: TaskKind = TaskKind::new("receive messages");

/// Time after which a socket without memory for what it has is read again.
const RETRY: Duration = Duration::from_millis(100);

/// Calls for the datagrams that are there at the end of a generation: each takes up to 32.
const LAST_CALLS: usize = 256;

/// Where messages come from, as their host is named.
#[derive(Debug, Default)]
struct Sender {
    address: Option<IpAddr>,
    name: String,
}

impl Sender {
    /// Names the sender of the next messages. The text of an address is written once for all that it sends in
    /// a row.
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

/// Forwards what a client sends, until it ends, is silent for too long or sends what is no message.
pub(crate) async fn serve(local: &Local, frontend: &Frontend, client: Client) {
    let Some(section) = &frontend.forward else { return };
    frontend.counts.own().streams.add(1);
    messages_of(local, frontend, section, client).await;
    frontend.counts.own().streams_ended.add(1);
}

async fn messages_of(local: &Local, frontend: &Frontend, section: &LogForward, client: Client) {
    let mut sender = Sender::default();
    sender.is(client.source);
    let mut frames = Frames::new(section.longest, section.lines_only);
    // The beginning of a message whose end is still to come.
    let mut part = client.received.to_vec();
    let connection = client.end.connection();
    while let Some(used) = messages(local, section, &mut frames, &part, &sender) {
        part.drain(..used);
        let receiving = async { connection.recv().await.ok().flatten() };
        let received = match frontend.timeouts.client {
            Some(time) => local.here().timeout(time, receiving).await.ok().flatten(),
            None => receiving.await,
        };
        let Some(segment) = received else { break };
        if !part.is_empty() {
            part.extend_from_slice(&segment);
            continue;
        }
        // Mostly nothing has to be copied.
        let Some(used) = messages(local, section, &mut frames, &segment, &sender) else { break };
        part.extend_from_slice(&segment[used..]);
    }
}

/// Forwards the messages at the front of `bytes`. Returns how many bytes they had; `None` behind what is no
/// message.
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

/// Receives on this lane what is its share of the datagrams: each socket has one lane.
pub(crate) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
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

/// Forwards what comes at a socket until the generation stops on this lane.
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
        // What has come by now is nobody else's, if another process has sockets of its own.
        for _ in 0..LAST_CALLS {
            if !is_left(&socket, &mut received).await {
                break;
            }
            all(&mut received);
        }
    }
    drop(sockets);
    local.ended();
}

/// Receives datagrams that are there. Whether there were any.
async fn is_left(socket: &Datagrams, received: &mut Vec<Datagram>) -> bool {
    let mut receiving = pin!(socket.recv_batch(received));
    poll_fn(|context| Poll::Ready(matches!(receiving.as_mut().poll(context), Poll::Ready(Ok(_))))).await
}

/// Waits for datagrams while the frontend's gate is open; false when the generation stops.
async fn next(local: &Local, frontend: &Frontend, socket: &Datagrams, received: &mut Vec<Datagram>) -> bool {
    loop {
        let seen = frontend.gate.seen();
        let mut receiving = pin!(async {
            match seen.state() {
                FrontendGateState::Open => socket.recv_batch(received).await.is_ok(),
                // The system keeps a few, and drops the others.
                _ => std::future::pending().await,
            }
        });
        let mut stopping = local.stopping.waiter();
        let came = poll_fn(|context| match stopping.poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            // A change of the gate wakes this task.
            Poll::Pending if frontend.gate.seen() != seen => Poll::Ready(Some(false)),
            Poll::Pending => receiving.as_mut().poll(context).map(Some),
        });
        match came.await {
            None => return false,
            Some(true) => return true,
            Some(false) if frontend.gate.seen() != seen => {}
            // There is no memory for a datagram.
            Some(false) => local.here().sleep(RETRY).await,
        }
    }
}
