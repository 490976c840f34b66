//! The demonstration at the beginning of the README.

use crate::common;

use common::{command, connect, free, read_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Stdio;

fn get(address: SocketAddr, path: &str) -> String {
    let mut client = connect(address);
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    read_all(&mut client)
}

#[test]
fn the_demo_balances_shows_and_ends_cleanly() {
    // Retried if another process was given one of the ports meanwhile.
    let begin = |_| {
        let (web, page) = (free(), free());
        let mut program = command()
            .args(["demo", &web.port().to_string(), &page.port().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
        let greets = said.any(|line| line.unwrap().contains("Ctrl-C ends it"));
        if greets { Some((program, said, web, page)) } else { program.wait().map(|_| None).unwrap() }
    };
    let (mut program, mut said, web, page) = (0..20).find_map(begin).expect("it greets when it is ready");
    let served: std::collections::BTreeSet<String> =
        (0..8).map(|_| get(web, "/hello").rsplit("\r\n").next().unwrap().to_owned()).collect();
    assert_eq!(
        served,
        ["blue answers GET /hello\n".to_owned(), "green answers GET /hello\n".to_owned()].into()
    );
    assert!(said.any(|line| line.unwrap() == "127.0.0.1 GET /hello -> blue"), "each request is a line");
    assert!(get(page, "/").contains("<title>Manylane</title>"));
    assert!(get(page, "/rows").contains("server colours/green<td>up"));
    assert!(get(page, "/config").contains("backend colours"));
    get(page, "/stop/blue");
    assert!((0..6).all(|_| get(web, "/x").ends_with("green answers GET /x\n")));
    kill(Pid::from_raw(program.id() as i32), Signal::SIGINT).unwrap();
    assert!(said.any(|line| line.unwrap().ends_with("requests were balanced. Bye.")));
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_told_with_a_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let outcome = command().args(["demo", &port, &free().port().to_string()]).output().unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains(&port) && said.contains("manylane demo 18080 18404"), "{said}");
}
