//! Cost of a request, and of a byte that comes alone, in instructions and in calls of the global allocator,
//! counted by valgrind, so the load of the machine does not matter. Only of programs without assertions.

use crate::common;

use common::h2::{block, client};
use common::{Ended, Folder, connect, fd, listener, manylane, origin};
use http::Request;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Limit for a request with `Content-Length: 1024` in its response, with keep-alive on both sides: the
/// measured number and 2 %. With the link-time optimisation of `--release` it is 6 % lower.
const MOST: u64 = 19_420;

/// Limit for a request over HTTP/2, one at a time, to an HTTP/1 server.
const MOST_H2: u64 = 31_040;

/// Limit for a byte of a head that drips. 5,700 were measured; the longer the bytes take on a busy machine,
/// the more of what the process does each second is counted with them.
const MOST_DRIP: u64 = 9_000;

/// Functions of the global allocator that allocate. With them, valgrind counts what runs inside of them only.
const ALLOCATING: &[&str] = &[
    "--toggle-collect=mi_malloc_aligned",
    "--toggle-collect=mi_zalloc_aligned",
    "--toggle-collect=mi_realloc_aligned",
];

/// Requests that a rule answers: path, its rule, and the status.
const ANSWERED: [(&str, &str, u16); 5] = [
    ("/return", "return status 200 content-type text/plain lf-string \"hello %[src]\" hdr x-a %[path]", 200),
    ("/deny", "deny", 403),
    ("/prefix", "redirect prefix http://other.example append-slash", 302),
    ("/scheme", "redirect scheme https code 301", 301),
    ("/location", "redirect location http://other.example/%[path]#part keep-query", 302),
];

/// Reads a head and returns its first line; `None` at the end of the stream.
fn first_line(stream: &mut impl BufRead) -> Option<String> {
    let mut first = None;
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(length) if length > 0 && line != "\r\n" => _ = first.get_or_insert(line),
            _ => return first,
        }
    }
}

/// Sends requests over HTTP/1, one after another.
fn over_http1(address: SocketAddr, requests: usize) {
    let mut client = connect(address);
    let mut responses = BufReader::new(client.try_clone().unwrap());
    for _ in 0..requests {
        client
            .write_all(
                b"GET /a/path HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n",
            )
            .unwrap();
        assert_eq!(first_line(&mut responses).as_deref(), Some("HTTP/1.1 200 OK\r\n"));
        responses.read_exact(&mut [0; 1024]).unwrap();
    }
}

/// Sends requests over HTTP/2, one after another.
fn over_http2(address: SocketAddr, requests: usize) {
    block(async {
        let mut client = client(address).await;
        for _ in 0..requests {
            let request = Request::get("http://example.org/a/path").header("user-agent", "test");
            let request = request.header("accept", "*/*").body(()).unwrap();
            client = client.ready().await.unwrap();
            let response = client.send_request(request, true).unwrap().0.await.unwrap();
            assert_eq!(response.status(), 200);
            let (mut body, mut length) = (response.into_body(), 0);
            while let Some(data) = body.data().await {
                let more = data.unwrap().len();
                body.flow_control().release_capacity(more).unwrap();
                length += more;
            }
            assert_eq!(length, 1024);
        }
    });
}

/// Sends single bytes of a head that does not end, each when the one before is read.
fn single_bytes(address: SocketAddr, bytes: usize) {
    let mut client = connect(address);
    client.set_nodelay(true).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ").unwrap();
    for _ in 0..bytes {
        client.write_all(b"x").unwrap();
        crate::drips::all_is_read(address.port(), false);
    }
}

