//! A client that sends exactly the bytes of a case.

use crate::TIMEOUT;
use crate::message::{Kind, Message};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// A connection to the program under test.
#[derive(Debug)]
pub struct Client {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
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
    /// Connects; `None` if nothing listens.
    pub fn connect(to: SocketAddr) -> Option<Self> {
        let writer = TcpStream::connect(to).ok()?;
        writer.set_read_timeout(Some(TIMEOUT)).unwrap();
        writer.set_write_timeout(Some(TIMEOUT)).unwrap();
        writer.set_nodelay(true).unwrap();
        let reader = BufReader::new(writer.try_clone().unwrap());
        Some(Self { writer, reader })
    }

    /// Sends bytes. A closed connection shows when reading.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes);
    }

    /// Reads one response; 1xx responses count separately.
    pub fn answer(&mut self, to_head: bool) -> Got {
        match Message::read(&mut self.reader, Kind::Answer { to_head }) {
            Ok(Some(message)) => Got::Answer(message),
            Ok(None) => Got::End,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Got::Nothing,
            Err(_) => Got::Broken,
        }
    }

    /// Closes its sending side and reads to the end.
    pub fn finish(mut self) -> Vec<u8> {
        let _ = self.writer.shutdown(Shutdown::Write); // it may be closed already
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest); // a reset is an end, too
        rest
    }
}
