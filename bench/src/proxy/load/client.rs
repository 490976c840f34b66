//! A client: sends its request, reads the response and checks it.

use super::Traffic;
use super::message::Reader;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// A client, with or without an active request.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: Option<TcpStream>,
    reader: Reader,
    /// Bytes of the request that were sent.
    sent: u64,
    pub(super) busy: bool,
    /// The response is complete; the proxy must close.
    closing: bool,
    /// When the request was due.
    pub(super) since: Instant,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    UnderWay,
    Complete,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            reader: Reader::default(),
            sent: 0,
            busy: false,
            closing: false,
            since: Instant::now(),
        }
    }

    /// Connects to the proxy, unless connected.
    pub(super) fn connect(&mut self, to: SocketAddr) -> Result<Option<&TcpStream>, String> {
        if self.socket.is_some() {
            return Ok(None);
        }
        // On the loopback, this returns after the connection is established, even if the proxy has not
        // accepted it.
        let socket =
            TcpStream::connect(to).map_err(|error| format!("cannot connect to the proxy: {error}"))?;
        let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
        ready.map_err(|error| error.to_string())?;
        self.reader = Reader::default();
        Ok(Some(self.socket.insert(socket)))
    }

    /// Begins a request that is due at `since`.
    pub(super) fn begin(&mut self, since: Instant) {
        self.busy = true;
        self.sent = 0;
        self.since = since;
    }

    /// Continues as far as the socket allows.
    ///
    /// # Errors
    /// A sentence if the response is unexpected, or the connection ends before it.
    pub(super) fn go_on(&mut self, traffic: &Traffic, room: &mut [u8]) -> Result<Progress, String> {
        let Some(socket) = &mut self.socket else { return Ok(Progress::UnderWay) };
        if self.busy && !self.closing {
            traffic
                .request
                .send(socket, &mut self.sent)
                .map_err(|error| format!("a client cannot send: {error}"))?;
        }
        loop {
            let n = match socket.read(room) {
                Ok(0) if self.closing => {
                    self.socket = None;
                    self.closing = false;
                    self.busy = false;
                    return Ok(Progress::Complete);
                }
                Ok(0) => return Err("the proxy closed a client's connection".into()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::UnderWay),
                Err(error) => return Err(format!("a client cannot receive: {error}")),
            };
            let mut input = &room[..n];
            match self.reader.take(&mut input)? {
                Some(read) if !self.busy || self.closing || !input.is_empty() => {
                    return Err(format!("a response too many: {read:?}"));
                }
                Some(read) if read.status != 200 || read.body != traffic.expected => {
                    return Err(format!(
                        "not the expected response, 200 with {} bytes: {read:?}",
                        traffic.expected
                    ));
                }
                Some(_) if traffic.close => self.closing = true,
                Some(_) => {
                    self.busy = false;
                    return Ok(Progress::Complete);
                }
                None if n < room.len() => return Ok(Progress::UnderWay),
                None => {}
            }
        }
    }
}
