//! Servers of any protocol: they send and receive as a case says, and store what they receive.

use crate::TIMEOUT;
use crate::origin::serve_until;
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A step of a talker, in order, on each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Sends these bytes.
    Say(Vec<u8>),
    /// Receives until what came behind the last such part ends with these bytes.
    Hear(Vec<u8>),
    /// Closes its sending side.
    Close,
    /// Resets the connection.
    Reset,
}

/// Limit of received bytes that are stored.
const MOST_HEARD: usize = 64 << 10;

#[derive(Debug)]
struct Shared {
    parts: Vec<Part>,
    heard: Mutex<Vec<Vec<u8>>>,
    ended: AtomicBool,
}

/// A server with a thread for each connection.
#[derive(Debug)]
pub struct Talker {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Talker {
    /// Listens on a port of the kernel's choice.
    pub fn start(parts: Vec<Part>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { parts, heard: Mutex::default(), ended: AtomicBool::new(false) });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, accepting }
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the received data by connection, after all have ended. Call it when the program has ended.
    pub fn heard(self) -> Vec<Vec<u8>> {
        self.shared.ended.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address); // wakes `accept`
        self.accepting.join().unwrap();
        let mut heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    serve_until(listener, &shared.ended, |stream| {
        let index = {
            let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(Vec::new());
            heard.len() - 1
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let mut heard = Vec::new();
            let _ = talk(stream, &shared.parts, &mut heard); // a broken connection has ended
            shared.heard.lock().unwrap_or_else(PoisonError::into_inner)[index] = heard;
        })
    });
}

fn talk(mut stream: TcpStream, parts: &[Part], heard: &mut Vec<u8>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut bytes = [0; 4096];
    // Behind the end that was heard last, which a later part must not hear again.
    let mut unheard = 0;
    for part in parts {
        match part {
            Part::Say(bytes) => stream.write_all(bytes)?,
            Part::Hear(end) => {
                while !heard[unheard..].ends_with(end) && heard.len() < MOST_HEARD {
                    let length = stream.read(&mut bytes)?;
                    heard.extend_from_slice(&bytes[..length]);
                    if length == 0 {
                        return Ok(());
                    }
                }
                unheard = heard.len();
            }
            Part::Close => stream.shutdown(std::net::Shutdown::Write)?,
            Part::Reset => {
                set_socket_linger(&stream, Some(Duration::ZERO))?;
                return Ok(());
            }
        }
    }
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        heard.extend_from_slice(&bytes[..length]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_was_heard_is_not_heard_again() {
        let end = || Part::Hear(b".".to_vec());
        let talker = Talker::start(vec![end(), Part::Say(b"1".to_vec()), end(), Part::Say(b"2".to_vec())]);
        let mut client = TcpStream::connect(talker.address()).unwrap();
        client.write_all(b"one.").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "1");
        assert_eq!(talker.heard(), [&b"one."[..], b""], "and what wakes it");
    }
}
