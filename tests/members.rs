//! Servers that are added and removed while the program runs: `add server`, `del server`, `wait
//! srv-removable`.

use crate::common;

use common::{DEFAULTS, Folder, Manylane, TIMEOUT, connect, fd, listener, origin};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Program {
    _folder: Folder,
    _program: Manylane,
    socket: PathBuf,
    address: SocketAddr,
}

impl Program {
    /// Starts the program with one frontend, and a backend `back` with these lines.
    fn start(lines: &str) -> Self {
        let folder = Folder::new();
        let socket = folder.0.join("control");
        let (web, address) = listener();
        let program = Manylane::start(&format!(
            "global\n stats socket {} level admin\n stats socket {}-low level operator\n{DEFAULTS} mode \
                http\nfrontend front\n bind {}\n \
             default_backend back\nbackend back\n{lines}",
            socket.display(),
            socket.display(),
            fd(&web)
        ));
        Self { _folder: folder, _program: program, socket, address }
    }

    fn ask(&self, line: &str) -> String {
        ask(&self.socket, line)
    }

    /// A column of `show stat`; `None` without such a row.
    fn column(&self, server: &str, column: &str) -> Option<String> {
        let table = self.ask("show stat");
        let mut rows = table.lines().map(|line| line.trim_start_matches("# ").split(',').collect::<Vec<_>>());
        let at = rows.next().unwrap().iter().position(|own| *own == column).unwrap();
        rows.find(|row| row.len() > at && row[..2] == ["back", server]).map(|row| row[at].to_owned())
    }
}

/// Response of the run-time interface, without the empty line at its end.
fn ask(socket: &std::path::Path, line: &str) -> String {
    // The program binds before it reports that it has started; an inherited listener accepts before that.
    let until = std::time::Instant::now() + TIMEOUT;
    let mut client = loop {
        match UnixStream::connect(socket) {
            Ok(client) => break client,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        manylane_tests::look_again();
    };
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// An origin that responds with its name and counts its responses.
fn named(name: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    let address = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        // A request arrives in one piece here.
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            own.fetch_add(1, Ordering::SeqCst);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, count)
}

/// Sends a request; returns the body of the response, and whether the connection closes after it.
fn get(client: &mut TcpStream) -> Option<(String, bool)> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    client.read_exact(&mut body).ok()?;
    Some((String::from_utf8(body).unwrap(), head.contains("connection: close")))
}

#[test]
fn a_server_comes_serves_and_goes() {
    let ((a, _), (b, _)) = (named("a"), named("b"));
    let program = Program::start(&format!(" option httpchk\n server a {a}\n"));
    let mut client = connect(program.address);
    assert_eq!(get(&mut client).unwrap().0, "a");
    assert_eq!(
        program.ask(&format!("add server back/b {b} weight 7 maxconn 9 cookie bb check inter 10s")),
        "New server registered."
    );
    // The server has all settings of its line, is in maintenance, and its checks are off.
    for (column, value) in
        [("status", "MAINT"), ("weight", "7"), ("slim", "9"), ("cookie", "bb"), ("sid", "2"), ("stot", "0")]
    {
        assert_eq!(program.column("b", column).as_deref(), Some(value), "{column}");
    }
    assert!(program.ask("show servers state back").contains(&format!(" 2 b {} 0 1 7 7 ", b.ip())));
    assert!(program.ask("show servers conn back").contains("back/b"));
    assert_eq!(get(&mut client).unwrap(), ("a".into(), false), "the client stays connected");
    assert_eq!(
        program.ask(&format!("add server back/b {b}")),
        "Already exists a server with the same name in backend."
    );
    assert_eq!(program.ask("disable server back/a; enable server back/b; enable health back/b"), "");
    assert_eq!(get(&mut client).unwrap(), ("b".into(), false));
    common::watch::until(|| program.column("b", "check_status").as_deref() == Some("L7OK"));
    assert!(program.column("b", "status").unwrap().starts_with("UP")); // checks may be late
    // A server with streams cannot be removed.
    assert_eq!(program.ask("del server back/b"), "Only servers in maintenance mode can be deleted.");
    assert_eq!(
        program.ask("wait 10s srv-removable back/b"),
        "Only servers in maintenance mode can be deleted."
    );
    assert_eq!(program.ask("enable server back/a; disable server back/b"), "");
    assert_eq!(program.ask("wait 10s srv-removable back/b"), "Done.");
    assert_eq!(program.ask("del server back/b"), "Server deleted.");
    assert_eq!(program.column("b", "status"), None);
    assert_eq!(program.ask("get weight back/b"), "No such server.");
    assert_eq!(get(&mut client).unwrap(), ("a".into(), false));
    // The next server gets its slot and its number.
    assert_eq!(program.ask(&format!("add server back/c {b} enabled")), "New server registered.");
    assert_eq!(program.column("c", "sid").as_deref(), Some("2"));
    assert_eq!(
        (program.column("c", "stot").as_deref(), program.column("c", "weight").as_deref()),
        (Some("0"), Some("1"))
    );
    let mut observed = [get(&mut client).unwrap().0, get(&mut client).unwrap().0];
    observed.sort();
    assert_eq!(observed, ["a", "b"]);
}

