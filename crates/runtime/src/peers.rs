//! Runs the peers protocol (`manylane_peers`). One lane serves each `peers` section: it connects to the other
//! peers, accepts their connections, and sends them updates of stick tables.
//!
//! # Protocol
//! 1. Other lanes only mark changed entries in the tables. The section's lane polls for marks.
//! 2. A peer has one connection. An accepted connection replaces another one, or an attempt to connect. Two
//!    peers may replace each other's connections at the same time; each then retries after a random delay.
//! 3. A generation with the same section continues where the one before stopped: it takes over what peers
//!    have received and what is still to be sent. Connections are closed and made again.
//! 4. A process that stops first sends everything to the process that listens in its place, if there is one.

use super::ACCEPTOR_RETRY;
use super::checks::{encrypted, unless_happens, unless_stopped};
use manylane_buf::Chain;
use manylane_lanes::{Event, Local, MessageBuffer, table_millis};
use manylane_net::{Bound, ConnectOptions, Connection, Connector, Incoming};
use manylane_peers::{
    Fault, MAX_HELLO, Message, MessageError, Resync, SILENCE, Section, Status, hello, read_hello,
};
use manylane_plan::generation::notify::Notify;
use manylane_plan::generation::{Peer, PeerLink, Peers, PeersReport, PeersTls};
use manylane_proxy::TlsGuard;
use manylane_sched::{Class, TaskKind};
use manylane_sync::{Arc, LaneId};
use manylane_tls::ServerContext;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

static PEERS: TaskKind = TaskKind::new("peers");
static PEER: TaskKind = TaskKind::new("peer");

/// Interval of polls for changes; changes of one interval are sent together.
const EVERY: Duration = Duration::from_millis(20);
/// Maximum age of a report, in milliseconds.
const REPORT: u64 = 200;
/// Interval of checks for a due heartbeat.
const HEARTBEATS: Duration = Duration::from_millis(500);
/// Delay before another attempt to reach a peer after a failure, in milliseconds; HAProxy's.
const RETRY: u64 = 5000;
/// Delay before reconnecting after a connection ended or was replaced, in milliseconds, plus a random part up
/// to `RETRY_SPREAD`. The random part keeps two processes from replacing each other's connections forever.
const RETRY_SOON: u64 = 50;
const RETRY_SPREAD: u64 = 2000;
/// Timeout of a connection attempt, and of a greeting.
const TIMEOUT: Duration = Duration::from_millis(SILENCE);
/// Limit of connections before their greeting: another one closes the oldest, so that those who say nothing
/// keep no peer out.
const MAX_PENDING: usize = 64;

