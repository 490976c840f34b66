//! Start and reload of a configuration with 10,000 servers.

use super::running::{ask, until};
use super::{Bench, DEFAULTS, backends, median, met};
use crate::proxy::load::Load;
use crate::proxy::program::{Kind, free_port};
use std::time::{Duration, Instant};

/// Rounds of each measurement.
const ROUNDS: usize = 5;

/// Time limit of each.
const MOST: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &Bench, _: &Load) -> Result<(), String> {
    println!("\n100 backends of 100 servers, s: medians of {ROUNDS} (start)");
    println!(
        "| who | check (`-c`) | start | reload in the process | reload by the master | at most {} s |",
        MOST.as_secs()
    );
    println!("|---|---|---|---|---|---|");
    for kind in bench.kinds() {
        let port = free_port()?;
        let text = format!(
            "global\n    nbthread 2\n    maxconn 2000\n    stats socket {} level admin expose-fd \
                listeners\n{DEFAULTS}\
             frontend outside\n    bind 127.0.0.1:{port}\n    http-request return status 200\n{}",
            bench.socket().display(),
            backends(100, 100),
        );
        let (mut checks, mut starts, mut reloads) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let mut checking = bench.start(kind, port, &text, &["-c"])?;
            let code = checking.child.wait().map_err(|error| error.to_string())?;
            if !code.success() {
                return Err(format!("{kind} refuses the file: {}", checking.said()));
            }
            checks.push(began.elapsed());
            let began = Instant::now();
            let running = bench.serve(kind, port, &text, &[])?;
            starts.push(began.elapsed());
            if kind.is_ours() {
                let began = Instant::now();
                let (answer, _) = running.ask("reload", 4096)?;
                if !answer.contains("Reloaded: ") {
                    return Err(answer);
                }
                reloads.push(began.elapsed());
            }
        }
        let replaced = by_master(bench, kind, port, &text)?;
        let [check, start, replaced] = [checks, starts, replaced].map(median);
        let reload = if kind.is_ours() { Some(median(reloads)) } else { None };
        println!(
            "| {kind} | {:.3} | {:.3} | {} | {:.3} | {} |",
            check.as_secs_f64(),
            start.as_secs_f64(),
            reload.map_or("–".into(), |time| format!("{:.3}", time.as_secs_f64())),
            replaced.as_secs_f64(),
            met(start <= MOST && replaced <= MOST && reload.is_none_or(|time| time <= MOST)),
        );
    }
    Ok(())
}

/// Time from `reload` of the master CLI to a new worker.
fn by_master(bench: &Bench, kind: Kind, port: u16, text: &str) -> Result<Vec<Duration>, String> {
    let master = bench.master();
    let _running = bench.serve(kind, port, text, &["-W", "-S", &*master.to_string_lossy()])?;
    let pid = || -> Option<u32> {
        let (text, _) = ask(&master, "show proc", 1 << 16).ok()?;
        let mut rows = text.lines().skip_while(|line| !line.starts_with("# workers")).skip(1);
        rows.next()?.split_whitespace().next()?.parse().ok()
    };
    until("a worker", || pid().is_some())?;
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        let before = pid().ok_or("no worker serves")?;
        let began = Instant::now();
        ask(&master, "reload", 4096)?;
        until("the next worker", || pid().is_some_and(|pid| pid != before))?;
        all.push(began.elapsed());
    }
    Ok(all)
}