#[test]
fn what_cannot_be_is_reported_in_a_line() {
    let program = Program::start(
        " use-server b if { path /b }\n server a 127.0.0.1:9\n server b 127.0.0.1:9 check\n server t \
            127.0.0.1:9 track b\n\
         backend fixed\n balance static-rr\n server a 127.0.0.1:9\nbackend through\n option transparent\n",
    );
    let dynamic = "Backend must use a dynamic load balancing to support dynamic servers.";
    let named =
        "This server cannot be removed at runtime due to other configuration elements pointing to it.";
    for (line, answer) in [
        ("add server", "Require 'backend/server'."),
        ("add server back/", "Require 'backend/server'."),
        ("add server nope/s 127.0.0.1:1", "No such backend."),
        ("add server fixed/s 127.0.0.1:1", dynamic),
        ("add server through/s 127.0.0.1:1", dynamic),
        ("add server back/s", "'server' expects <name> and <addr>[:<port>] as arguments."),
        ("add server back/s!t 127.0.0.1:1", "character '!' is not permitted in server name 's!t'."),
        ("add server back/s 127.0.0.1:1 frob", "unknown keyword 'frob'."),
        ("add server back/s 127.0.0.1:1 redir /x", "'redir' option is not accepted for dynamic server"),
        (
            "add server back/s 127.0.0.1:1 resolvers r",
            "'resolvers' option is not accepted for dynamic server",
        ),
        ("add server back/s 127.0.0.1:1 non-stick", "'non-stick' option is not accepted for dynamic server"),
        ("add server back/s 127.0.0.1:1 id 1", "'id' : custom id 1 already used (server 'a')."),
        (
            "add server back/s 127.0.0.1:1 track a",
            "unable to use back/a for tracking as it does not have any check nor agent enabled.",
        ),
        ("add server back/s 127.0.0.1:1 track nope", "unable to find required server 'nope' for tracking."),
        ("add server back/s 127.0.0.1:1 track nope/b", "unable to find required proxy 'nope' for tracking."),
        (
            "add server back/s 127.0.0.1:1 check track b",
            "unable to enable checks and tracking at the same time!",
        ),
        ("add server back/s 127.0.0.1:1 track b", "New server registered."),
        (
            "add server back/u 127.0.0.1:1 track s",
            "unable to use back/s for tracking as it is a dynamic server.",
        ),
        ("del server", "Require 'backend/server'."),
        ("del server nope/a", "No such backend."),
        ("del server back/nope", "No such server."),
        ("del server back/a", "Only servers in maintenance mode can be deleted."),
        ("disable server back/b", ""),
        ("del server back/b", named),
        ("wait 1s srv-removable back/b", named),
        ("del server back/s", "Server deleted."),
        ("disable server back/t; del server back/t", "Server deleted."),
        ("show servers state nope", "Can't find backend."),
    ] {
        assert_eq!(program.ask(line).trim_start(), answer, "{line}");
    }
    let low = PathBuf::from(format!("{}-low", program.socket.display()));
    for line in ["add server back/s 127.0.0.1:1", "del server back/a"] {
        assert_eq!(ask(&low, line), "Permission denied");
    }
}

