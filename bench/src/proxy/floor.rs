//! The kernel's cost of checks: a bare loop that connects as often, to the same servers, and does nothing
//! else.
//!
//! It has one thread, epoll, and the options of checks: `TCP_NODELAY`, no separate acknowledgement of the
//! handshake, a reset at the end. There are two variants: a socket for each connection, as in the programs,
//! and sockets that are disconnected and connected again.

use super::checks::CHECKED_FOR;
use super::median;
use super::scenario::CHECKED;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, connect_unspec, socket_with, sockopt};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A check's share of two seconds.
const APART: Duration = Duration::from_nanos(2_000_000_000 / CHECKED as u64);

/// A thread's processor time so far: the total in nanoseconds, and its own and the kernel's part in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    nanos: u64,
    user: u64,
    system: u64,
    made: u64,
}

/// Measures both variants `rounds` times; returns the table lines.
///
/// # Errors
/// A sentence if a connection fails.
pub(super) fn table(port: u16, rounds: u32) -> Result<String, String> {
    let mut text = String::new();
    for (keeps, words) in [(false, "a socket each"), (true, "sockets used again")] {
        let (mut samples, mut all) = (Vec::new(), Used::default());
        for _ in 0..rounds {
            let (used, time) = std::thread::scope(|scope| scope.spawn(|| connecting(port, keeps)).join())
                .map_err(|_| "the bare loop has panicked".to_string())?
                .map_err(|error| format!("the bare loop: {error}"))?;
            samples.push(used.nanos as f64 / 1e7 / time.as_secs_f64());
            all = Used {
                nanos: all.nanos + used.nanos,
                user: all.user + used.user,
                system: all.system + used.system,
                made: all.made + used.made,
            };
        }
        let each = all.nanos as f64 / 1e3 / all.made.max(1) as f64;
        let user = each * all.user as f64 / (all.user + all.system).max(1) as f64;
        let name = format!("bare loop, {words}");
        let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let _ = writeln!(
            text,
            "    {name:<30} median {:>8.3}  least {least:>8.3}  {each:.1} us each: {user:.1} user, {:.1} \
                system",
            median(samples),
            each - user,
        );
    }
    Ok(text)
}

/// The loop. Returns its processor time and its duration.
fn connecting(port: u16, keeps: bool) -> std::io::Result<(Used, Duration)> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut sockets: Vec<ClientSocket> = Vec::new();
    let mut free = Vec::new();
    let mut events: Vec<Event> = Vec::with_capacity(256);
    let (begun, before) = (Instant::now(), used()?);
    let mut made: u32 = 0;
    loop {
        let now = begun.elapsed();
        if now >= CHECKED_FOR {
            break;
        }
        while APART * made <= now {
            let number = made as usize % CHECKED;
            let ip = Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250) as u8 + 1);
            let index = free.pop().unwrap_or_else(|| {
                sockets.push(ClientSocket::default());
                sockets.len() - 1
            });
            sockets[index].begin(&epoll, index, (ip, port).into())?;
            made += 1;
        }
        // Rounded up to a millisecond, like lanes do.
        let wait = (APART * made).saturating_sub(begun.elapsed()).as_micros().div_ceil(1000) as i64;
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.clamp(0, 999) * 1_000_000 };
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let Event { data, .. } = *event;
            let position = data.u64() as usize;
            if sockets[position].end(keeps)? {
                free.push(position);
            }
        }
    }
    let time = begun.elapsed();
    let after = used()?;
    let used = Used {
        nanos: after.nanos - before.nanos,
        user: after.user - before.user,
        system: after.system - before.system,
        made: made.into(),
    };
    Ok((used, time))
}

/// A socket, and whether it is connecting.
#[derive(Debug, Default)]
struct ClientSocket {
    socket: Option<OwnedFd>,
    connects: bool,
}

impl ClientSocket {
    fn begin(&mut self, epoll: &OwnedFd, number: usize, to: SocketAddr) -> std::io::Result<()> {
        let is_new = self.socket.is_none();
        if is_new {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            self.socket = Some(socket);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        sockopt::set_tcp_quickack(socket, false)?;
        match connect(socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => self.connects = true,
            Err(errno) => return Err(errno.into()),
        }
        if is_new {
            let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(epoll, socket, EventData::new_u64(number as u64), interest)?;
        }
        Ok(())
    }

    /// Handles an event of the socket. Returns true if it is connected; the event may also belong to the
    /// previous connection.
    fn end(&mut self, keeps: bool) -> std::io::Result<bool> {
        let Some(socket) = self.socket.as_ref().filter(|_| self.connects) else { return Ok(false) };
        sockopt::socket_error(socket)??;
        self.connects = false;
        if keeps {
            connect_unspec(socket)?;
            let _ = sockopt::socket_error(socket)?; // the reset
        } else {
            sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
            self.socket = None;
        }
        Ok(true)
    }
}

/// The calling thread's times.
fn used() -> std::io::Result<Used> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    let text = std::fs::read_to_string("/proc/thread-self/stat")?;
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse().ok()).unwrap_or(0);
    Ok(Used { nanos, user: ticks(11), system: ticks(12), made: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reused sockets connect as often as new ones, and see no errors of previous connections.
    #[test]
    fn both_ways_connect() {
        let servers = std::net::TcpListener::bind("0.0.0.0:0").expect("there is a port");
        let port = servers.local_addr().expect("it is bound").port();
        for keeps in [false, true] {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("there are descriptors");
            let mut socket = ClientSocket::default();
            for _ in 0..10 {
                socket.begin(&epoll, 0, (Ipv4Addr::LOCALHOST, port).into()).expect("it listens");
                let mut events: Vec<Event> = Vec::with_capacity(1);
                loop {
                    events.clear();
                    epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)
                        .expect("it happens");
                    if socket.end(keeps).expect("it is connected") {
                        break;
                    }
                }
            }
        }
    }
}
