//! Cost of a request on a keep-alive connection: at most four system calls for data, and no `epoll_ctl`.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::{Local, bind};
use manylane_net::HandedOver;
use manylane_runtime::accept;
use manylane_sched::{Class, Config, Lane, TaskKind};
use manylane_sync::Arc;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

mod common;

static COUNTS: TaskKind = TaskKind::new("counts");

const REQUEST: &[u8] = b"GET /path HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// Sends `count` requests.
fn ask(client: &mut TcpStream, count: usize) {
    let mut answer = [0; RESPONSE.len()];
    for _ in 0..count {
        client.write_all(REQUEST).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, RESPONSE);
    }
}

#[test]
fn a_request_costs_four_calls_that_carry_bytes_and_no_epoll_ctl() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = origin.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in origin.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = [0; REQUEST.len()];
                while stream.read_exact(&mut request).is_ok() {
                    stream.write_all(RESPONSE).unwrap();
                }
            });
        }
    });
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap();
    drop(front);
    let (tell, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let text = format!(
            "defaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
             listen l\n bind {address}\n server s {server}\n"
        );
        let generation = common::built(text, 100);
        let bound = bind(&generation, 1, |_, _| Err("nobody".into()), &mut HandedOver::default()).unwrap();
        let generation = Arc::new(generation);
        let mut lane = Lane::new(Config::new()).unwrap();
        let here = lane.here();
        let mut driver = Driver::new(here, DriverChoice::Only(Kind::Epoll)).unwrap();
        let local = Local::install(driver.io(), generation, || {});
        accept(&local, &Arc::new(bound), &[lane.id()]).unwrap();
        tell.send(lane.remote()).unwrap();
        lane.run(&mut driver).unwrap();
    });
    let lane = receiver.recv().unwrap();
    let counts = || {
        let (answer, answered) = mpsc::channel();
        lane.spawn(&COUNTS, Class::Normal, async move { answer.send(manylane_io::report()).unwrap() })
            .unwrap();
        answered.recv().unwrap()
    };
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ask(&mut client, 500); // pools fill, connections are made
    let before = counts();
    const REQUESTS: u64 = 2000;
    ask(&mut client, REQUESTS as usize);
    let after = counts();
    let grown = |pick: fn(&manylane_io::IoReport) -> u64| {
        after.iter().map(pick).sum::<u64>() - before.iter().map(pick).sum::<u64>()
    };
    let carried = grown(|report| report.reads) + grown(|report| report.writes);
    println!("{carried} calls for {REQUESTS} requests");
    assert!(carried <= 4 * REQUESTS + 8, "{carried} calls for {REQUESTS} requests");
    for (what, number) in [
        ("epoll_ctl", grown(|report| report.controls)),
        ("others", grown(|report| report.others)),
        ("connects", grown(|report| report.connects)),
        ("closes", grown(|report| report.closes)),
    ] {
        assert_eq!(number, 0, "{what}");
    }
}
