//! HTTP/2 clients and servers by others: nghttp and h2load, Go's and Node's. Those that are not installed are
//! named and skipped; `scripts/setup test` installs all of them.

use crate::common;

use common::{DEFAULTS, Ended, Folder, Manylane, TIMEOUT, connect, fd, listener, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;

/// A body that no window takes in one piece.
const LARGE: usize = 1 << 20;

/// Returns true if a program is installed with at least the version `least`.
fn is_there(program: &str, argument: &str, least: [u32; 2]) -> bool {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut words = said.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| word.contains('.'));
    let numbers = words.next().map(|version| version.split('.').take(2).map(|n| n.parse().unwrap_or(0)));
    let works = numbers.is_some_and(|numbers| numbers.collect::<Vec<u32>>()[..] >= least[..]);
    if !works {
        eprintln!(
            "NOT SHOWN HERE: there is no '{program}' {}.{}: 'scripts/setup test' installs what is missing",
            least[0], least[1]
        );
    }
    works
}

/// Starts the program in front of a server; returns its address.
fn start(server: SocketAddr, options: &str) -> (Manylane, SocketAddr) {
    let (web, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n default_backend b\nbackend b\n http-reuse always\n \
         server s {server} {options}\n",
        fd(&web)
    );
    (Manylane::start_ready(&config), address)
}

