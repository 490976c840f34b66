//! `show profiling` and `set profiling`: time spent in tasks by kind (R-F8), in lines that fit a screen
//! (R-G6).

use super::Call;
use super::pools::by_type;
use manylane_sched::{KindReport, Profiling};
use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

fn mode() -> &'static str {
    match manylane_sched::profiling() {
        Profiling::Off => "off",
        Profiling::On => "on",
        Profiling::Auto => "auto",
    }
}

/// `set profiling`
pub(super) fn set(call: &mut Call<'_, '_>) {
    match (call.word(0), call.word(1)) {
        ("tasks", "on") => manylane_sched::set_profiling(Profiling::On),
        ("tasks", "off") => manylane_sched::set_profiling(Profiling::Off),
        ("tasks", "auto") => manylane_sched::set_profiling(Profiling::Auto),
        ("tasks", _) => call.error("Expects 'on', 'auto', or 'off'."),
        ("memory", "on") => call.info("The use of memory is always counted: see 'show profiling memory'."),
        ("memory", "off") => call.error(
            "The use of memory is always counted: that cannot be switched off, and costs nothing more.",
        ),
        ("memory", _) => call.error("Expects either 'on' or 'off'."),
        _ => call.error("Expects either 'tasks' or 'memory'."),
    }
}

/// Formats a time with four characters and a unit, so that columns align.
fn short(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match time.as_nanos() {
        0..1_000 => (nanos, "ns"),
        1_000..1_000_000 => (nanos / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
        1_000_000_000..60_000_000_000 => (nanos / 1e9, "s"),
        _ => (nanos / 60e9, "m"),
    };
    if value < 10.0 && unit != "ns" { format!("{value:.3}{unit}") } else { format!("{value:.0}{unit}") }
}

/// The sort order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Calls,
    Time,
    Name,
}

/// Arguments of `show profiling`.
struct ProfilingQuery {
    status: bool,
    tasks: bool,
    memory: bool,
    order: Order,
    lines: usize,
}

impl ProfilingQuery {
    fn read(words: &[String]) -> Option<Self> {
        let mut wish =
            Self { status: true, tasks: true, memory: true, order: Order::Calls, lines: usize::MAX };
        for word in words {
            match &**word {
                "all" => (wish.status, wish.tasks, wish.memory) = (true, true, true),
                "status" => (wish.tasks, wish.memory) = (false, false),
                "tasks" => (wish.status, wish.memory) = (false, false),
                "memory" => (wish.status, wish.tasks) = (false, false),
                "byaddr" => wish.order = Order::Name,
                "bytime" => wish.order = Order::Time,
                "aggr" => {} // each kind of task has one line anyway
                lines => wish.lines = lines.parse().ok().filter(|lines| *lines > 0)?,
            }
        }
        Some(wish)
    }
}

/// `show profiling`
pub(super) fn show(call: &mut Call<'_, '_>) {
    let Some(wish) = ProfilingQuery::read(call.words) else {
        return call.error(
            "Expects either 'all', 'status', 'tasks', 'memory', 'byaddr', 'bytime', 'aggr' or a max \
                number of output lines.",
        );
    };
    if wish.status {
        let _ = writeln!(
            call.reply,
            "Per-task CPU profiling              : {:<6} # set profiling tasks {{on|auto|off}}",
            mode()
        );
        call.reply.put("Memory usage profiling              : on     # always\n");
    }
    if wish.tasks {
        tasks(call, &wish);
    }
    if wish.memory {
        by_type(call, "", wish.lines, wish.order == Order::Name);
    }
}

fn tasks(call: &mut Call<'_, '_>, wish: &ProfilingQuery) {
    call.reply.put("Tasks activity:\n");
    let _ = writeln!(
        call.reply,
        "  {:<20} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "kind", "calls", "cpu_tot", "cpu_avg", "lat_tot", "lat_avg"
    );
    let mut kinds: Vec<KindReport> = manylane_sched::profile();
    match wish.order {
        Order::Calls => kinds.sort_by_key(|kind| (Reverse(kind.calls), kind.kind)),
        Order::Time => kinds.sort_by_key(|kind| (Reverse(kind.cpu_total), kind.kind)),
        Order::Name => kinds.sort_by_key(|kind| kind.kind),
    }
    for kind in kinds.iter().take(wish.lines) {
        let _ = writeln!(
            call.reply,
            "  {:<20} {:>10} {:>9} {:>9} {:>9} {:>9}",
            kind.kind,
            kind.calls,
            short(kind.cpu_total),
            short(kind.cpu_average()),
            short(kind.latency_total),
            short(kind.latency_average()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_whatever_they_are() {
        let of = |nanos| short(Duration::from_nanos(nanos));
        assert_eq!(
            [0, 999, 1_000, 12_345, 9_999_999, 59_000_000_000, 7_200_000_000_000].map(of),
            ["0ns", "999ns", "1.000us", "12us", "10.000ms", "59s", "120m"]
        );
    }
}
