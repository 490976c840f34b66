//! Processor time of reading, which does not depend on the load of the machine. It must grow linearly with
//! the size of the file.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::time::Duration;

/// `backends` backends with 100 servers each.
fn text(backends: usize) -> String {
    let mut text = String::from("defaults\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n");
    for backend in 0..backends {
        writeln!(text, "backend b{backend}\n balance leastconn").unwrap();
        for server in 0..100 {
            writeln!(
                text,
                " server s{server} 10.0.{}.{server}:80 weight 10 maxconn 100 slowstart 10s",
                backend % 256
            )
            .unwrap();
        }
    }
    text
}

/// Processor time that this thread has used.
fn spent() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// The minimum of several runs.
fn read(text: &str) -> Duration {
    let build = Build::bare();
    let run = || {
        let mut sources = Sources::new();
        sources.add("large.cfg", text).unwrap();
        let before = spent();
        let loaded = load(&sources, &build, Environment::new(), false);
        let took = spent() - before;
        assert_eq!(loaded.found.errors(), 0);
        took
    };
    (0..7).map(|_| run()).min().unwrap()
}

#[test]
fn a_file_ten_times_as_long_takes_about_ten_times_as_long() {
    let (short, long) = (read(&text(10)), read(&text(100)));
    println!("1,000 servers: {short:?}; 10,000 servers: {long:?}, {:?} a line", long / 10_000);
    // A linear step has a factor of 10; 40 leaves room for noise. A quadratic step has a factor of 100.
    assert!(long < short * 40, "{short:?} and {long:?}");
}

/// Fails if reading `text` takes `most` or longer. Linear work takes only a small part of it.
fn read_within(text: &str, most: Duration) {
    let build = Build::bare();
    let mut sources = Sources::new();
    sources.add("hostile.cfg", text).unwrap();
    let before = spent();
    load(&sources, &build, Environment::new(), false);
    let took = spent() - before;
    assert!(took < most, "{took:?}");
}

#[test]
fn a_line_of_escapes_costs_no_more_for_each_than_a_short_one() {
    let line = format!(" description {}\n", "\\ ".repeat(30_000));
    read_within(&format!("global\n{}", line.repeat(20)), Duration::from_secs(10));
    let line = format!(".if {}1\n.endif\n", "\\ ".repeat(30_000));
    read_within(&line.repeat(20), Duration::from_secs(10));
}

#[test]
fn many_references_to_names_that_nobody_has_are_counted_without_a_proposal_for_each() {
    let mut text = String::from("frontend f\n bind :80\n");
    for number in 0..100_000 {
        writeln!(text, " use_backend nobody{number} if TRUE").unwrap();
    }
    for number in 0..100 {
        writeln!(text, "backend somebody{number}").unwrap();
    }
    read_within(&text, Duration::from_secs(20));
    text = String::from("backend b\n");
    for number in 0..100_000 {
        writeln!(text, " use-server nobody{number} if TRUE").unwrap();
    }
    for number in 0..100 {
        writeln!(text, " server somebody{number} 127.0.0.1:80").unwrap();
    }
    read_within(&text, Duration::from_secs(20));
}
