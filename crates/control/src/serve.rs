//! Sockets of the interface. The process binds them before it drops its privileges; the first lane serves
//! them.

use crate::activity::Client;
use crate::aside;
use crate::process::Process;
use crate::session;
use manylane_io::Io;
use manylane_net::hand_over::Offer;
use manylane_net::{Bound, Endpoint, HandedOver, ListenOptions};
use manylane_plan::generation::RuntimeSocket;
use manylane_plan::{ConnLimit, Generation};
use manylane_proxy::bind_listener;
use manylane_sched::{BlockingPool, Class, TaskKind};
use manylane_sync::Arc;
use std::cell::RefCell;
use std::rc::Rc;

static ACCEPT: TaskKind = TaskKind::new("control accept");
static SERVE: TaskKind = TaskKind::new("control");

/// Most clients of all sockets together, unless `stats maxconn` is set.
pub const MOST_CLIENTS: u32 = 10;

/// The state that commands read and change.
#[derive(Debug)]
pub struct Control {
    generation: Rc<RefCell<Arc<Generation>>>,
    /// The sockets as they were bound.
    sockets: Arc<[RuntimeSocket]>,
    process: Process,
    clients: ConnLimit,
    of_master: bool,
    /// Sockets of the generation's `stats socket` lines, for a process that takes over.
    handed_over: Rc<[Bound]>,
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
        let handed_over = Rc::new([]);
        Self { generation, sockets, process, clients: ConnLimit::new(most), of_master: true, handed_over }
    }

    /// Also hands `bound` over to a process that takes over: what [`bind`] returned for the sockets that the
    /// generation names.
    pub fn hands_over(mut self, bound: Rc<[Bound]>) -> Self {
        self.handed_over = bound;
        self
    }

    /// Returns the sockets of the interface that another process can take. It replaces the files of others.
    pub(crate) fn offers<'c>(&'c self, generation: &'c Generation) -> impl Iterator<Item = Offer<'c>> {
        let named = generation.process.stats_sockets.iter().zip(&*self.handed_over);
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

    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.borrow().clone()
    }

    pub(crate) fn sockets(&self) -> &[RuntimeSocket] {
        &self.sockets
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
    pub fn serve(self, io: &Io, bound: Rc<[Bound]>) -> Result<(), String> {
        let control = Rc::new(self);
        for (number, socket) in bound.iter().enumerate() {
            let acceptor = socket.acceptor(io).map_err(|error| error.to_string())?;
            let accepting = accept(control.clone(), io.clone(), acceptor, number, bound.clone());
            io.here().spawn(&ACCEPT, Class::Normal, accepting).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
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

async fn accept(
    control: Rc<Control>,
    io: Io,
    acceptor: manylane_net::Acceptor,
    number: usize,
    _bound: Rc<[Bound]>,
) {
    let here = io.here();
    loop {
        let Ok(incoming) = acceptor.accept().await else { return };
        // Further clients of this socket wait in the backlog; those of others have permits of their own.
        let guard = ClientGuard::enter(&control).await;
        let connection = incoming.into_connection(&io);
        let client = Client::new(control.of_master);
        let serving = async move {
            let _client = client;
            let control = &guard.0;
            if session::serve(control, &connection, here, &control.sockets[number]).await.is_ok() {
                let _ = connection.finish().await; // the client may be gone already
            }
        };
        // Without memory for the task this client goes, and the next one may be served.
        let _ = here.spawn(&SERVE, Class::Bulk, serving);
    }
}