/// Sends requests that rules answer, one after another.
fn to_rules(address: SocketAddr, requests: usize) {
    let mut client = connect(address);
    let mut responses = BufReader::new(client.try_clone().unwrap());
    for (path, _, status) in ANSWERED.iter().cycle().take(requests) {
        let post = format!("POST {path}?a=b HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n\r\nhello");
        client.write_all(post.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        responses.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {line}");
        while line != "\r\n" {
            line.clear();
            responses.read_line(&mut line).unwrap();
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        responses.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// What is counted.
struct Load {
    /// Sends so many requests to an address.
    make: fn(SocketAddr, usize),
    /// Lines of the section.
    rules: String,
    /// Options of valgrind.
    only: &'static [&'static str],
}

impl Load {
    fn of(make: fn(SocketAddr, usize)) -> Self {
        Self { make, rules: String::new(), only: &[] }
    }
}

/// Instructions of a whole run with epoll, from start to soft stop.
fn instructions(requests: usize, Load { make, rules, only }: &Load) -> u64 {
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n{}", "x".repeat(1024));
        while first_line(&mut reader).is_some() && stream.write_all(response.as_bytes()).is_ok() {}
    });
    let (socket, address) = listener();
    let folder = Folder::new();
    let config = folder.file(
        "test.cfg",
        &format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout client 1h\n timeout server 5m\n timeout \
             connect 1m\nlisten l\n bind {}\n{rules} server s {server}\n",
            fd(&socket)
        ),
    );
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(*only);
    command.arg(manylane());
    command.arg("-db").arg("-f").arg(config).env("MANYLANE_DRIVER", "epoll");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Ended(command.spawn().unwrap());
    let pid = nix::unistd::Pid::from_raw(program.0.id() as i32);
    make(address, requests);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).unwrap();
    let mut said = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let counted =
        said.lines().find_map(|line| Some(line.split_once("Collected : ")?.1.trim().parse().unwrap()));
    counted.unwrap_or_else(|| panic!("valgrind does not say what it has counted: {said}"))
}

/// Requests of the smaller run, whose instructions are subtracted from those of the larger one.
const FEW: usize = 300;

/// Instructions of [`FEW`] requests, and of [`FEW`] + `more`; `None` if they cannot be counted.
fn of_few_and_many(load: &Load, more: usize) -> Option<(u64, u64)> {
    if common::has_assertions() {
        return None;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("NOT SHOWN HERE: there is no valgrind: 'scripts/setup test' installs what is missing");
        return None;
    }
    Some((instructions(FEW, load), instructions(FEW + more, load)))
}

/// Instructions of one request or byte; `None` if they cannot be counted.
fn of_each(make: fn(SocketAddr, usize), more: usize) -> Option<u64> {
    let (few, many) = of_few_and_many(&Load::of(make), more)?;
    let each = (many - few) / more as u64;
    println!("{each} instructions each");
    Some(each)
}

#[test]
fn a_request_of_http1_takes_so_many_instructions() {
    // Two starts differ by up to 100,000 instructions: the seeds of hash tables, the digits of ports. So many
    // requests hide that.
    let Some(each) = of_each(over_http1, 6000) else { return };
    assert!(each <= MOST, "{each} instructions a request, and at most {MOST} are allowed");
}

#[test]
fn a_request_of_http2_takes_so_many_instructions() {
    let Some(each) = of_each(over_http2, 2000) else { return };
    assert!(each <= MOST_H2, "{each} instructions a request, and at most {MOST_H2} are allowed");
}

#[test]
fn a_byte_that_drips_takes_so_many_instructions() {
    let Some(each) = of_each(single_bytes, 2000) else { return };
    assert!(each <= MOST_DRIP, "{each} instructions a byte, and at most {MOST_DRIP} are allowed");
}

/// An allocation takes more than 20 instructions, so one in each of 2,000 requests takes more than 40,000.
/// What the process allocates as time passes is less.
fn allocates_nothing(load: &Load) {
    let Some((few, many)) = of_few_and_many(load, 2000) else { return };
    println!("{few} instructions in the allocator with 300 requests, {many} with 2,300");
    assert!(few > 10_000, "the functions of the allocator are not counted: {few}");
    assert!(many < few + 20_000, "{few} in the allocator with 300 requests, {many} with 2,300");
}

#[test]
fn a_proxied_request_allocates_nothing() {
    allocates_nothing(&Load { only: ALLOCATING, ..Load::of(over_http1) });
}

#[test]
fn a_request_that_a_rule_answers_allocates_nothing() {
    let rule = |(path, rule, _)| format!(" http-request {rule} if {{ path {path} }}\n");
    allocates_nothing(&Load { make: to_rules, rules: ANSWERED.map(rule).concat(), only: ALLOCATING });
}
