//! Load of the lanes when many servers are listed: the background reporter builds `show stat` and metrics
//! beside them.

use crate::common;

use common::{DEFAULTS, Folder, Manylane, TIMEOUT, connect, fd, listener, read_all};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Number of servers, and of dumps of each kind.
const SERVERS: usize = 5_000;
const DUMPS: u32 = 3;

/// CPU time of the threads with these names.
fn ran(program: &Manylane, names: &[&str]) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let nanos = threads.flatten().map(|thread| {
        let of = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let nanos = if names.contains(&of("comm").trim()) { of("schedstat") } else { String::new() };
        nanos.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}

/// The lanes use at most an eighth of the reporter's time, in debug builds and with their other work. For
/// 50,000 servers and a release build they may use 50 ms (`manylane-bench manage --row stat` measures it: 3
/// to 9 ms).
#[test]
fn lanes_leave_dumps_of_many_servers_to_the_reporter() {
    let (folder, (web, address)) = (Folder::new(), listener());
    let socket = folder.file("unused", "").with_file_name("control");
    let mut config = format!(
        "global\n nbthread 2\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend front\n bind {}\n \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n default_backend back\nbackend \
         back\n",
        socket.display(),
        fd(&web)
    );
    for server in 0..SERVERS {
        let _ = writeln!(config, " server s{server} 127.0.0.1:9");
    }
    let program = Manylane::start_ready(&config);
    let stat = || {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(b"show stat\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text.lines().filter(|line| line.starts_with("back,s")).count()
    };
    let scrape = || {
        let mut client = connect(address);
        client.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let text = read_all(&mut client);
        text.lines().filter(|line| line.starts_with("haproxy_server_weight{proxy=\"back\"")).count()
    };
    const LANES: &[&str] = &["manylane", "lane 1"]; // the first thread is the first lane
    // One of the dumps must respect the limit: each second lanes also visit all servers, which takes 13 ms
    // here, and on a busy machine a dump may take several seconds.
    let shares: Vec<_> = (0..DUMPS)
        .map(|_| {
            let before = (ran(&program, LANES), ran(&program, &["reporter"]));
            assert_eq!((stat(), scrape()), (SERVERS, SERVERS));
            (ran(&program, LANES) - before.0, ran(&program, &["reporter"]) - before.1)
        })
        .collect();
    assert!(shares.iter().any(|&(lanes, reporter)| lanes * 8 <= reporter), "lanes, reporter: {shares:?}");
}
