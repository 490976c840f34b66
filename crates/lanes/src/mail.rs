//! Alerts by mail (`email-alert`): lines about servers go to mail servers over SMTP.
//!
//! # Protocol
//! 1. A lane queues the mail with each mail server of the section, and waits for nothing. If no job sends the
//!    mails of that server, the lane starts one.
//! 2. A job sends the mails of one server, each over a connection of its own, in the order of the queue, on a
//!    thread of [`pool`]; it ends with the queue. A mail that fails is not sent again.
//! 3. A task of the lane waits for the job, and reports its failures.

use manylane_expr::Civil;
use manylane_logs::Level;
use manylane_plan::generation::{Alerts, MOST_MAILS, Mail, Mailer, Queued};
use manylane_sched::{BlockingPool, Class, Here, TaskKind};
use manylane_sync::Arc;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static MAILS: TaskKind = TaskKind::new("alerts by mail");

/// Largest number of mail servers that are sent to at once.
const MOST_AT_ONCE: usize = 8;

/// Largest number of mail servers that wait for a thread.
const MOST_WAITING: usize = 64;

/// Largest number of addresses of a mail server to try.
const MOST_ADDRESSES: usize = 4;

/// Longest reply of a mail server in bytes.
const LONGEST_REPLY: usize = 4 << 10;

/// Longest text of an alert in bytes: lines of mails have at most 998.
const LONGEST_TEXT: usize = 900;

/// Largest number of failures of a job that are reported one by one.
const MOST_FAILURES: usize = 16;

fn pool() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::named("mails", MOST_AT_ONCE, MOST_WAITING))
}

/// Sends the line of an event by mail, if its level is severe enough. Failures go to `report`.
pub(super) fn alert(alerts: &Alerts, here: Here, level: Level, line: &str, report: fn(&str)) {
    if level > alerts.level {
        return;
    }
    let data = data(alerts, line, SystemTime::now());
    for mailer in &alerts.mailers {
        let mail = Mail {
            host: alerts.host.clone(),
            from: alerts.from.clone(),
            to: alerts.to.clone(),
            data: data.clone(),
        };
        match mailer.queue(mail) {
            Queued::Waits => {}
            Queued::Dropped => {
                report(&format!(
                    "Mailer {}: at most {MOST_MAILS} alerts wait, another one is dropped.",
                    mailer.name
                ));
            }
            Queued::First => start(mailer, here, report),
        }
    }
}

fn start(mailer: &Arc<Mailer>, here: Here, report: fn(&str)) {
    let own = mailer.clone();
    match pool().run(move || send_all(&own)) {
        Ok(job) => {
            let name = mailer.name.clone();
            // Without memory for the task, failures are not reported.
            let _ = here.spawn(&MAILS, Class::Bulk, async move {
                for failure in job.await {
                    report(&format!("Mailer {name}: an alert was not sent: {failure}."));
                }
            });
        }
        Err(error) => {
            let count = mailer.give_up();
            report(&format!("Mailer {}: {count} alerts are dropped: {error}.", mailer.name));
        }
    }
}

/// Sends the mails of a server. Returns why some were not sent.
fn send_all(mailer: &Mailer) -> Vec<String> {
    let mut failures = Vec::new();
    while let Some(mail) = mailer.next() {
        if let Err(why) = send(mailer, &mail)
            && failures.len() < MOST_FAILURES
        {
            failures.push(why);
        }
    }
    failures
}

/// Makes the text of a mail from a log line.
fn data(alerts: &Alerts, line: &str, now: SystemTime) -> Box<str> {
    let line = line.strip_suffix('.').unwrap_or(line);
    let mut text = String::new();
    for letter in line.chars() {
        // Parts of the line come from servers: they must not begin a line of the mail.
        let letter = if letter.is_control() { ' ' } else { letter };
        if text.len() + letter.len_utf8() > LONGEST_TEXT {
            break;
        }
        text.push(letter);
    }
    let mut data = format!("From: {}\r\nTo: {}\r\nDate: ", alerts.from, alerts.to);
    put_date(&mut data, now);
    let _ = write!(data, "\r\nSubject: [HAProxy Alert] {text}\r\n\r\n{text}\r\n\r\n.\r\n");
    data.into()
}

