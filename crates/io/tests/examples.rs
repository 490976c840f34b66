//! The examples as programs: the tests start them, send bytes through them, and end them.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{DRIVER_VARIABLE, Kind};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

on_both_drivers! {
    bytes_come_back_from_echo_through_forward_by_reference_and_spliced;
}

/// Returns cargo's path of an example, beside this test's own folder. None: it was not built, as with
/// `--test`.
fn example(name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().unwrap();
    let example = this.parent()?.parent()?.join("examples").join(name);
    if !example.is_file() {
        not_shown(name, "it is not built: cargo test -p manylane-io builds it");
        return None;
    }
    Some(example)
}

/// A running example, ended when dropped.
struct Example {
    child: Child,
    /// It may end when this is dropped.
    stdin: Option<ChildStdin>,
    address: SocketAddr,
}

impl Example {
    /// Starts the example on a port of the kernel's choice, which its first line contains:
    /// `VERB ADDRESS ..., by DRIVER`.
    fn start(path: &Path, kind: Kind, verb: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(path)
            .arg("127.0.0.1:0")
            .args(arguments)
            .env(DRIVER_VARIABLE, kind.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&format!(", by {kind}")), "{line:?}");
        let address = line.strip_prefix(verb).and_then(|rest| rest.trim_start().split([' ', ',']).next());
        let address = address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let stdin = child.stdin.take();
        Self { child, stdin, address }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends `bytes` and the end, and returns the received bytes up to the other side's end.
fn round_trip(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut sending = stream.try_clone().unwrap();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sending.write_all(bytes).unwrap();
            sending.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut back).unwrap();
    });
    back
}

fn bytes_come_back_from_echo_through_forward_by_reference_and_spliced(kind: Kind) {
    let (Some(echo), Some(forward)) = (example("echo"), example("forward")) else { return };
    let bytes = pattern(300_000);
    let echo = Example::start(&echo, kind, "echoing on", &[]);
    assert_eq!(round_trip(echo.address, &bytes), bytes);
    let target = echo.address.to_string();
    for mode in [&[target.as_str()][..], &[target.as_str(), "splice"]] {
        let mut forward = Example::start(&forward, kind, "forwarding", mode);
        assert_eq!(round_trip(forward.address, &bytes), bytes, "{mode:?}");
        drop(forward.stdin.take()); // ends the program
        assert!(forward.child.wait().unwrap().success(), "{mode:?}");
    }
}