/// An HTTP/1 origin: `/large` is large, any other response has the length of the request's body.
fn server() -> SocketAddr {
    origin(|stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        loop {
            let (mut path, mut length, mut line) = (String::new(), 0, String::new());
            while stream.read_line(&mut line).is_ok_and(|length| length > 2) {
                if path.is_empty() {
                    path = line.split(' ').nth(1).unwrap().to_owned();
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if path.is_empty() || stream.read_exact(&mut body).is_err() {
                return;
            }
            let text = if path == "/large" { "x".repeat(LARGE) } else { format!("{} bytes", body.len()) };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            if out.write_all((head + &text).as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn nghttp_gets_and_posts() {
    if !is_there("nghttp", "--version", [1, 0]) {
        return;
    }
    let (_program, address) = start(server(), "");
    let url = |path: &str| format!("http://{address}{path}");
    assert_eq!(said("nghttp", &[&url("/")]), "0 bytes");
    assert_eq!(said("nghttp", &[&url("/large")]), "x".repeat(LARGE));
    let folder = Folder::new();
    let body = folder.file("body", &"b".repeat(LARGE));
    assert_eq!(said("nghttp", &["-d", body.to_str().unwrap(), &url("/")]), format!("{LARGE} bytes"));
    // With padding, small windows and priorities; then several streams.
    let odd = ["-b", "255", "-w", "10", "-W", "10", "-m", "3", &url("/large"), &url("/")];
    let all = said("nghttp", &odd);
    assert_eq!(all.len(), 3 * (LARGE + "0 bytes".len()));
}

/// `Upgrade: h2c` (RFC 7540, 3.2), by clients that begin with HTTP/1.
#[test]
fn clients_go_on_in_http_2_from_http_1() {
    let (_program, address) = start(server(), "");
    let url = |path: &str| format!("http://{address}{path}");
    if is_there("nghttp", "--version", [1, 0]) {
        assert!(said("nghttp", &["-u", "-v", &url("/")]).contains("HTTP Upgrade success"));
        assert_eq!(said("nghttp", &["-u", &url("/large")]), "x".repeat(LARGE));
    }
    if is_there("curl", "--version", [7, 50]) {
        let output =
            Command::new("curl").args(["-sv", "--http2", &url("/"), &url("/large")]).output().unwrap();
        let (got, reported) =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into();
        assert!(got.starts_with("0 bytesxxx") && got.len() == LARGE + "0 bytes".len());
        assert!(
            reported.contains("101 Switching Protocols") && reported.contains("HTTP/2 200"),
            "{reported}"
        );
    }
}

/// Invalid upgrade offers, late ones, and those where HTTP/2 is off: the response is HTTP/1, and the server
/// does not see the offer.
#[test]
fn offers_that_are_not_taken_are_answered_in_http_1() {
    let (observed, requests) = mpsc::channel();
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
            head += &line.to_lowercase();
            if line == "\r\n" {
                let _ = observed.send(std::mem::take(&mut head));
                out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
            line.clear();
        }
    });
    let offer = |settings: &str| {
        format!(
            "Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{}",
            settings.split_whitespace().map(|one| format!("HTTP2-Settings: {one}\r\n")).collect::<String>()
        )
    };
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    for (option, requests_sent) in [
        ("", vec![format!("GET / HTTP/1.1\r\n{}\r\n", offer("AAA"))]),
        ("", vec![format!("GET / HTTP/1.1\r\n{}\r\n", offer(""))]),
        ("", vec![format!("GET / HTTP/1.1\r\n{}\r\n", offer("AAMAAABk AAMAAABk"))]),
        // The window exceeds its limit (RFC 9113, 6.5.2).
        ("", vec![format!("GET / HTTP/1.1\r\n{}\r\n", offer("AAT_____"))]),
        ("", vec![format!("POST / HTTP/1.1\r\n{}Content-Length: 2\r\n\r\nok", offer("AAMAAABk"))]),
        ("", vec![plain.clone(), format!("GET / HTTP/1.1\r\n{}\r\n", offer("AAMAAABk"))]),
        (" option disable-h2-upgrade\n", vec![format!("GET / HTTP/1.1\r\n{}\r\n", offer("AAMAAABk"))]),
    ] {
        let (web, address) = listener();
        let config =
            format!("{DEFAULTS} mode http\nlisten l\n bind {}\n{option} server s {server}\n", fd(&web));
        let _program = Manylane::start_ready(&config);
        let mut client = connect(address);
        for request in &requests_sent {
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 40];
            client.read_exact(&mut answer).unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{request}");
            let head = requests.recv_timeout(TIMEOUT).unwrap();
            for word in ["upgrade", "settings", "h2c"] {
                assert!(!head.contains(word), "{head}");
            }
        }
    }
}

#[test]
fn h2load_finds_all_well() {
    if !is_there("h2load", "--version", [1, 0]) {
        return;
    }
    let (_program, address) = start(server(), "");
    for (path, count) in [("/", 2000), ("/large", 40)] {
        let url = format!("http://{address}{path}");
        let said = said("h2load", &["-n", &count.to_string(), "-c", "4", "-m", "20", "-t", "1", &url]);
        let counted = format!("{count} total, {count} started, {count} done, {count} succeeded, 0 failed");
        assert!(said.contains(&counted), "{said}");
    }
}

/// Runs a peer that serves, sends requests to its own server through the program, and checks the result.
fn peer(mut command: Command) {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut peer = Ended(child);
    let mut lines = BufReader::new(peer.0.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let (_program, address) = start(([127, 0, 0, 1], port).into(), "proto h2");
    writeln!(peer.0.stdin.take().unwrap(), "{address}").unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(said, ["well"]);
}

fn script(name: &str) -> String {
    format!("{}/foreign/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_client_and_the_server_of_go_understand_each_other() {
    // Older versions speak HTTP/2 only over TLS.
    if !is_there("go", "version", [1, 24]) {
        return;
    }
    let folder = Folder::new();
    let built = folder.0.join("peer");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&built).arg(script("h2_peer.go")).env("GOTOOLCHAIN", "local");
    assert!(build.status().unwrap().success());
    peer(Command::new(built));
}

#[test]
fn the_client_and_the_server_of_node_understand_each_other() {
    if !is_there("node", "--version", [18, 0]) {
        return;
    }
    let mut command = Command::new("node");
    command.arg(script("h2_peer.mjs"));
    peer(command);
}