/// Writes `Sun, 29 Nov 2026 12:39:14 +0000 (UTC)`.
fn put_date(out: &mut String, now: SystemTime) {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let unix = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = Civil::new(i64::try_from(unix).unwrap_or(i64::MAX), 0);
    let _ = write!(
        out,
        "{}, {:02} {} {} {:02}:{:02}:{:02} +0000 (UTC)",
        DAYS[usize::from(date.weekday % 7)],
        date.day,
        date.month_name(),
        date.year,
        date.hour,
        date.minute,
        date.second
    );
}

/// A conversation with a mail server, up to a deadline.
struct Dialogue {
    stream: TcpStream,
    deadline: Instant,
}

/// Sends a mail.
///
/// # Errors
/// A clause that says what is wrong.
fn send(mailer: &Mailer, mail: &Mail) -> Result<(), String> {
    let deadline = Instant::now() + mailer.timeout;
    let addresses = (&*mailer.host, mailer.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| format!("'{}' is not resolved: {error}", mailer.host))?;
    let addresses: Vec<SocketAddr> = addresses.take(MOST_ADDRESSES).collect();
    let stream = connect(&addresses, deadline);
    let stream = stream.map_err(|why| why.unwrap_or_else(|| format!("'{}' has no address", mailer.host)))?;
    let mut dialogue = Dialogue { stream, deadline };
    dialogue.expect("its greeting", "220")?;
    dialogue.say(&format!("HELO {}\r\n", mail.host), "2")?;
    dialogue.say(&format!("MAIL FROM:<{}>\r\n", mail.from), "2")?;
    dialogue.say(&format!("RCPT TO:<{}>\r\n", mail.to), "2")?;
    dialogue.say("DATA\r\n", "354")?;
    dialogue.send(mail.data.as_bytes())?;
    dialogue.expect("the mail", "2")?;
    let _ = dialogue.say("QUIT\r\n", "2"); // the server has the mail
    Ok(())
}

/// Connects to the first address that accepts. Each one has an equal share of the time that is left, since
/// one that drops packets would have all of it.
///
/// # Errors
/// A clause about the last address, or `None` without addresses.
fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Option<String>> {
    let mut last = None;
    for (address, shares) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        match TcpStream::connect_timeout(address, left(deadline)? / shares) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = Some(format!("{address} does not accept: {error}")),
        }
    }
    Err(last)
}

/// The time until the deadline.
fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err("the time of 'timeout mail' is over".to_owned()) } else { Ok(left) }
}

