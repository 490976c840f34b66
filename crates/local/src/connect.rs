//! Names and connections: bind, listen, accept, connect.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::locks;
use crate::name::{self, Name};
use crate::pcb::{PcbRef, Phase};
use crate::socket::{Kind, Socket, wake};
use crate::wait::{self, Attempt, Event, Op, Waiting};
use std::future::Future;
use std::time::Instant;

/// Maximum number of connections that wait for `accept`; a larger argument of `listen` is reduced to it.
pub const MAX_BACKLOG: usize = 4096;

impl Socket {
    /// Binds the socket to a name, under which other sockets of this process find it until it is closed.
    ///
    /// # Errors
    /// [`Error::AddressInUse`]; [`Error::Invalid`] if the socket has a name already.
    pub fn bind(&self, name: &Name) -> Result<(), Error> {
        name::bind(self.pcb(), name)
    }

    /// Starts listening: up to `backlog` connections, 1 to [`MAX_BACKLOG`], wait for `accept`. A second call
    /// changes the backlog.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for datagrams; [`Error::Invalid`] without a name; [`Error::IsConnected`] if
    /// the socket is or was connected.
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        if self.kind() == Kind::Datagram {
            return Err(Error::NotSupported(
                "datagram sockets have no connections to listen for: use a stream",
            ));
        }
        let credentials = Credentials::own();
        let mut state = self.pcb().state.lock();
        match state.phase {
            Phase::Open | Phase::Listening if state.name.is_none() => {
                return Err(Error::Invalid("a socket that listens needs a name: bind it first"));
            }
            Phase::Open | Phase::Listening => {}
            Phase::Connected | Phase::Disconnected => return Err(Error::IsConnected),
        }
        state.phase = Phase::Listening;
        state.credentials = Some(credentials);
        state.backlog.limit = backlog.clamp(1, MAX_BACKLOG);
        Ok(())
    }

    /// Waits for a connection, at most for the receive timeout, and accepts it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the socket does not listen; [`Error::WouldBlock`] after the timeout.
    pub fn accept(&self) -> Result<Self, Error> {
        wait::block(Accept { listener: self }, self.recv_block_until())
    }

    /// Accepts a connection as [`accept`](Self::accept), but waits until `deadline`.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_until(&self, deadline: Instant) -> Result<Self, Error> {
        wait::block(Accept { listener: self }, self.block_until(deadline))
    }

    /// Accepts a connection if one waits.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`Error::WouldBlock`] if none waits.
    pub fn try_accept(&self) -> Result<Self, Error> {
        wait::now(Accept { listener: self })
    }

    /// Accepts a connection as [`accept`](Self::accept), for any executor and without a timeout.
    pub fn accept_async(&self) -> impl Future<Output = Result<Self, Error>> {
        Op::new(Accept { listener: self })
    }

    /// Connects to the socket with this name. Never waits. A stream or seqpacket socket can connect once, and
    /// can then send at once, before the listener accepts. A datagram socket may connect any number of times:
    /// its messages go to the latest.
    ///
    /// # Errors
    /// [`Error::ConnectionRefused`] if no socket has the name, or it does not listen, or its backlog is full;
    /// [`Error::WrongKind`]; [`Error::IsConnected`]; [`Error::Invalid`] if this socket listens itself;
    /// [`Error::NoBuffers`] without memory for the other end.
    pub fn connect(&self, name: &Name) -> Result<(), Error> {
        let found = name::find(name)?;
        if found.kind != self.kind() {
            return Err(Error::WrongKind);
        }
        if self.kind() == Kind::Datagram {
            return self.connect_datagram(found);
        }
        self.connect_to_listener(&found, name)
    }

    fn connect_datagram(&self, found: PcbRef) -> Result<(), Error> {
        let mut state = self.pcb().state.lock();
        state.phase = Phase::Connected;
        state.peer_credentials = None; // the socket with that name took no part
        let former = self.pcb().set_conn(Some(found));
        drop(state);
        drop(former); // rule 5: without the lock
        Ok(())
    }

    fn connect_to_listener(&self, listener: &PcbRef, name: &Name) -> Result<(), Error> {
        if listener.as_ptr() == std::ptr::NonNull::from(self.pcb()) {
            return Err(Error::Invalid("a socket cannot connect to itself: use another one"));
        }
        // Creates the other end first. Only reports see it, by its lane's list. If the connection is refused,
        // it is dropped like any socket that was never connected: without a `conn`, and with the name of
        // another socket.
        let end = Self::try_new(self.kind())?;
        let pcb = end.pcb();
        let mut state = pcb.state.lock();
        state.phase = Phase::Connected;
        state.name = Some(name.clone());
        state.inherits_name = true;
        state.peer_credentials = Some(Credentials::own());
        drop(state);
        let (mut own, mut other) = locks::lock_two(self.pcb(), listener);
        match own.phase {
            Phase::Open => {}
            Phase::Listening => {
                drop((own, other));
                return Err(Error::Invalid("a socket that listens cannot connect: use another one"));
            }
            Phase::Connected | Phase::Disconnected => {
                drop((own, other));
                return Err(Error::IsConnected);
            }
        }
        let full = other.backlog.queue.len() >= other.backlog.limit;
        if !other.attached || other.phase != Phase::Listening || full {
            drop((own, other));
            return Err(Error::ConnectionRefused);
        }
        // `conn` of both is written before `end` is published (rule 2).
        let former = pcb.set_conn(Some(self.reference()));
        debug_assert!(former.is_none(), "it is new");
        own.phase = Phase::Connected;
        own.peer_credentials = other.credentials;
        let former = self.pcb().set_conn(Some(end.reference()));
        debug_assert!(former.is_none(), "rule 2: it was never connected");
        // Neither buffer has been used; no sender can send or wait before `own` is unlocked.
        let _nobody = pcb.rcv.lock().set_sender_limit(own.send_limit);
        other.backlog.queue.push_back(end);
        let wakes = other.accepters.take();
        drop((own, other));
        wake(wakes);
        Ok(())
    }
}

/// Takes a connection from the backlog.
struct Accept<'a> {
    listener: &'a Socket,
}

impl Attempt for Accept<'_> {
    type Output = Socket;

    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<Socket, Error> {
        let pcb = self.listener.pcb();
        let mut state = pcb.state.lock();
        if state.phase != Phase::Listening {
            return Err(Error::Invalid("the socket does not listen: call listen before accept"));
        }
        if let Some(end) = state.backlog.queue.pop_front() {
            return Ok(end);
        }
        if let Some(waiting) = waiting {
            waiting.enter(pcb, Event::Connection, &mut state.accepters);
        }
        Err(Error::WouldBlock)
    }

    fn may_succeed(&self) -> bool {
        !self.listener.pcb().state.lock().backlog.queue.is_empty()
    }
}