/// Starts the sections that this lane serves. Sections are spread over `lanes`.
///
/// # Errors
/// A sentence, if there is no memory left.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let Some(own) = lanes.iter().position(|lane| *lane == local.here().lane()) else { return Ok(()) };
    for (number, section) in local.generation.peers.iter().enumerate() {
        if number % lanes.len() == own && !section.is_off {
            let task = run_section(local.clone(), number);
            local.here().spawn(&PEERS, Class::Normal, task).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// A section on the lane that serves it.
struct SectionTask {
    local: Rc<Local>,
    number: usize,
    section: RefCell<Section>,
    links: RefCell<Vec<Link>>,
    /// Connections before their greeting, the oldest first; at most `MAX_PENDING`.
    strangers: RefCell<VecDeque<Rc<Event>>>,
    /// Number of tasks that accept connections.
    accepting: Cell<usize>,
    /// Time of the last report, in milliseconds.
    reported: Cell<u64>,
}

/// State of the connection to a peer.
#[derive(Default)]
struct Link {
    /// The current connection or attempt.
    conn: Option<Rc<Conn>>,
    /// Response to the last greeting, and its time.
    status: Option<(Status, u64)>,
    /// Time of the next attempt to connect, in milliseconds.
    retry: u64,
}

/// A connection or an attempt to connect.
#[derive(Default)]
struct Conn {
    /// Another connection has replaced this one, or the lane stops.
    over: Event,
    /// There is data to send.
    wake: Notify,
}

fn clock(local: &Local) -> u64 {
    table_millis(local.here().now())
}

/// Serves a section until the lane stops.
async fn run_section(local: Rc<Local>, number: usize) {
    let generation = local.generation.clone();
    let own = &generation.peers[number];
    local.begun(); // keeps the lane alive until everything is sent
    let section = loop {
        if let Some(section) = own.take(&generation.stick_tables, clock(&local)) {
            break section;
        }
        // The generation before stops soon and returns the section.
        if unless_stopped(&local, local.here().sleep(EVERY)).await.is_none() {
            return local.ended();
        }
    };
    let section_task = Rc::new(SectionTask {
        local: local.clone(),
        number,
        section: RefCell::new(section),
        links: RefCell::new(own.peers.iter().map(|_| Link::default()).collect()),
        strangers: RefCell::default(),
        accepting: Cell::new(0),
        reported: Cell::new(0),
    });
    if let Some(sockets) = own.sockets() {
        for number in 0..sockets.len() {
            section_task.accepting.set(section_task.accepting.get() + 1);
            let task = accept(section_task.clone(), sockets.clone(), number);
            if local.here().spawn(&PEERS, Class::Normal, task).is_err() {
                section_task.accepting.set(section_task.accepting.get() - 1);
            }
        }
    }
    while !local.stopping.has_happened() {
        section_task.work();
        let _ = unless_stopped(&local, local.here().sleep(EVERY)).await;
    }
    if local.successor().is_none() {
        section_task.hand_over().await;
    }
    section_task.leave();
    local.ended();
}

impl SectionTask {
    fn own(&self) -> &Arc<Peers> {
        &self.local.generation.peers[self.number]
    }

    fn tls(&self) -> &PeersTls {
        &self.local.generation.peers_tls[self.number]
    }

    fn peer(&self, peer: usize) -> &Peer {
        &self.own().peers[peer]
    }

    /// Polls for changes and connects to peers.
    fn work(self: &Rc<Self>) {
        let now = clock(&self.local);
        let fresh = self.section.borrow_mut().tick(now);
        for peer in 0..self.own().peers.len() {
            let (connected, silent) = {
                let section = self.section.borrow();
                (section.is_connected(peer), section.is_silent(peer, now))
            };
            if silent {
                self.section.borrow_mut().counts(peer).silences += 1;
                self.replace_conn(peer, now);
                self.links.borrow_mut()[peer].conn = None;
                self.retry(peer, now, true);
                continue;
            }
            let links = self.links.borrow();
            match &links[peer].conn {
                Some(conn) if connected && fresh => conn.wake.notify_one(),
                Some(_) => {}
                None if self.peer(peer).is_local || now < links[peer].retry => {}
                None => {
                    drop(links);
                    let conn = self.replace_conn(peer, now);
                    let task = connect(self.clone(), peer, conn);
                    if self.local.here().spawn(&PEER, Class::Normal, task).is_err() {
                        self.links.borrow_mut()[peer].conn = None;
                        self.retry(peer, now, false);
                    }
                }
            }
        }
        if now.saturating_sub(self.reported.get()) >= REPORT {
            self.reported.set(now);
            self.report(now);
        }
    }

    fn report(&self, now: u64) {
        let section = self.section.borrow();
        let links = self.links.borrow();
        let peers = links.iter().zip(section.report(now)).map(|(link, report)| {
            let shown = PeerLink {
                is_connecting: link.conn.is_some() && !report.is_connected,
                status: link.status.map(|(status, _)| status),
                since: link.status.map(|(_, since)| now.saturating_sub(since) / 1000),
                retry: (link.conn.is_none() && link.retry > now).then(|| link.retry - now),
            };
            (shown, report)
        });
        let resync = section.resync();
        let left = match resync {
            Resync::Local(until) | Resync::Remote(until) => until.saturating_sub(now),
            Resync::Finished => 0,
        };
        self.own().note(PeersReport { resync, left, peers: peers.collect() });
    }

    /// Replaces the current connection or attempt (rule 2).
    fn replace_conn(&self, peer: usize, now: u64) -> Rc<Conn> {
        let conn = Rc::<Conn>::default();
        let before = self.links.borrow_mut()[peer].conn.replace(conn.clone());
        if let Some(before) = before {
            before.over.happen();
        }
        self.section.borrow_mut().end(peer, now);
        conn
    }

    fn is_current(&self, peer: usize, conn: &Rc<Conn>) -> bool {
        self.links.borrow()[peer].conn.as_ref().is_some_and(|own| Rc::ptr_eq(own, conn))
    }

    /// Sets the time of the next attempt to connect.
    fn retry(&self, peer: usize, now: u64, soon: bool) {
        let drawn = RandomState::new().hash_one(now) % RETRY_SPREAD;
        self.links.borrow_mut()[peer].retry = now + if soon { RETRY_SOON + drawn } else { RETRY };
    }

    /// Ends a connection or attempt. `soon` is true if it was useful.
    fn ended(&self, peer: usize, conn: &Rc<Conn>, soon: bool) {
        if self.is_current(peer, conn) {
            let now = clock(&self.local);
            self.links.borrow_mut()[peer].conn = None;
            self.section.borrow_mut().end(peer, now);
            self.retry(peer, now, soon);
        }
    }

    fn answered(&self, peer: usize, status: Status) {
        let now = clock(&self.local);
        self.links.borrow_mut()[peer].status = Some((status, now));
    }

    /// Sends everything to the process that listens in place of this one (rule 4).
    async fn hand_over(self: &Rc<Self>) {
        let Some(peer) = self.own().peers.iter().position(|peer| peer.is_local) else { return };
        // From here on only the other process may accept connections.
        self.own().set_sockets(None);
        while self.accepting.get() > 0 {
            self.local.here().sleep(EVERY).await;
        }
        let conn = self.replace_conn(peer, clock(&self.local));
        let task = connect(self.clone(), peer, conn.clone());
        if self.local.here().spawn(&PEER, Class::Normal, task).is_ok() {
            let mut until = clock(&self.local) + SILENCE;
            let mut taught = self.section.borrow().taught(peer);
            while self.is_current(peer, &conn) {
                let now = clock(&self.local);
                // A process that requests nothing needs nothing, and one that takes nothing may send
                // heartbeats for ever.
                let further = self.section.borrow().taught(peer);
                if further != taught {
                    (taught, until) = (further, now + SILENCE);
                } else if now >= until {
                    break;
                }
                let fresh = self.section.borrow_mut().tick(now);
                if fresh {
                    conn.wake.notify_one();
                }
                if self.has_taught(peer, now) {
                    break;
                }
                self.local.here().sleep(EVERY).await;
            }
        }
    }

    /// Returns true if the other process knows everything, or is gone.
    fn has_taught(&self, peer: usize, now: u64) -> bool {
        let section = self.section.borrow();
        section.has_taught(peer) || section.is_silent(peer, now)
    }

    /// Returns the section for the next generation when the lane stops (rule 3).
    fn leave(&self) {
        let now = clock(&self.local);
        for peer in 0..self.own().peers.len() {
            self.replace_conn(peer, now);
        }
        let none = Section::new([], [], false, now);
        let section = std::mem::replace(&mut *self.section.borrow_mut(), none);
        self.own().leave(section);
    }
}

/// Connects to a peer and exchanges updates.
async fn connect(section_task: Rc<SectionTask>, peer: usize, conn: Rc<Conn>) {
    let mut was_of_use = false;
    let work = async {
        let local = &section_task.local;
        let Some(endpoint) = &section_task.peer(peer).endpoint else { return };
        let connector = Connector::new(ConnectOptions::default());
        let until = local.here().now() + TIMEOUT;
        let Ok(connection) = connector.connect(&local.io, endpoint, None, Some(until)).await else { return };
        let greeting = async {
            let own = section_task.own();
            let connection = match &section_task.tls().peers[peer] {
                Some(tls) => encrypted(local, &tls.context, tls.name(&[]), connection).await.ok()?,
                None => connection,
            };
            send(&connection, hello(&own.peers[peer].name, &own.local, local.pid).as_bytes()).await?;
            let mut came = Vec::new();
            loop {
                if let Some((status, used)) = Status::read(&came) {
                    came.drain(..used);
                    return Some((status?, came, connection));
                }
                receive(&connection, &mut came).await?;
            }
        };
        let Ok(Some((status, rest, connection))) = local.here().timeout(TIMEOUT, greeting).await else {
            return;
        };
        section_task.answered(peer, status);
        was_of_use = match status {
            Status::Succeeded => talk(&section_task, peer, &conn, &connection, rest).await,
            status => status == Status::TryAgain,
        };
    };
    let _ = unless_happens(&conn.over, work).await;
    section_task.ended(peer, &conn, was_of_use);
}

/// Accepts connections of peers until the lane stops.
async fn accept(section_task: Rc<SectionTask>, sockets: Arc<[Bound]>, number: usize) {
    let local = &section_task.local;
    let acceptor = loop {
        match sockets[number].acceptor(&local.io) {
            Ok(acceptor) => break Some(acceptor),
            // No descriptor or no memory is left for the moment.
            Err(_) if unless_stopped(local, local.here().sleep(ACCEPTOR_RETRY)).await.is_some() => {}
            Err(_) => break None,
        }
    };
    if let Some(acceptor) = acceptor {
        while let Some(Ok(incoming)) = unless_stopped(local, acceptor.accept()).await {
            let task = welcome(section_task.clone(), incoming, PendingConn::new(&section_task));
            let _ = local.here().spawn(&PEER, Class::Normal, task);
        }
        let _ = acceptor.close().await;
    }
    section_task.accepting.set(section_task.accepting.get() - 1);
}

/// A connection that has not sent its greeting yet.
struct PendingConn {
    section_task: Rc<SectionTask>,
    /// A newer one takes its place.
    over: Rc<Event>,
}

impl PendingConn {
    fn new(section_task: &Rc<SectionTask>) -> Self {
        let over = Rc::<Event>::default();
        let mut all = section_task.strangers.borrow_mut();
        if all.len() >= MAX_PENDING
            && let Some(oldest) = all.pop_front()
        {
            oldest.happen();
        }
        all.push_back(over.clone());
        Self { section_task: section_task.clone(), over }
    }
}

impl Drop for PendingConn {
    fn drop(&mut self) {
        self.section_task.strangers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.over));
    }
}

