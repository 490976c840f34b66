//! A lane that stops goes on with the housekeeping of its memory. A program of its own, since the reserve and
//! its allocator are those of the process.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::{Local, bind};
use manylane_net::HandedOver;
use manylane_pool::reserve::{self, Reserving};
use manylane_runtime::accept;
use manylane_sched::{Class, Config, Lane, TaskKind};
use manylane_sync::Arc;
use std::alloc::System;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

mod common;

static STOPS: TaskKind = TaskKind::new("stops");

#[global_allocator]
static ALLOCATOR: Reserving<System> = Reserving(System);

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_lane_that_stops_restores_the_reserve() {
    assert!(reserve::keep(8 << 20));
    let (tell, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = front.into_raw_fd(); // the generation owns it
        let text = format!(
            "defaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
             listen l\n bind fd@{listener}\n server s 127.0.0.1:9\n"
        );
        let generation = common::built(text, 100);
        let bound = bind(&generation, 1, |_, _| Err("nobody".into()), &mut HandedOver::default()).unwrap();
        let generation = Arc::new(generation);
        let mut lane = Lane::new(Config::new()).unwrap();
        let mut driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
        let local = Local::install(driver.io(), generation.clone(), || {});
        accept(&local, &Arc::new(bound), &[lane.id()]).unwrap();
        drop(local);
        tell.send((lane.remote(), generation)).unwrap();
        lane.run(&mut driver).unwrap();
        Local::remove_all();
    });
    let (lane, generation) = receiver.recv().unwrap();
    let (tell, stopped) = mpsc::channel();
    lane.spawn(&STOPS, Class::Bulk, async move {
        Local::of(&generation).unwrap().stop();
        tell.send(()).unwrap();
    })
    .unwrap();
    stopped.recv().unwrap();

    assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
    let began = Instant::now();
    while reserve::is_short() {
        assert!(began.elapsed() < TIMEOUT, "nobody restores the reserve");
        std::thread::yield_now();
    }
    lane.stop().unwrap();
    thread.join().unwrap();
}
