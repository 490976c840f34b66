//! Without descriptors: accepting pauses and resumes, no task spins, no connection is lost. In a child
//! process, whose limit is lowered.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{ACCEPT_PAUSE, Kind};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::rc::Rc;

on_both_drivers! {
    accepting_resumes_when_a_descriptor_is_closed;
    accepting_resumes_by_itself_when_another_has_closed_some;
}

/// Runs a child with room for few descriptors, and connects to it while it has none left.
fn with_child(kind: Kind, body: &str) {
    if let Ok(wanted) = std::env::var("MANYLANE_CHILD") {
        if wanted == format!("{kind} {body}") {
            child(kind, body);
        }
        return;
    }
    let module = if kind == Kind::Epoll { "epoll" } else { "io_uring" };
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{body}"), "--nocapture", "--test-threads=1"])
        .env("MANYLANE_CHILD", format!("{kind} {body}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = String::new();
    let mut stdout = process.stdout.take().unwrap();
    let mut port = None;
    while port.is_none() {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "the child says its port: {output}");
        output.push(byte[0] as char);
        port = output
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once("port "))
            .map(|(_, port)| port.parse::<u16>().unwrap());
    }
    let address = ("127.0.0.1", port.unwrap());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Each is served in the end: one byte there and back, then it closes, which makes room for the next.
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    let mut waiting: Vec<_> =
        clients.into_iter().map(|client| std::thread::spawn(move || echo(client))).collect();
    waiting.drain(..).for_each(|client| client.join().unwrap());
    stdout.read_to_string(&mut output).unwrap();
    assert!(process.wait().unwrap().success(), "{output}");
}

fn echo(mut client: TcpStream) {
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"x");
}

/// Number of simultaneous connections.
const CLIENTS: usize = 40;
/// Number of descriptors that the child has for them.
const ROOM: u64 = 10;

fn child(kind: Kind, body: &str) {
    let own_close = body.ends_with("is_closed");
    run(kind, move |io| async move {
        let (listener, address) = listener(&io);
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        let limits = libc::rlimit { rlim_cur: open + ROOM, rlim_max: open + ROOM };
        #[allow(unsafe_code)] // one call of the system's
        // SAFETY: a valid limit.
        let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
        assert_eq!(lowered, 0);
        println!("port {}", address.port());
        let (taken, served) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for _ in 0..CLIENTS {
            let accepted = listener.accept().await.unwrap();
            taken.set(taken.get() + 1);
            let (io2, taken, served) = (io.clone(), taken.clone(), served.clone());
            let pauses = counted(&io).pauses;
            spawn(&io, async move {
                let stream = accepted.into_stream(&io2);
                let byte = stream.recv().await.unwrap().unwrap();
                // Until all descriptors are in use.
                until(&io2, || counted(&io2).pauses > pauses || taken.get() == CLIENTS).await;
                stream.send(&mut byte.into()).await.unwrap();
                if own_close {
                    drop(stream);
                } else {
                    // Closed without the driver's knowledge: only the end of the pause ends the wait.
                    drop(stream.detach().await.unwrap());
                }
                served.set(served.get() + 1);
            });
        }
        until(&io, || served.get() == CLIENTS).await;
        let report = counted(&io);
        assert!(report.pauses > 0, "the descriptors were never all taken");
        // No task spun: a pause ends with a close or after a while.
        let most = CLIENTS as u64 + report.pauses + 10;
        assert!(report.pauses <= 3 * CLIENTS as u64, "{} pauses", report.pauses);
        assert!(
            report.accepts <= 2 * most,
            "{} accepts, {} pauses of {ACCEPT_PAUSE:?}",
            report.accepts,
            report.pauses
        );
    });
}

fn accepting_resumes_when_a_descriptor_is_closed(kind: Kind) {
    with_child(kind, "accepting_resumes_when_a_descriptor_is_closed");
}

fn accepting_resumes_by_itself_when_another_has_closed_some(kind: Kind) {
    with_child(kind, "accepting_resumes_by_itself_when_another_has_closed_some");
}