/// Serves an accepted connection.
async fn welcome(section_task: Rc<SectionTask>, incoming: Incoming, stranger: PendingConn) {
    let local = &section_task.local;
    let connection = incoming.into_connection(&local.io);
    let (connection, greeted) = {
        let stranger = stranger; // counts as pending until the greeting
        let greeting = async {
            let connection = match &section_task.tls().listener {
                Some(context) => encrypted_by_peer(local, context, connection).await?,
                None => connection,
            };
            let mut came = Vec::new();
            loop {
                match read_hello(&came, &section_task.own().local) {
                    Err(status) => return Some((connection, Err(status))),
                    Ok(Some((name, used))) => {
                        let known = section_task.own().peers.iter().position(|peer| *peer.name == *name);
                        came.drain(..used);
                        let known = known.map(|peer| (peer, came)).ok_or(Status::WrongRemote);
                        return Some((connection, known));
                    }
                    Ok(None) => receive(&connection, &mut came).await?,
                }
            }
        };
        let greeting = unless_happens(&stranger.over, local.here().timeout(TIMEOUT, greeting));
        match unless_stopped(local, greeting).await {
            Some(Some(Ok(Some(greeted)))) => greeted,
            _ => return,
        }
    };
    let refused = match greeted {
        // If two processes hand over to this one, only the first is accepted.
        Ok((peer, _))
            if section_task.peer(peer).is_local && section_task.links.borrow()[peer].conn.is_some() =>
        {
            Status::TryAgain
        }
        Ok((peer, rest)) => {
            let now = clock(local);
            if section_task.links.borrow()[peer].conn.is_some() {
                section_task.section.borrow_mut().counts(peer).collisions += 1;
            }
            let conn = section_task.replace_conn(peer, now);
            let work = async {
                if send(&connection, Status::Succeeded.line().as_bytes()).await.is_some() {
                    section_task.answered(peer, Status::Succeeded);
                    talk(&section_task, peer, &conn, &connection, rest).await;
                }
            };
            let _ = unless_happens(&conn.over, work).await;
            return section_task.ended(peer, &conn, true);
        }
        Err(status) => status,
    };
    let refuse = async {
        send(&connection, refused.line().as_bytes()).await;
        let _ = connection.close().await;
    };
    let _ = unless_stopped(local, local.here().timeout(TIMEOUT, refuse)).await;
}