/// A server that tracks another one, removed and added.
#[test]
fn a_server_that_is_added_is_as_the_one_that_it_tracks() {
    let (a, _) = named("a");
    let program = Program::start(&format!(" server a {a} check inter 1h\n"));
    assert_eq!(program.ask(&format!("add server back/b {a} track a enabled")), "New server registered.");
    let status = |server: &str| program.column(server, "status").unwrap();
    assert_eq!(program.ask("set server back/a health down"), "");
    assert!(status("b").starts_with("DOWN")); // its own first check may count already
    assert_eq!(program.ask("disable server back/a"), "");
    assert_eq!(status("b"), "MAINT (via back/a)");
    assert_eq!(
        program.ask("del server back/a"),
        "This server cannot be removed at runtime due to other configuration elements pointing to it."
    );
    assert_eq!(program.ask("del server back/b"), "Server deleted.");
    assert_eq!(
        program.ask("enable server back/a; disable server back/a; del server back/a").trim_start(),
        "Server deleted."
    );
    assert_eq!((program.column("a", "status"), program.column("b", "status")), (None, None));
}

/// Streams stay with their server, and the server stays as long.
#[test]
fn a_server_does_not_go_below_a_stream() {
    let (reached, at): (Sender<Sender<()>>, Receiver<Sender<()>>) = channel();
    let slow = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        let Ok(1..) = stream.read(&mut bytes) else { return };
        let (go, gone) = channel();
        if reached.send(go).is_err() || gone.recv().is_err() {
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
    });
    let (a, _) = named("a");
    let program = Program::start(&format!(" server a {a}\n"));
    assert_eq!(
        program.ask(&format!("add server back/s {slow} enabled; disable server back/a")),
        "New server registered."
    );
    let mut client = connect(program.address);
    let waiting = std::thread::spawn(move || get(&mut client));
    let go = at.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(program.ask("enable server back/a; disable server back/s"), "");
    let busy = "Server still has connections attached to it, cannot remove it.";
    assert_eq!(program.ask("del server back/s"), busy);
    assert_eq!(program.ask("wait 20ms srv-removable back/s"), "Wait delay expired.");
    // Other changes are made meanwhile, and the server stays.
    assert_eq!(program.ask(&format!("add server back/c {a} enabled")), "New server registered.");
    assert_eq!(program.ask("del server back/s"), busy);
    go.send(()).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().0, "slow");
    assert_eq!(program.ask("wait 1h srv-removable back/s"), "Done.");
    assert_eq!(program.ask("del server back/s"), "Server deleted.");
}

/// Servers are added and removed under load: each request gets one response of a server, and all are counted.
#[test]
fn servers_come_and_go_below_traffic_and_nothing_is_lost() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 12;
    let ((a, of_a), (b, of_b)) = (named("a"), named("b"));
    for algorithm in ["roundrobin", "leastconn"] {
        let (before_a, before_b) = (of_a.load(Ordering::SeqCst), of_b.load(Ordering::SeqCst));
        let program = Program::start(&format!(" balance {algorithm}\n server a {a} maxconn 50\n"));
        let over = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (over, sent, address) = (over.clone(), sent.clone(), program.address);
                std::thread::spawn(move || {
                    let mut client = connect(address);
                    while !over.load(Ordering::SeqCst) {
                        sent.fetch_add(1, Ordering::SeqCst);
                        let (_, closes) = get(&mut client).expect("each request is answered");
                        if closes {
                            client = connect(address);
                        }
                    }
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let name = format!("back/s{round}");
            let before = of_b.load(Ordering::SeqCst);
            assert_eq!(
                program.ask(&format!("add server {name} {b} maxconn 20 enabled")),
                "New server registered."
            );
            common::watch::until(|| of_b.load(Ordering::SeqCst) > before);
            assert_eq!(program.ask(&format!("disable server {name}")), "");
            assert_eq!(program.ask(&format!("wait 1h srv-removable {name}")), "Done.");
            assert_eq!(program.ask(&format!("del server {name}")), "Server deleted.");
        }
        over.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().unwrap());
        let sent = sent.load(Ordering::SeqCst);
        let served = of_a.load(Ordering::SeqCst) - before_a + of_b.load(Ordering::SeqCst) - before_b;
        assert_eq!(served, sent, "{algorithm}: each request reached one server");
        assert_eq!(program.column("BACKEND", "stot").as_deref(), Some(&*sent.to_string()), "{algorithm}");
        assert_eq!(
            program.column("a", "stot").as_deref(),
            Some(&*(of_a.load(Ordering::SeqCst) - before_a).to_string())
        );
        // A response arrives before its stream has ended.
        common::watch::until(|| program.column("a", "scur").as_deref() == Some("0"));
    }
}

