//! The choice of the driver when the kernel refuses one, as the filters of containers do. A filter applies to
//! the thread that installs it.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::forbid;
use manylane_io::{Driver, DriverChoice, DriverError, Kind};
use manylane_sched::{Config, Lane};

const EPOLL: libc::c_long = libc::SYS_epoll_create1;
const IO_URING: libc::c_long = libc::SYS_io_uring_setup;

fn without(calls: &'static [libc::c_long], choice: DriverChoice) -> Option<Result<Kind, DriverError>> {
    let thread = std::thread::spawn(move || {
        let lane = Lane::new(Config::new()).unwrap();
        forbid(calls, libc::EPERM).then(|| Driver::new(lane.here(), choice).map(|driver| driver.kind()))
    });
    let outcome = thread.join().unwrap();
    if outcome.is_none() {
        common::not_shown("a driver that is refused", "the kernel has no filters");
    }
    outcome
}

#[test]
fn auto_takes_what_the_kernel_allows() {
    let lane = Lane::new(Config::new()).unwrap();
    let io_uring =
        Driver::new(lane.here(), DriverChoice::Only(Kind::IoUring)).map(|driver| driver.kind()).ok();
    let auto = Driver::new(lane.here(), DriverChoice::Auto).unwrap().kind();
    assert_eq!(auto, io_uring.unwrap_or(Kind::Epoll));
    if let Some(chosen) = without(&[IO_URING], DriverChoice::Auto) {
        assert_eq!(chosen.unwrap(), Kind::Epoll);
    }
    if let Some(chosen) = without(&[EPOLL], DriverChoice::Auto) {
        assert_eq!(chosen.ok(), io_uring);
    }
}

#[test]
fn a_driver_that_was_requested_and_is_refused_is_one_sentence() {
    let sentence = |calls, choice| without(calls, choice).map(|outcome| outcome.unwrap_err().to_string());
    let refused = "the kernel does not offer io_uring to this program: Operation not permitted (os error 1); \
                   set MANYLANE_DRIVER to epoll or auto";
    if let Some(said) = sentence(&[IO_URING], DriverChoice::Only(Kind::IoUring)) {
        assert_eq!(said, refused);
    }
    let refused = "the kernel does not offer epoll to this program: Operation not permitted (os error 1)";
    for choice in [DriverChoice::Only(Kind::Epoll), DriverChoice::Auto] {
        if let Some(said) = sentence(&[EPOLL, IO_URING], choice) {
            assert_eq!(said, refused);
        }
    }
}
