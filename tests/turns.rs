//! Clients of one lane are served in turns, however much one of them sends at once.

use crate::common;

use common::{DEFAULTS, Manylane, connect, fd, listener, origin, read_all};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

/// Reads a response and returns the number in its body.
fn number(reader: &mut BufReader<TcpStream>) -> u64 {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            None if line == "\r\n" => break,
            _ => assert!(!line.is_empty(), "the connection ended"),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap().parse().unwrap()
}

#[test]
fn who_pipelines_thousands_of_requests_does_not_keep_others_from_their_answer() {
    const FLOOD: usize = 1_500; // as many as the kernel buffers
    let (listening, address) = listener();
    let program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nglobal\n nbthread 1\nfrontend f\n bind {}\n \
         http-request return content-type text/plain lf-string %rt\n",
        fd(&listening)
    ));
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let clients = [connect(address), connect(address)];
    let mut readers = clients.each_ref().map(|client| BufReader::new(client.try_clone().unwrap()));
    let [mut flooding, mut other] = clients;
    other.write_all(request).unwrap();
    number(&mut readers[1]);
    flooding.write_all(request).unwrap();
    let so_far = number(&mut readers[0]);
    // Stop the program, so that the input of both is there when the lane runs.
    program.signal(Signal::SIGSTOP);
    let stopped = waitpid(Pid::from_raw(program.pid() as i32), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    flooding.write_all(&request.repeat(FLOOD)).unwrap();
    other.write_all(request).unwrap();
    program.signal(Signal::SIGCONT);
    let before = number(&mut readers[1]) - so_far;
    // A client has 16 requests in a row (SECURITY.md), and this one's input may be seen in the round after.
    assert!(before <= 2 * 16, "{before} requests of another client went before this one");
    for _ in 0..FLOOD {
        number(&mut readers[0]);
    }
}

/// Two servers are at their limits and their queues are full: new requests wait for the first server with
/// room.
#[test]
fn who_finds_every_queue_full_waits_and_keeps_nobody_from_their_answer() {
    const CLIENTS: usize = 8;
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let opens = gate.clone();
    let server = || {
        let gate = gate.clone();
        origin(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]).unwrap();
            drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        })
    };
    for balance in ["uri", "source", "leastconn"] {
        *opens.0.lock().unwrap() = false;
        let (listening, address) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\nglobal\n nbthread 1\nfrontend f\n bind {}\n default_backend b\n \
             http-request return content-type text/plain lf-string %[queue(b)] if {{ path /waiting }}\n\
             backend b\n balance {balance}\n option redispatch\n server s {} maxconn 1 maxqueue 1\n server t \
             {} maxconn 1 maxqueue 1\n",
            fd(&listening),
            server(),
            server(),
        ));
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
        }
        let mut asks = connect(address);
        let mut answers = BufReader::new(asks.try_clone().unwrap());
        common::watch::until(|| {
            asks.write_all(b"GET /waiting HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            number(&mut answers) == CLIENTS as u64 - 2
        });
        *opens.0.lock().unwrap() = true;
        opens.1.notify_all();
        for mut client in clients {
            let answer = read_all(&mut client);
            assert!(answer.contains(" 200 ") && answer.ends_with("ok"), "{balance}: {answer}");
        }
    }
}
