//! Failures around the program under load: nothing hangs, nothing is lost that HTTP lets a proxy keep, and
//! descriptors and memory are released (R-G1). With `MANYLANE_LONG` there are 10,000 slow clients.

use crate::common;

use common::watch::until;
use common::{
    DEFAULTS, Folder, Manylane, TIMEOUT, connect, descriptors, fd, listener, nobody, origin, read_all,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Bytes in use in the program's pools: of tasks, buffers, messages.
fn used(control: &Path) -> usize {
    let mut client = UnixStream::connect(control).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"show pools\n").unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    let total = said.lines().find(|line| line.starts_with("Total: ")).unwrap();
    let used = total.split(", ").find_map(|part| part.split_once(" used")).unwrap();
    used.0.parse().unwrap()
}

/// Resources of the idle program.
struct Quiet {
    descriptors: usize,
    used: usize,
    control: PathBuf,
    _folder: Folder,
}

/// Waits until the program has no more descriptors and memory than when it was idle.
fn all_is_back(program: &Manylane, quiet: &Quiet) {
    until(|| descriptors(program.pid()) <= quiet.descriptors);
    until(|| used(&quiet.control) <= quiet.used);
}

/// Reads a request's head.
fn head(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" && reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        if line == "\r\n" {
            return;
        }
        line.clear();
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

fn good() -> SocketAddr {
    origin(|mut stream| {
        head(&stream);
        let _ = stream.write_all(OK);
    })
}

/// A program with this configuration that has served requests, so that it holds what it keeps.
fn started(config: &str, address: SocketAddr, warm: &str) -> (Manylane, Quiet) {
    let folder = Folder::new();
    let control = folder.0.join("control");
    let program = Manylane::start_ready(&format!("global\n stats socket {}\n{config}", control.display()));
    // Open at the same time, so that both lanes serve some and hold what they keep.
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(|client| client.write_all(GET).unwrap());
    for client in &mut clients {
        let answer = read_all(client);
        assert!(answer.starts_with(warm), "{answer}");
    }
    // The program's ends of these connections. A socket without descriptor has no inode in the kernel's
    // table.
    let theirs = address.port();
    let ours: Vec<u16> = clients.iter().map(|client| client.local_addr().unwrap().port()).collect();
    drop(clients);
    until(|| {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        !table.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is = |word: &str, port: u16| word.ends_with(&format!(":{port:04X}"));
            is(words[1], theirs) && ours.iter().any(|ours| is(words[2], *ours)) && words[9] != "0"
        })
    });
    let quiet =
        Quiet { descriptors: descriptors(program.pid()), used: used(&control), control, _folder: folder };
    (program, quiet)
}

/// Servers that close in the middle of their responses: these clients see truncated responses, the others get
/// theirs.
#[test]
fn a_server_that_is_killed_amid_answers_cuts_those_and_no_others() {
    let (socket, address) = listener();
    let count = AtomicUsize::new(0);
    let server = origin(move |mut stream| {
        head(&stream);
        if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let _ = stream.write_all(OK);
        } else {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly the beginning");
        }
    });
    let config = format!("{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n", fd(&socket));
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    let (whole, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut client = connect(address);
                    client.write_all(GET).unwrap();
                    let mut bytes = Vec::new();
                    let _ = client.read_to_end(&mut bytes); // a reset also means truncated
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    match (text.ends_with("\r\n\r\nok"), text.ends_with("only the beginning")) {
                        (true, false) => whole.fetch_add(1, Ordering::Relaxed),
                        (false, true) => cut.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{text}"),
                    };
                }
            });
        }
    });
    assert_eq!((whole.into_inner(), cut.into_inner()), (50, 50));
    all_is_back(&program, &quiet);
}