/// Does the TLS handshake of an accepted connection. `None` if it fails.
async fn encrypted_by_peer(
    local: &Local,
    context: &ServerContext,
    connection: Connection,
) -> Option<Connection> {
    let guard = TlsGuard::begin(&local.generation)?;
    let connection =
        connection.encrypt(local.tls(context).ok()?, Chain::new(), Some(Box::new(guard))).ok()?;
    connection.tls()?.handshake(local.here(), false).await.ok()?;
    Some(connection)
}

async fn send(connection: &Connection, bytes: &[u8]) -> Option<()> {
    let mut chain = Chain::new();
    chain.append(bytes).ok()?;
    connection.send(&mut chain).await.ok()
}

/// Receives more of a greeting. Drops input after `MAX_HELLO` bytes: a valid greeting is shorter.
async fn receive(connection: &Connection, came: &mut Vec<u8>) -> Option<()> {
    let segment = connection.recv().await.ok()??;
    if came.len() <= MAX_HELLO {
        came.extend_from_slice(segment.as_slice());
    }
    Some(())
}

/// Exchanges messages with a peer after the greeting, until one side ends the connection. `rest` holds bytes
/// received after the greeting. Returns true if there was no error.
async fn talk(
    section_task: &SectionTask,
    peer: usize,
    conn: &Conn,
    connection: &Connection,
    rest: Vec<u8>,
) -> bool {
    let local = &section_task.local;
    section_task.section.borrow_mut().begin(peer, clock(local));
    let reader = async {
        let mut part = MessageBuffer::default();
        let mut take = |received: &[u8]| {
            part.read(received, |bytes| section_task.section.borrow_mut().receive(peer, bytes, clock(local)))
        };
        let mut read = take(&rest);
        drop(rest);
        loop {
            if let Err(fault) = read {
                return Some(fault);
            }
            conn.wake.notify_one();
            local.here().yield_now().await;
            read = match connection.recv().await {
                Ok(Some(segment)) => take(segment.as_slice()),
                _ => return None,
            };
        }
    };
    let writer = async {
        let mut out = Vec::new();
        loop {
            out.clear();
            let more = section_task.section.borrow_mut().transmit(peer, clock(local), &mut out);
            if !out.is_empty() && send(connection, &out).await.is_none() {
                return;
            }
            if more {
                local.here().yield_now().await;
            } else {
                conn.wake.or(local.here().sleep(HEARTBEATS)).await;
            }
        }
    };
    let (mut reader, mut writer) = (pin!(reader), pin!(writer));
    let fault = poll_fn(|context| match reader.as_mut().poll(context) {
        Poll::Ready(fault) => Poll::Ready(fault),
        Poll::Pending => writer.as_mut().poll(context).map(|()| None),
    })
    .await;
    if fault.is_some() {
        section_task.section.borrow_mut().counts(peer).errors += 1;
    }
    if let Some(Fault::Message(wrong)) = fault {
        let mut out = Vec::new();
        match wrong {
            MessageError::Malformed => Message::ProtocolError.write(&mut out),
            MessageError::TooLong => Message::SizeError.write(&mut out),
        }
        let sending = async {
            send(connection, &out).await?;
            connection.flush().await.ok()
        };
        let _ = local.here().timeout(TIMEOUT, sending).await;
    }
    fault.is_none()
}