impl Dialogue {
    /// Sends a command, and expects a reply with this code.
    fn say(&mut self, command: &str, code: &str) -> Result<(), String> {
        self.send(command.as_bytes())?;
        self.expect(&format!("'{}'", command.trim_end()), code)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let timeout = left(self.deadline)?;
        self.stream.set_write_timeout(Some(timeout)).map_err(|error| error.to_string())?;
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    /// Receives the reply to `what`, whose code begins with `code`.
    fn expect(&mut self, what: &str, code: &str) -> Result<(), String> {
        let reply = self.reply().map_err(|why| format!("no reply to {what}: {why}"))?;
        if reply.starts_with(code.as_bytes()) {
            return Ok(());
        }
        let shown: String = String::from_utf8_lossy(&reply).trim_end().chars().take(100).collect();
        Err(format!("the reply to {what} is '{}'", shown.escape_debug()))
    }

    /// Receives a reply; its last line has a blank behind the code, earlier ones have a hyphen.
    fn reply(&mut self) -> Result<Vec<u8>, String> {
        let mut reply = Vec::new();
        let mut piece = [0; 512];
        loop {
            let whole = reply.ends_with(b"\n");
            let mut lines = reply.split(|byte| *byte == b'\n').filter(|line: &&[u8]| !line.is_empty());
            if whole && lines.next_back().is_some_and(|line| line.get(3) != Some(&b'-')) {
                return Ok(reply);
            }
            if reply.len() >= LONGEST_REPLY {
                return Err(format!("it has more than {LONGEST_REPLY} bytes"));
            }
            let timeout = left(self.deadline)?;
            self.stream.set_read_timeout(Some(timeout)).map_err(|error| error.to_string())?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("the connection ended".to_owned()),
                Ok(n) => reply.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    left(self.deadline).map(drop)?
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::mpsc;

    /// A listener whose queue is full drops further connections, as a firewall would.
    #[test]
    fn an_address_that_drops_packets_leaves_time_for_the_next() {
        let [silent, accepts] = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let [first, second] = [&silent, &accepts].map(|listener| listener.local_addr().unwrap());
        rustix::net::listen(&silent, 0).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&first, Duration::from_millis(100)) {
            queued.push(stream);
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        let connected = connect(&[first, second], deadline).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), second);
        assert!(connect(&[first], Instant::now() + Duration::from_millis(10)).unwrap_err().is_some());
        assert!(connect(&[], deadline).unwrap_err().is_none());
    }

    #[test]
    fn a_reply_that_is_too_long_is_not_read_to_its_end() {
        let reply = |length: usize| {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            let (mut peer, _) = server.accept().unwrap();
            let end = "220 a\r\n";
            let lines = "220-b\n".repeat(length).into_bytes();
            peer.write_all(&lines[..length - end.len() - 1]).unwrap();
            peer.write_all(format!("\n{end}").as_bytes()).unwrap();
            drop(peer);
            let mut dialogue = Dialogue { stream, deadline: Instant::now() + Duration::from_secs(60) };
            dialogue.reply().map(|reply| reply.len())
        };
        assert_eq!(reply(4_096), Ok(4_096));
        assert_eq!(reply(4_097), Err("it has more than 4096 bytes".to_owned()));
    }

    #[test]
    fn eight_servers_are_sent_to_at_once_and_more_wait() {
        let (begins, begun) = mpsc::channel();
        let gates: Vec<_> = (0..8)
            .map(|_| {
                let ((gate, opens), begins) = (mpsc::channel::<()>(), begins.clone());
                drop(pool().run(move || {
                    begins.send(()).unwrap();
                    let _ = opens.recv();
                }));
                begun.recv_timeout(Duration::from_secs(60)).unwrap();
                gate
            })
            .collect();
        (0..64).for_each(|_| drop(pool().run(|| ()).unwrap()));
        assert!(pool().run(|| ()).is_err());
        drop(gates);
    }

    #[test]
    fn a_server_cannot_add_lines_to_a_mail() {
        let alerts = Alerts {
            level: Level::Alert,
            from: "a@example".into(),
            to: "b@example".into(),
            host: "h".into(),
            mailers: Vec::new(),
        };
        let line =
            format!("Server b/s is DOWN, info: \"\r\n.\r\nMAIL FROM:<x>\u{e4}\". {}.", "x".repeat(2000));
        let data = data(&alerts, &line, UNIX_EPOCH + Duration::from_secs(1_795_955_954));
        let lines: Vec<&str> = data.split("\r\n").collect();
        assert_eq!(lines.len(), 9, "{data}");
        assert_eq!(lines[2], "Date: Sun, 29 Nov 2026 12:39:14 +0000 (UTC)");
        assert!(lines[3].starts_with("Subject: [HAProxy Alert] Server b/s is DOWN, info: \"  .  MAIL FROM:"));
        assert_eq!((lines[5].len(), lines[7]), (LONGEST_TEXT, "."));
    }
}
