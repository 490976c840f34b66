//! A client that sends exactly what a case says.

use crate::PATIENCE;
use crate::message::{Kind, Message};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// One connection to the program under test.
#[derive(Debug)]
pub struct Client {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// A whole message.
    Answer(Message),
    /// The connection ended where an answer could have begun.
    End,
    /// The connection ended, or was reset, in the middle of one.
    Broken,
    /// The stream of HTTP/2 was reset, or its connection ended, with this code.
    Reset(u32),
    /// Nobody listened.
    Refused,
    /// Nothing came within the test's patience.
    Nothing,
}

impl Client {
    /// Connects; `None` when nobody listens.
    pub fn connect(to: SocketAddr) -> Option<Self> {
        let writer = TcpStream::connect(to).ok()?;
        writer.set_read_timeout(Some(PATIENCE)).unwrap();
        writer.set_write_timeout(Some(PATIENCE)).unwrap();
        writer.set_nodelay(true).unwrap();
        let reader = BufReader::new(writer.try_clone().unwrap());
        Some(Self { writer, reader })
    }

    /// Sends. That the peer has closed shows when reading.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes);
    }

    /// Reads one answer; those of status 1xx are answers of their own.
    pub fn answer(&mut self, to_head: bool) -> Got {
        match Message::read(&mut self.reader, Kind::Answer { to_head }) {
            Ok(Some(message)) => Got::Answer(message),
            Ok(None) => Got::End,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Got::Nothing,
            Err(_) => Got::Broken,
        }
    }

    /// Says that nothing more will be sent, and reads what still comes, to the end.
    pub fn finish(mut self) -> Vec<u8> {
        let _ = self.writer.shutdown(Shutdown::Write); // it may be closed
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest); // a reset ends it too
        rest
    }
}
