//! Sockets of the interface. The process binds them before it drops its privileges; the first lane serves
//! them.

use crate::activity::Client;
use crate::aside;
use crate::process::Process;
use crate::session;
use manylane_buf::Chain;
use manylane_io::Io;
use manylane_lanes::{Local, bind_listener};
use manylane_net::hand_over::Offer;
use manylane_net::{Acceptor, Bound, Connection, Endpoint, HandedOver, Incoming, ListenOptions};
use manylane_plan::generation::notify::Notify;
use manylane_plan::generation::{Rights, RuntimeSocket};
use manylane_plan::{ConnLimit, Generation};
use manylane_sched::{BlockingPool, Class, Here, TaskKind};
use manylane_sync::Arc;
use manylane_tls::ServerContext;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

static ACCEPT: TaskKind = TaskKind::new("control accept");
static SERVE: TaskKind = TaskKind::new("control");

/// Most clients of all sockets together, unless `stats maxconn` is set.
pub const MOST_CLIENTS: u32 = 10;

/// Most clients of all sockets together that are in the handshake of TLS, or wait behind it. They have no
/// permit of `stats maxconn`, so that strangers keep no operator from another socket. One more closes the
/// oldest of them, so that strangers who say nothing keep no operator from this one either.
const MOST_HANDSHAKES: usize = 64;

/// Longest time of a handshake of TLS.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(10);

/// The state that commands read and change.
#[derive(Debug)]
pub struct Control {
    generation: Rc<RefCell<Arc<Generation>>>,
    /// The sockets as they were bound.
    sockets: Arc<[RuntimeSocket]>,
    process: Process,
    clients: ConnLimit,
    /// The clients within TLS that have no permit yet, the oldest one first.
    handshakes: RefCell<VecDeque<Rc<Unserved>>>,
    of_master: bool,
    /// Sockets of the generation's `stats socket` lines, for a process that takes over.
    handed_over: BoundSockets,
}

/// Sockets that [`bind`] returned, until [`close`](Self::close). Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BoundSockets {
    bound: Rc<RefCell<Rc<[Bound]>>>,
    /// Wakes the task that accepts from the socket of the same number.
    closed: Rc<[Notify]>,
}

impl BoundSockets {
    /// Closes the sockets once all connections that wait are accepted, so that a process that took them over
    /// gets all further ones.
    pub fn close(&self) {
        self.bound.take();
        self.closed.iter().for_each(Notify::notify_one);
    }
}

impl From<Vec<Bound>> for BoundSockets {
    fn from(bound: Vec<Bound>) -> Self {
        let closed = bound.iter().map(|_| Notify::default()).collect();
        Self { bound: Rc::new(RefCell::new(bound.into())), closed }
    }
}

/// Returns those of the `bound` sockets of the interface that another process can take. It replaces the files
/// of others.
pub(crate) fn offers<'c>(bound: &'c [Bound], generation: &'c Generation) -> impl Iterator<Item = Offer<'c>> {
    let named = generation.process.stats_sockets.iter().zip(bound);
    named.filter_map(|(socket, bound)| {
        let can_be_taken = matches!(bound.endpoint(), Endpoint::Ip(_) | Endpoint::Abstract(_));
        let ListenOptions { namespace, interface, .. } = &socket.listener.options;
        Some(Offer {
            socket: bound.socket().filter(|_| can_be_taken)?,
            namespace: namespace.as_deref(),
            interface: interface.as_deref(),
        })
    })
}

