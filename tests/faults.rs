//! What goes wrong around the program while it has work to do: nothing is stuck, nothing is lost that HTTP lets one keep, and descriptors and
//! memory come back (R-G1). With `MANYLANE_LONG` set there are 10,000 slow clients.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

use common::{DEFAULTS, Folder, Manylane, PATIENCE, connect, fd, listener, nobody, origin, read_all};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Descriptors that the program has.
fn descriptors(program: &Manylane) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap().count()
}

/// Kilobytes of memory that it uses.
fn memory(program: &Manylane) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Waits until the program has no more descriptors than when it was quiet.
fn all_are_back(program: &Manylane, quiet: usize) {
    until("descriptors do not come back", || descriptors(program) <= quiet);
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

/// A program with this configuration that has served a request, so that it has all that it keeps.
fn started(config: &str, address: SocketAddr, warm: &str) -> (Manylane, usize) {
    let program = Manylane::start_ready(config);
    let mut client = connect(address);
    client.write_all(GET).unwrap();
    let answer = read_all(&mut client);
    assert!(answer.starts_with(warm), "{answer}");
    // The program's end of that connection: its line in the kernel's table has no inode once no descriptor is left.
    let (ours, theirs) = (client.local_addr().unwrap().port(), address.port());
    drop(client);
    until("the connection of the warm-up stays open", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        !table.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is = |word: &str, port: u16| word.ends_with(&format!(":{port:04X}"));
            is(words[1], theirs) && is(words[2], ours) && words[9] != "0"
        })
    });
    let before = descriptors(&program);
    (program, before)
}

/// Servers that leave in the middle of their answers: each client sees that its answer is cut, and the others get theirs.
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
                    let _ = client.read_to_end(&mut bytes); // a reset says that it is cut, too
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
    all_are_back(&program, quiet);
}

/// A server that accepts and says nothing.
#[test]
fn a_silent_server_costs_each_client_its_timeout_and_nobody_else_anything() {
    let (socket, address) = listener();
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new()); // until the program gives up
    });
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n use_backend silent if {{ path /silent }}\n default_backend good\n\
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
    all_are_back(&program, quiet);
}

/// Servers that answer before they have read the body: the client gets the answer.
#[test]
fn an_answer_that_comes_before_the_body_was_read_arrives() {
    let (socket, address) = listener();
    let server = origin(|mut stream| {
        head(&stream);
        let _ =
            stream.write_all(b"HTTP/1.1 413 Too much\r\nContent-Length: 4\r\nConnection: close\r\n\r\nstop");
        let _ = stream.shutdown(Shutdown::Write);
        let mut piece = [0; 1024];
        let _ = stream.read(&mut piece); // some of it, and then it is gone
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
                    let _ = copy.write_all(&[b'x'; 200_000]); // it may be told to stop
                });
                let mut answer = String::new();
                let _ = client.read_to_string(&mut answer); // a reset behind the answer is no matter
                assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("stop"), "{answer}");
                drop(client);
                sending.join().unwrap();
            });
        }
    });
    all_are_back(&program, quiet);
}

/// Clients that send a byte now and then: they are answered with 408 at the end of their time, others are served meanwhile, and memory comes back.
#[test]
fn slow_clients_hold_nobody_up_and_leave_nothing() {
    let long = std::env::var_os("MANYLANE_LONG").is_some();
    let count = if long { 10_000 } else { 300 };
    raise_limit(2 * count as u64 + 1000);
    let (socket, address) = listener();
    let config = format!(
        "global\n nbthread 2\n maxconn {}\ndefaults\n timeout client 60s\n timeout server 60s\n timeout connect 60s\n mode http\n\
         frontend f\n bind {}\n timeout http-request {}s\n default_backend b\nbackend b\n server s {}\n",
        count + 1000,
        fd(&socket),
        if long { 20 } else { 3 },
        good()
    );
    let (program, quiet) = started(&config, address, "HTTP/1.1 200 ");
    let mut after = Vec::new();
    for _ in 0..2 {
        let mut slow: Vec<TcpStream> = (0..count).map(|_| connect(address)).collect();
        for part in [&b"GET / HT"[..], b"TP/1.1\r\n", b"X: ", b"y"] {
            for client in &mut slow {
                let _ = client.write_all(part); // the first may be out of time already
            }
            let mut client = connect(address);
            client.write_all(GET).unwrap();
            assert!(read_all(&mut client).ends_with("ok"), "others are served");
        }
        for client in &mut slow {
            let answer = read_all(client);
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
        drop(slow);
        all_are_back(&program, quiet);
        after.push(memory(&program));
    }
    assert!(after[1] <= after[0] + after[0] / 4, "memory grows: {after:?} kB");
}

fn raise_limit(wanted: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).unwrap();
    }
}

/// More clients than descriptors: some wait or are turned away, and when they have gone all is as before.
#[test]
fn a_program_without_descriptors_goes_on_when_there_are_some_again() {
    let (socket, address) = listener();
    let config = format!(
        "global\n nbthread 2\n maxconn 1000\n ulimit-n 60\n no strict-limits\ndefaults\n timeout client 60s\n timeout server 60s\n \
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
        until("descriptors are not used up", || descriptors(&program) > 50);
        drop(many);
        all_are_back(&program, quiet);
        let mut client = connect(address);
        client.write_all(GET).unwrap();
        assert!(read_all(&mut client).ends_with("ok"));
    }
}

/// Nobody listens at one target, one has gone, and nobody reads at the third: requests are served as if there were no logs.
#[test]
fn log_targets_that_are_gone_hold_nothing_up() {
    let (socket, address) = listener();
    let folder = Folder::new();
    let (gone, full) = (folder.0.join("gone"), folder.0.join("full"));
    let (there, _unread) = (UnixDatagram::bind(&gone).unwrap(), UnixDatagram::bind(&full).unwrap());
    let config = format!(
        "{DEFAULTS} mode http\n log {} local0\n log {} local0\n log {} local0\n option httplog\nlisten l\n bind {}\n server s {}\n",
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
    all_are_back(&program, quiet + 3); // the sockets of the lane that did not serve the first request
}
