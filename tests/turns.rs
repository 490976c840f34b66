//! Clients of one lane have turns, whatever one of them sends at once.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

use common::{DEFAULTS, Manylane, connect, fd, listener};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The number that the next answer's body is.
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
    const FLOOD: usize = 1_500; // as many as the kernel takes for who does not read
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
    // What both of them send is there when the lane looks.
    program.signal(Signal::SIGSTOP);
    let stopped = waitpid(Pid::from_raw(program.pid() as i32), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    flooding.write_all(&request.repeat(FLOOD)).unwrap();
    other.write_all(request).unwrap();
    program.signal(Signal::SIGCONT);
    let before = number(&mut readers[1]) - so_far;
    assert!(before < FLOOD as u64 / 10, "{before} requests of another client went before this one");
    for _ in 0..FLOOD {
        number(&mut readers[0]);
    }
}