/// Binds the interface's sockets. `owner` looks up a user or group by name. A matching socket from
/// `handed_over` is used instead of a new one.
///
/// # Errors
/// A message for each socket that could not be bound.
pub fn bind(
    sockets: &[RuntimeSocket],
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<Bound>, Vec<String>> {
    let (mut bound, mut failures) = (Vec::new(), Vec::new());
    for socket in sockets {
        match bind_listener(&socket.listener, 1, &owner, handed_over) {
            Ok(sockets) => bound.extend(sockets),
            Err(reason) => failures.push(format!("Binding for the run-time interface: {reason}")),
        }
    }
    if failures.is_empty() { Ok(bound) } else { Err(failures) }
}

impl Control {
    /// Serves commands on the current generation, over the sockets that this generation names.
    pub fn new(generation: Rc<RefCell<Arc<Generation>>>, process: Process) -> Self {
        let sockets = generation.borrow().process.stats_sockets.clone();
        Self { of_master: false, ..Self::over(generation, process, sockets) }
    }

    /// Serves commands of the master, over `sockets`.
    pub fn over(
        generation: Rc<RefCell<Arc<Generation>>>,
        process: Process,
        sockets: Arc<[RuntimeSocket]>,
    ) -> Self {
        let most = generation.borrow().process.stats_maxconn.unwrap_or(MOST_CLIENTS);
        let (clients, handed_over) = (ConnLimit::new(most), BoundSockets::default());
        Self {
            generation,
            sockets,
            process,
            clients,
            handshakes: RefCell::default(),
            of_master: true,
            handed_over,
        }
    }

    /// Also hands `bound` over to a process that takes over: what [`bind`] returned for the sockets that the
    /// generation names.
    pub fn hands_over(mut self, bound: BoundSockets) -> Self {
        self.handed_over = bound;
        self
    }

    /// Returns the sockets of the generation's `stats socket` lines, until they are closed.
    pub(crate) fn handed_over(&self) -> Rc<[Bound]> {
        self.handed_over.bound.borrow().clone()
    }

    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.borrow().clone()
    }

    pub(crate) fn sockets(&self) -> &[RuntimeSocket] {
        &self.sockets
    }

    /// Returns the line of the generation for a socket. The sockets for masters are in no file.
    pub(crate) fn line<'a>(&'a self, generation: &'a Generation, number: usize) -> &'a RuntimeSocket {
        let line = generation.process.stats_lines.get(number).filter(|_| !self.of_master);
        line.unwrap_or(&self.sockets[number])
    }

    /// Returns how a client of a socket is served that connects now.
    fn terms(&self, number: usize) -> Terms {
        let generation = self.generation();
        let line = self.line(&generation, number);
        Terms { rights: line.rights, tls: line.listener.tls.clone() }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// The thread for work that takes long.
    pub(crate) fn aside() -> &'static BlockingPool {
        aside::pool()
    }

    /// Makes the calling lane serve the sockets that [`bind`] returned.
    ///
    /// # Errors
    /// A message, if the lane has no descriptor or no memory left for a listener.
    pub fn serve(self, io: &Io, sockets: BoundSockets) -> Result<(), String> {
        let control = Rc::new(self);
        let bound = sockets.bound.borrow().clone();
        for (number, socket) in bound.iter().enumerate() {
            let acceptor = socket.acceptor(io).map_err(|error| error.to_string())?;
            let accepting = accept(control.clone(), io.clone(), acceptor, number, sockets.clone());
            io.here().spawn(&ACCEPT, Class::Normal, accepting).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// How a client is served: rights and TLS of one line, whatever a reload changes meanwhile.
struct Terms {
    rights: Rights,
    tls: Option<ServerContext>,
}

/// Holds a client's permit of the connection limit.
struct ClientGuard(Rc<Control>);

impl ClientGuard {
    /// Waits for a permit. The master needs none: it hands its clients on, which its own limit bounds, and a
    /// reload must not wait for them.
    async fn enter(control: &Rc<Control>) -> Self {
        if !control.of_master {
            control.clients.enter().await;
        }
        Self(control.clone())
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        if !self.0.of_master {
            self.0.clients.leave();
        }
    }
}

async fn accept(control: Rc<Control>, io: Io, acceptor: Acceptor, number: usize, sockets: BoundSockets) {
    loop {
        let (mut accepted, mut guard) = (None, None);
        let next = async {
            let Ok(incoming) = acceptor.accept().await else { return };
            let (_, terms) = accepted.insert((incoming, control.terms(number)));
            if terms.tls.is_none() {
                // One accepted client of each socket may wait for a permit, which all sockets share; further
                // ones wait in the backlog.
                guard = Some(ClientGuard::enter(&control).await);
            }
        };
        if sockets.closed[number].or(next).await {
            let waiting = acceptor.close().await.unwrap_or_default();
            let waiting = waiting.into_iter().map(|incoming| (incoming, control.terms(number)));
            for (incoming, terms) in accepted.into_iter().chain(waiting) {
                let guard = if terms.tls.is_some() { None } else { Some(ClientGuard::enter(&control).await) };
                start(&control, guard, &io, incoming, terms);
            }
            return;
        }
        let Some((incoming, terms)) = accepted else { return };
        start(&control, guard, &io, incoming, terms);
    }
}

/// Does the TLS handshake with a client of a socket with `ssl`. `None` if it fails. The client needs no
/// permit of `maxsslconn`: `stats maxconn` bounds these clients, and an operator is let in when others are
/// not.
async fn encrypted(
    control: &Control,
    connection: Connection,
    here: Here,
    context: &ServerContext,
) -> Option<Connection> {
    let tls = {
        let generation = control.generation(); // which must not live as long as the handshake
        Local::of(&generation)?.tls(context).ok()?
    };
    let connection = connection.encrypt(tls, Chain::new(), None).ok()?;
    let handshake = connection.tls()?.handshake(here, false);
    here.timeout(LONGEST_HANDSHAKE, handshake).await.ok()?.ok()?;
    Some(connection)
}

/// A client within TLS that has no permit yet.
#[derive(Debug, Default)]
struct Unserved {
    /// Its handshake is complete.
    is_encrypted: Cell<bool>,
    /// A newer client takes its place.
    closed: Notify,
}

/// Holds the place of a client within TLS until it has a permit.
struct HandshakeGuard {
    control: Rc<Control>,
    client: Rc<Unserved>,
}

impl HandshakeGuard {
    fn enter(control: &Rc<Control>) -> Self {
        let (mut all, client) = (control.handshakes.borrow_mut(), Rc::<Unserved>::default());
        if all.len() >= MOST_HANDSHAKES {
            // Whoever has not completed the handshake may be a stranger.
            let oldest = all.iter().position(|other| !other.is_encrypted.get()).unwrap_or(0);
            if let Some(oldest) = all.remove(oldest) {
                oldest.closed.notify_one();
            }
        }
        all.push_back(client.clone());
        Self { control: control.clone(), client }
    }
}

impl Drop for HandshakeGuard {
    fn drop(&mut self) {
        self.control.handshakes.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.client));
    }
}

/// Starts to serve a client. One within TLS gets its `guard` behind the handshake.
fn start(control: &Rc<Control>, guard: Option<ClientGuard>, io: &Io, incoming: Incoming, terms: Terms) {
    let (here, control) = (io.here(), control.clone());
    let connection = incoming.into_connection(io);
    let client = Client::new(control.of_master);
    let serving = async move {
        let _client = client;
        let (connection, _guard) = match &terms.tls {
            None => (connection, guard),
            Some(context) => {
                let handshake = HandshakeGuard::enter(&control);
                let mut entered = None;
                let entering = async {
                    let Some(connection) = encrypted(&control, connection, here, context).await else {
                        return;
                    };
                    handshake.client.is_encrypted.set(true);
                    entered = Some((connection, Some(ClientGuard::enter(&control).await)));
                };
                handshake.client.closed.or(entering).await;
                let Some(entered) = entered else { return };
                entered
            }
        };
        if session::serve(&control, &connection, here, terms.rights).await.is_ok() {
            // The client may be gone already, or read nothing.
            let time = control.generation().process.stats_timeout;
            let _ = here.timeout(time, connection.finish()).await;
        }
    };
    // Without memory for the task this client goes, and the next one may be served.
    let _ = here.spawn(&SERVE, Class::Bulk, serving);
}
