//! Servers behind the program under test: they store requests and respond as the case says.

use crate::TIMEOUT;
use crate::message::{Kind, Message};
use std::io::{BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Reaction to the n-th request; the last one applies to all that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Sends these bytes; true closes afterwards.
    Bytes(Vec<u8>, bool),
    /// Closes without a response.
    Close,
    /// Sends nothing until the program closes.
    Silence,
}

impl Answer {
    /// A small response with the origin's name.
    pub fn plain(name: &str) -> Self {
        let body = format!("this is {name}\n");
        let head = format!("HTTP/1.1 200 OK\r\nX-Origin: {name}\r\nContent-Length: {}\r\n\r\n", body.len());
        Self::Bytes((head + &body).into_bytes(), false)
    }
}

/// A request at an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Number of its connection, from 1.
    pub connection: usize,
    /// PROXY protocol header before the first request of the connection.
    pub greeting: Option<String>,
    /// The request.
    pub request: Message,
}

#[derive(Debug)]
struct Shared {
    name: String,
    answers: Vec<Answer>,
    requests: Mutex<Vec<RecordedRequest>>,
    ended: AtomicBool,
}

/// A server with a thread for each connection. It stops accepting when dropped, and waits for these threads.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Origin {
    /// Listens on a port of the kernel's choice.
    pub fn start(name: &str, answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let answers = if answers.is_empty() { vec![Answer::plain(name)] } else { answers };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            answers,
            requests: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests, after all connections have ended. Call it when the program has ended.
    pub fn finish(mut self) -> Vec<RecordedRequest> {
        self.stop();
        self.requests()
    }

    fn stop(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.ended.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address); // wakes `accept`
        let _ = accepting.join(); // the comparison shows what failed
    }

    /// Requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut index = 0;
    serve_until(listener, &shared.ended, |connection| {
        index += 1;
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = serve(connection, index, &shared); // some cases break connections
        })
    });
}

/// Serves connections until `ended` is set, then those that still wait to be accepted. Returns when all have
/// ended. Connect once after setting `ended`: that wakes the wait in `accept`.
pub(crate) fn serve_until(
    listener: &TcpListener,
    ended: &AtomicBool,
    mut serve: impl FnMut(TcpStream) -> JoinHandle<()>,
) {
    let mut serving = Vec::new();
    loop {
        match listener.accept() {
            Ok((connection, _)) => serving.push(serve(connection)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => {} // it ended before it was accepted
        }
        if ended.load(Ordering::Acquire) {
            listener.set_nonblocking(true).unwrap();
        }
    }
    serving.into_iter().for_each(|each| drop(each.join())); // the comparison shows what failed
}

fn serve(connection: TcpStream, index: usize, shared: &Shared) -> std::io::Result<()> {
    connection.set_read_timeout(Some(TIMEOUT))?;
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    let mut greeting = None;
    while let Some(mut request) = Message::read_after_greeting(&mut reader, &mut greeting)? {
        if request.values("expect").any(|value| value.eq_ignore_ascii_case("100-continue")) {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            request.read_rest(&mut reader)?;
        }
        let turn = {
            let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(RecordedRequest { connection: index, greeting: greeting.take(), request });
            requests.len() - 1
        };
        match shared.answers.get(turn).or(shared.answers.last()) {
            Some(Answer::Bytes(bytes, close)) => {
                writer.write_all(bytes)?;
                if *close {
                    return Ok(());
                }
            }
            Some(Answer::Close) => return Ok(()),
            Some(Answer::Silence) => {
                let mut rest = Vec::new();
                std::io::Read::read_to_end(&mut reader, &mut rest)?;
                return Ok(());
            }
            None => unreachable!("{} has at least one answer", shared.name),
        }
    }
    Ok(())
}

/// Describes a PROXY protocol header of version 2: command, family, addresses and TLVs. The kernel chooses
/// ports, on which the checksum depends.
fn binary_greeting(from: &mut impl std::io::BufRead) -> std::io::Result<String> {
    let mut fixed = [0; 16];
    from.read_exact(&mut fixed)?;
    let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    from.read_exact(&mut rest)?;
    let mut text = format!("PROXY2 {:02x} {:02x}", fixed[12], fixed[13]);
    let addresses = match fixed[13] >> 4 {
        1 => 12,
        2 => 36,
        _ => 0,
    };
    let (addresses, mut rest) = rest.split_at(addresses.min(rest.len()));
    text += &format!(" {:?}", &addresses[..addresses.len() / 3 * 2 + addresses.len() % 3]);
    while let [kind, high, low, more @ ..] = rest {
        let (value, behind) = more.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(more.len()));
        let shown = if *kind == 3 { "checksum".into() } else { value.escape_ascii().to_string() };
        text += &format!(" {kind:02x}={shown}");
        rest = behind;
    }
    Ok(text)
}

impl Message {
    /// Reads a request, after a PROXY protocol line if there is one. Leaves the body of a request with
    /// `Expect: 100-continue` to [`Message::read_rest`].
    fn read_after_greeting(
        from: &mut impl std::io::BufRead,
        greeting: &mut Option<String>,
    ) -> std::io::Result<Option<Self>> {
        if from.fill_buf()?.starts_with(b"\r\n\r\n\0") {
            *greeting = Some(binary_greeting(from)?);
        }
        let Some(message) = Self::read_head(from)? else { return Ok(None) };
        if message.start.starts_with("PROXY ") {
            *greeting = Some(message.start);
            return Self::read_head(from)?.map(|request| request.with_body(from)).transpose();
        }
        message.with_body(from).map(Some)
    }

    fn with_body(mut self, from: &mut impl std::io::BufRead) -> std::io::Result<Self> {
        let expects = self.values("expect").any(|value| value.eq_ignore_ascii_case("100-continue"));
        if !expects {
            self.read_rest(from)?;
        }
        Ok(self)
    }

    fn read_rest(&mut self, from: &mut impl std::io::BufRead) -> std::io::Result<()> {
        self.read_body(from, Kind::Request)
    }
}