/// A server that accepts and never responds.
#[test]
fn a_silent_server_costs_each_client_its_timeout_and_nobody_else_anything() {
    let (socket, address) = listener();
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new()); // until the program closes
    });
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n use_backend silent if {{ path /silent }}\n \
            default_backend good\n\
         backend silent\n timeout server 300ms\n server s {silent}\nbackend good\n server s {}\n",
        fd(&socket),
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    let mut waiting: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    for client in &mut waiting {
        client.write_all(b"GET /silent HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    }
    for _ in 0..20 {
        let mut client = connect(address);
        client.write_all(GET).unwrap();
        assert!(read_all(&mut client).ends_with("ok"));
    }
    for client in &mut waiting {
        let answer = read_all(client);
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    }
    drop(waiting);
    all_is_back(&program, &quiet);
}

/// Servers that respond before they have read the body: the client gets the response.
#[test]
fn an_answer_that_comes_before_the_body_was_read_arrives() {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        head(&stream);
        let _ =
            stream.write_all(b"HTTP/1.1 413 Too much\r\nContent-Length: 4\r\nConnection: close\r\n\r\nstop");
        let _ = stream.shutdown(Shutdown::Write);
        let mut piece = [0; 1024];
        let _ = stream.read(&mut piece); // reads a part and closes
    });
    let config = format!("{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n", fd(&socket));
    let (program, quiet) = started(&config, address, "HTTP/1.1 413 ");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = connect(address);
                client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").unwrap();
                let mut copy = client.try_clone().unwrap();
                let sending = std::thread::spawn(move || {
                    let _ = copy.write_all(&[b'x'; 200_000]); // the program may stop reading
                });
                let mut answer = String::new();
                let _ = client.read_to_string(&mut answer); // a reset after the response does not matter
                assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("stop"), "{answer}");
                drop(client);
                sending.join().unwrap();
            });
        }
    });
    all_is_back(&program, &quiet);
}

/// Clients that send a byte now and then get 408 at their timeout. Others are served meanwhile, and memory is
/// released.
#[test]
fn slow_clients_hold_nobody_up_and_leave_nothing() {
    let long = std::env::var_os("MANYLANE_LONG").is_some();
    let count = if long { 10_000 } else { 300 };
    raise_limit(count as u64 + 2000);
    let (socket, address) = listener();
    let config = format!(
        "global\n nbthread 2\n maxconn {}\n ulimit-n {}\n no strict-limits\ndefaults\n timeout client 60s\n \
            timeout server 60s\n timeout connect 60s\n mode http\n\
         frontend f\n bind {}\n timeout http-request {}s\n default_backend b\nbackend b\n server s {}\n",
        count + 1000,
        count + 2000, // these clients never reach a server
        fd(&socket),
        if long { 20 } else { 3 },
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    let mut after: Vec<usize> = Vec::new();
    // The number of clients at work at the same time varies between rounds, since the program may be slower
    // than they are. Memory soon reaches its maximum, and then grows no more between rounds.
    while after.last_chunk().is_none_or(|[before, now]| *now > before + before / 4) {
        assert!(after.len() < 10, "memory grows: {after:?} kB");
        let mut slow: Vec<TcpStream> = (0..count).map(|_| connect(address)).collect();
        for part in [&b"GET / HT"[..], b"TP/1.1\r\n", b"X: ", b"y"] {
            for client in &mut slow {
                let _ = client.write_all(part); // the first may have timed out already
            }
            let mut client = connect(address);
            client.write_all(GET).unwrap();
            assert!(read_all(&mut client).ends_with("ok"), "others are served");
        }
        for client in &mut slow {
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer); // input after the timeout is answered with a reset
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
        drop(slow);
        all_is_back(&program, &quiet);
        after.push(program.memory());
    }
}

fn raise_limit(wanted: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).unwrap();
    }
}

/// More clients than descriptors: some wait or are refused, and after they have left everything is as before.
#[test]
fn a_program_without_descriptors_goes_on_when_there_are_some_again() {
    let (socket, address) = listener();
    let config = format!(
        "global\n nbthread 2\n maxconn 1000\n ulimit-n 60\n no strict-limits\ndefaults\n timeout client \
            60s\n timeout server 60s\n \
         timeout connect 5s\n mode http\nlisten l\n bind {}\n server s {}\n",
        fd(&socket),
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    for _ in 0..3 {
        let many: Vec<TcpStream> = (0..200).map(|_| connect(address)).collect();
        for mut client in &many {
            let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n"); // half a request keeps a descriptor
        }
        until(|| descriptors(program.pid()) > 50);
        drop(many);
        all_is_back(&program, &quiet);
        let mut client = connect(address);
        client.write_all(GET).unwrap();
        assert!(read_all(&mut client).ends_with("ok"));
    }
}

/// `maxconn` of a frontend is there for the others: connections that wait for it are none of the process's.
#[test]
fn a_full_frontend_leaves_the_others_their_connections() {
    let ((full, narrow), (free, wide)) = (listener(), listener());
    let front = |name: &str, socket, maxconn| {
        // Without a backlog of its own, a frontend lets as many wait as it serves.
        format!(
            "frontend {name}\n maxconn {maxconn}\n backlog 64\n bind {}\n default_backend b\n",
            fd(socket)
        )
    };
    let program = Manylane::start_ready(&format!(
        "global\n maxconn 2\n{DEFAULTS} timeout client 10m\n mode http\n{}{}backend b\n server s {}\n",
        front("narrow", &full, 1),
        front("wide", &free, 10),
        good()
    ));
    let before = descriptors(program.pid());
    let clients: Vec<TcpStream> = (0..6).map(|_| connect(narrow)).collect();
    until(|| descriptors(program.pid()) >= before + 2);
    let mut client = connect(wide);
    client.write_all(GET).unwrap();
    assert!(read_all(&mut client).ends_with("ok"));
    drop(clients);
}

/// One log target has no listener, one is gone, and one is not read: requests are served as without logs.
/// Once the targets are read again, they get the kept lines.
#[test]
fn log_targets_that_are_gone_hold_nothing_up() {
    let (socket, address) = listener();
    let folder = Folder::new();
    let (gone, full) = (folder.0.join("gone"), folder.0.join("full"));
    let (there, unread) = (UnixDatagram::bind(&gone).unwrap(), UnixDatagram::bind(&full).unwrap());
    let config = format!(
        "{DEFAULTS} mode http\n log {} local0\n log {} local0\n log {} local0\n option httplog\nlisten l\n \
            bind {}\n server s {}\n",
        nobody(),
        gone.display(),
        full.display(),
        fd(&socket),
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    drop(there);
    std::fs::remove_file(&gone).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let mut client = connect(address);
                    client.write_all(GET).unwrap();
                    assert!(read_all(&mut client).ends_with("ok"));
                }
            });
        }
    });
    // The lane that did not serve the first request has sockets and sending tasks, too.
    until(|| descriptors(program.pid()) <= quiet.descriptors + 3);
    let readers = [UnixDatagram::bind(&gone).unwrap(), unread];
    readers.iter().for_each(|reader| reader.set_nonblocking(true).unwrap());
    until(|| {
        readers.iter().for_each(|reader| while reader.recv(&mut [0; 4096]).is_ok() {});
        used(&quiet.control) <= quiet.used + 4096
    });
}

