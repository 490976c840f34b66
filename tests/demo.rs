//! The demonstration at the beginning of the README.

use crate::common;

use common::{Ended, command, connect, free, read_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::{ChildStdout, Command, Stdio};

fn get(address: SocketAddr, path: &str) -> String {
    let mut client = connect(address);
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    read_all(&mut client)
}

/// The demonstration, its lines behind the greeting, and the addresses of its frontend and its page.
fn started() -> (Ended, Lines<BufReader<ChildStdout>>, SocketAddr, SocketAddr) {
    // Retried if another process has taken one of the ports meanwhile.
    let begin = |_| {
        let (web, page) = (free(), free());
        let ports = [web, page].map(|address| address.port().to_string());
        let program = command().arg("demo").args(ports).stdout(Stdio::piped()).spawn();
        let mut program = Ended(program.unwrap());
        let mut said = BufReader::new(program.0.stdout.take().unwrap()).lines();
        let greets = said.any(|line| line.unwrap().contains("Ctrl-C ends it"));
        greets.then_some((program, said, web, page))
    };
    (0..20).find_map(begin).expect("it greets when it is ready")
}

#[test]
fn the_demo_balances_shows_and_ends_cleanly() {
    let (mut program, mut said, web, page) = started();
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
    kill(Pid::from_raw(program.0.id() as i32), Signal::SIGINT).unwrap();
    assert!(said.any(|line| line.unwrap().ends_with("requests were balanced. Bye.")));
    assert_eq!(program.0.wait().unwrap().code(), Some(0));
}

/// `manylane demo | head` ends the reader of its lines, and not what it serves.
#[test]
fn the_demo_serves_although_nobody_reads_its_lines() {
    let (mut program, said, web, page) = started();
    drop(said);
    for _ in 0..2 {
        assert!(get(web, "/hello").ends_with(" answers GET /hello\n"));
    }
    assert!(get(page, "/stop/blue").ends_with("blue: stop\n"));
    kill(Pid::from_raw(program.0.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(program.0.wait().unwrap().code(), Some(0));
}

#[test]
fn the_demo_speaks_tls_with_an_authority_of_its_own() {
    let (mut program, mut said, line, page, https) = (0..20)
        .find_map(|_| {
            let [web, page, https] = [(); 3].map(|()| free());
            let ports = [web, page, https].map(|address| address.port().to_string());
            let mut demo = command();
            let program = demo.args(["demo", "--https"]).args(&ports).stdout(Stdio::piped()).spawn();
            let mut program = Ended(program.unwrap());
            let mut said = BufReader::new(program.0.stdout.take().unwrap()).lines();
            let line = said.find_map(|line| line.ok().filter(|line| line.contains("curl --cacert ")));
            line.map(|line| (program, said, line, page, https))
        })
        .expect("it greets when it is ready");
    let line = line.trim().trim_start_matches("4. ");
    let words: Vec<&str> = line.split_whitespace().collect();
    let ca = std::path::PathBuf::from(words[2]);
    assert_eq!(words[3], format!("https://localhost:{}/hello", https.port()));
    assert!(get(page, "/").contains(line), "the page says it, too");
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}/hello", https.port());
        let said = Command::new("curl").args(["-sS", "--cacert", words[2], &url]).output().unwrap();
        let body = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(body.ends_with(" answers GET /hello\n"), "{host}: {body} {said:?}");
    }
    let untrusted = Command::new("curl").args(["-sS", words[3]]).output().unwrap();
    assert_eq!(untrusted.status.code(), Some(60), "{untrusted:?}");
    kill(Pid::from_raw(program.0.id() as i32), Signal::SIGINT).unwrap();
    assert!(said.any(|line| line.unwrap().ends_with("requests were balanced. Bye.")));
    assert_eq!(program.0.wait().unwrap().code(), Some(0));
    assert!(!ca.parent().unwrap().exists(), "the files are removed");
}

#[test]
fn words_that_the_demo_does_not_know_are_reported() {
    for (words, sentence) in [
        (&["0"][..], "expected a port from 1 to 65535, found '0'; use: manylane demo [--https] [port"),
        (&["--https", "1", "2", "3", "4"], "expected at most three ports, found '4'"),
        (&["18080", "18404", "18443"], "the third port expects '--https' beside it"),
    ] {
        let outcome = command().arg("demo").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.code() == Some(1) && said.contains(sentence), "{said}");
    }
}

#[test]
fn a_port_that_is_taken_is_reported_with_a_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let outcome = command().args(["demo", &port, &free().port().to_string()]).output().unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains(&port) && said.contains("manylane demo 18080 18404"), "{said}");
}
