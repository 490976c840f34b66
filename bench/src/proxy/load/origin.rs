//! The server behind the proxy: reads a request, sends its response.

use super::message::{Message, Reader};
use std::io::{self, Read as _};
use std::net::TcpStream;

/// A connection of the proxy.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) socket: TcpStream,
    reader: Reader,
    /// Bytes of the current response that were sent, if there is one.
    sending: Option<u64>,
}

impl Served {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, reader: Reader::default(), sending: None }
    }

    /// Continues as far as the socket allows. Returns false if the connection has ended.
    ///
    /// # Errors
    /// A sentence if the input is not a request.
    pub(super) fn go_on(&mut self, response: &Message, room: &mut [u8]) -> Result<bool, String> {
        loop {
            if let Some(sent) = &mut self.sending {
                match response.send(&self.socket, sent) {
                    Ok(true) => self.sending = None,
                    Ok(false) => return Ok(true),
                    Err(_) => return Ok(false), // the proxy may close at any time
                }
            }
            let n = match self.socket.read(room) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Ok(false),
            };
            let mut input = &room[..n];
            let complete = self.reader.take(&mut input)?.is_some();
            if !input.is_empty() {
                return Err("a request came before the response to the last one".into());
            }
            if complete {
                self.sending = Some(0);
            } else if n < room.len() {
                return Ok(true); // emptied; further input is another event
            }
        }
    }
}