/// The wall clock is set forward ten years, back twenty, and to its old time. Timeouts are not affected, and
/// log lines have the dates of the clock.
#[test]
fn a_clock_that_jumps_stops_no_timer_and_is_reported_by_the_log() {
    const YEAR: i64 = 365 * 24 * 3600;
    let folder = Folder::new();
    let (library, clock) = (folder.0.join("wall_clock.so"), folder.0.join("clock"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/wall_clock.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    let compiled = compiler.output().expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    std::fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
    let set = |jump: i64| {
        let file = std::fs::OpenOptions::new().write(true).open(&clock).unwrap();
        file.write_all_at(&jump.to_ne_bytes(), 0).unwrap();
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();

    let (tell, receiver) = mpsc::channel();
    let tell = Mutex::new(tell);
    let silent = origin(move |mut stream| {
        head(&stream);
        tell.lock().unwrap().send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()); // until the program closes
    });
    let good = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.by_ref().lines().map_while(Result::ok).any(|line| line.is_empty()) {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\n log {} format iso local0\nfrontend f\n bind {}\n log-format \"at %Ts for %Ta \
            %ST\"\n\
         use_backend silent if {{ path /silent }}\n default_backend good\n\
         backend silent\n timeout server 500ms\n server s {silent}\nbackend good\n server s {good}\n",
        syslog.local_addr().unwrap(),
        fd(&socket),
    );
    let _program = Manylane::start_as(&config, |command| {
        command.env("LD_PRELOAD", &library).env("WALL_CLOCK", &clock).env("TZ", "UTC");
    });

    // By status: year of the line, of the request's beginning, and duration in milliseconds.
    let line = || {
        let mut bytes = [0; 4096];
        let length = syslog.recv(&mut bytes).unwrap();
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let (before, words) = line.split_once(" at ").unwrap();
        let year: i64 = before[..4].parse().unwrap();
        let words: Vec<i64> = words.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (words[2], (year, words[0], words[1]))
    };
    let about = |moment: i64, expected: i64| (moment - expected).abs() < 24 * 3600;
    let is_in = |year: i64, moment: i64| (year - 1970 - moment / 31_556_952).abs() <= 1;
    let mut kept = connect(address);
    let (mut before, mut too_long) = (0, i64::MAX);
    for jump in [0, 10 * YEAR, -10 * YEAR, 0] {
        let begun = Instant::now();
        let mut waiting = connect(address);
        waiting.write_all(b"GET /silent HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap();
        set(jump); // during a timeout for a server, and with an idle connection
        kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        let answer = read_all(&mut waiting);
        let ended = begun.elapsed();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        assert!(ended >= Duration::from_millis(500));

        let lines = BTreeMap::from([line(), line()]);
        let (then, now) = (now() + before, now() + jump);
        let (year, began, took) = lines[&200];
        assert!(about(began, then) || about(began, now), "began at {began}, {now} after a jump");
        assert!(is_in(year, now), "written in {year}, {now} after a jump");
        assert!((0..60_000).contains(&took), "{took} ms");
        let (year, began, took) = lines[&504];
        assert!(about(began, then), "began at {began}, {then} before a jump");
        assert!(is_in(year, then) || is_in(year, now), "written in {year}, {now} after a jump");
        assert!((500..60_000).contains(&took), "{took} ms");
        too_long = too_long.min(took - ended.as_millis() as i64);
        before = jump;
    }
    // The client has not closed yet, but the request is over. At least one must have finished without a delay
    // of the machine.
    assert!(too_long < 1000, "a request took {too_long} ms more than its client waited");
}

/// Clients reset their connections while the server hangs in the middle of a response: the server's
/// connection is closed.
#[test]
fn a_client_that_resets_amid_an_answer_frees_the_server() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = origin(move |mut stream| {
        head(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nonly the beginning").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = tell.lock().unwrap().send(()); // the receiver is gone after a failure
    });
    let config = format!(
        "global\n nbthread 2\ndefaults\n timeout client 1h\n timeout server 1h\n timeout connect 1h\n mode \
            http\n\
         frontend f\n bind {}\n use_backend cut if {{ path /cut }}\n default_backend good\nbackend cut\n \
         server s {server}\nbackend good\n server s {}\n",
        fd(&socket),
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    for request in [
        "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /cut HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
        clients.iter_mut().for_each(|client| client.write_all(request.as_bytes()).unwrap());
        clients.iter_mut().for_each(|client| assert!(client.peek(&mut [0]).unwrap() > 0));
        let count = clients.len();
        drop(clients); // closing with unread data sends a reset
        (0..count)
            .for_each(|_| receiver.recv_timeout(TIMEOUT).expect("a server waits for a client that has gone"));
        all_is_back(&program, &quiet);
    }
}

/// Without the option, a client that has half-closed gets its response.
#[test]
fn a_client_that_closes_ends_its_request_with_abortonclose_only() {
    for abort in [false, true] {
        let (socket, address) = listener();
        let (tell, receiver) = mpsc::channel();
        let (go, going) = mpsc::channel::<()>();
        let ends = Mutex::new((tell, going));
        let server = origin(move |mut stream| {
            head(&stream);
            let ends = ends.lock().unwrap();
            ends.0.send(()).unwrap();
            if abort {
                let _ = stream.read_to_end(&mut Vec::new()); // until the program closes
            } else {
                ends.1.recv().unwrap();
                let _ = stream.write_all(OK);
            }
            let _ = ends.0.send(()); // the receiver is gone after a failure
        });
        let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
        syslog.set_read_timeout(Some(TIMEOUT)).unwrap();
        let config = format!(
            "global\n nbthread 2\ndefaults\n timeout client 1h\n timeout server 1h\n timeout connect 1h\n \
                mode http\n log {} local0\n{}\
             frontend f\n bind {}\n log-format \"%ST %ts\"\n default_backend b\nbackend b\n server s \
             {server}\n",
            syslog.local_addr().unwrap(),
            if abort { " option abortonclose\n" } else { "" },
            fd(&socket),
        );
        let _program = Manylane::start(&config);
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        receiver.recv_timeout(TIMEOUT).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        go.send(()).unwrap();
        let (status, ended) = if abort { ("400", "CH") } else { ("200", "--") };
        let answer = read_all(&mut client);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let mut line = [0; 4096];
        let length = syslog.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..length]).into_owned();
        assert!(line.trim_end().ends_with(&format!("{status} {ended}")), "{line}");
        receiver.recv_timeout(TIMEOUT).expect("the server is left alone");
    }
}

#[test]
fn a_client_that_leaves_a_queue_is_logged_as_such() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = origin(move |mut stream| {
        head(&stream);
        tell.lock().unwrap().send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()); // never responds
    });
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(TIMEOUT)).unwrap();
    let _program = Manylane::start(&format!(
        "global\n nbthread 2\ndefaults\n timeout client 1h\n timeout server 1h\n timeout connect 1h\n mode \
            http\n log {} local0\n \
         option abortonclose\nfrontend f\n bind {}\n log-format \"%ST %ts\"\n default_backend b\nbackend b\n \
         server s {server} maxconn 1\n",
        syslog.local_addr().unwrap(),
        fd(&socket),
    ));
    let ask = || {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    };
    let _served = ask();
    receiver.recv_timeout(TIMEOUT).unwrap();
    drop(ask()); // over the limit
    let mut line = [0; 4096];
    let length = syslog.recv(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]).into_owned();
    assert!(line.trim_end().ends_with(" CQ"), "{line}");
}