/// Checks of the remaining servers continue during changes: a running check completes, and a server that
/// hangs is detected although changes come more often than `timeout check`.
#[test]
fn checks_go_on_while_servers_come_and_go() {
    let (reached, at): (Sender<TcpStream>, Receiver<TcpStream>) = channel();
    let slow = origin(move |stream| _ = reached.send(stream));
    let hung = origin(|mut stream| _ = stream.read_to_end(&mut Vec::new()));
    let (a, _) = named("a");
    let once = "check inter 1h fall 1";
    let program = Program::start(&format!(
        " option httpchk\n timeout check 1h\n server slow {slow} {once}\n server a {a}\n\
         backend other\n option httpchk\n timeout check 1s\n server hung {hung} {once}\n\
         global\n max-spread-checks 1ms\n"
    ));
    let mut check = at.recv_timeout(TIMEOUT).unwrap();
    let _ = check.read(&mut [0; 4096]).unwrap();
    let mut changes = 0;
    let status = |backend: &str, server: &str| {
        let rows = program.ask("show stat");
        let row = rows.lines().find(|row| row.starts_with(&format!("{backend},{server},"))).unwrap();
        row.split(',').nth(17).unwrap().to_owned()
    };
    let mut change = || {
        changes += 1;
        assert_eq!(program.ask(&format!("add server back/s {a} check inter 1h")), "New server registered.");
        assert_eq!(program.ask("del server back/s"), "Server deleted.");
        changes
    };
    while status("other", "hung") != "DOWN" {
        assert!(change() < 10_000, "no verdict below changes");
    }
    while change() < 5 {}
    assert_eq!(status("back", "slow"), "UP", "it is being asked");
    check.write_all(b"HTTP/1.0 500 No\r\n\r\n").unwrap();
    drop(check);
    common::watch::until(|| status("back", "slow") == "DOWN");
    assert!(at.try_recv().is_err(), "it was asked once");
    // Checks of an added server start when they are enabled.
    assert_eq!(
        program.ask(&format!(
            "add server back/t {slow} check inter 1h fall 1; enable server back/t; enable health back/t"
        )),
        "New server registered."
    );
    drop(at.recv_timeout(TIMEOUT).unwrap());
    common::watch::until(|| status("back", "t") == "DOWN");
}

/// A `maxconn` holds for streams before and after changes together; a request waiting in one generation gets
/// a permit that another generation releases.
#[test]
fn a_limit_holds_for_all_generations_together() {
    let (reached, at): (Sender<Sender<()>>, Receiver<Sender<()>>) = channel();
    let slow = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            let (go, gone) = channel();
            if reached.send(go).is_err() || gone.recv().is_err() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        }
    });
    let program = Program::start(&format!(" timeout queue 1h\n server a {slow} maxconn 2\n"));
    let ask = |address| std::thread::spawn(move || get(&mut connect(address)).unwrap().0);
    let mut clients = vec![ask(program.address), ask(program.address)];
    let mut served: Vec<_> = (0..2).map(|_| at.recv_timeout(TIMEOUT).unwrap()).collect();
    for number in 0..10 {
        assert_eq!(program.ask(&format!("add server back/s{number} {slow}")), "New server registered.");
        clients.push(ask(program.address));
        common::watch::until(|| program.column("BACKEND", "qcur").as_deref() == Some("1"));
    }
    for _ in 0..10 {
        assert!(at.try_recv().is_err(), "there is no place");
        served.remove(0).send(()).unwrap();
        served.push(at.recv_timeout(TIMEOUT).unwrap());
    }
    served.into_iter().for_each(|go| go.send(()).unwrap());
    assert!(clients.into_iter().all(|client| client.join().unwrap() == "slow"));
}
