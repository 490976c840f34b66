//! A client that sends exactly the bytes of a case.

use crate::TIMEOUT;
use crate::message::{Kind, Message};
use crate::tls::Stream;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection to the program under test.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Stream>,
}

/// Result of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// A complete message.
    Answer(Message),
    /// The connection ended before a response.
    End,
    /// The connection ended, or was reset, in the middle of a response.
    Broken,
    /// The HTTP/2 stream was reset, or its connection ended, with this code.
    Reset(u32),
    /// Nothing listens.
    Refused,
    /// Nothing arrived in time.
    Nothing,
}

impl Client {
    /// Connects, over TLS if wanted; `None` if nothing listens.
    pub fn connect(to: SocketAddr, tls: bool) -> Option<Self> {
        let socket = TcpStream::connect(to).ok()?;
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        let stream = if tls { Stream::tls(socket) } else { Stream::Clear(socket) };
        Some(Self { stream: BufReader::new(stream) })
    }

    /// Sends bytes. A closed connection shows when reading.
    pub fn send(&mut self, bytes: &[u8]) {
        let stream = self.stream.get_mut();
        let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    }

    /// Reads one response; 1xx responses count separately.
    pub fn answer(&mut self, to_head: bool) -> Got {
        match Message::read(&mut self.stream, Kind::Answer { to_head }) {
            Ok(Some(message)) => Got::Answer(message),
            Ok(None) => Got::End,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Got::Nothing,
            Err(_) => Got::Broken,
        }
    }

    /// Closes its sending side and reads to the end.
    pub fn finish(mut self) -> Vec<u8> {
        self.stream.get_mut().shutdown();
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest); // a reset is an end, too
        rest
    }
}
