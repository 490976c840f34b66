//! What goes on inside: lanes, locks, pools, kinds of tasks.

use super::Call;
use crate::reply::Gone;
use manylane_pool::PoolReport;
use manylane_sched::Profiling;
use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), Gone> {
    call.reply.put(
        "# lane live queued rounds polls spawned completed arrived woken_remotely timers sleeps running\n",
    );
    for lane in manylane_sched::report() {
        let _ = writeln!(
            call.reply,
            "{} {} {} {} {} {} {} {} {} {} {} {}",
            lane.lane.index(),
            lane.live,
            lane.run_queue(),
            lane.rounds,
            lane.polls(),
            lane.spawned,
            lane.completed,
            lane.arrived,
            lane.woken_remotely,
            lane.timers,
            lane.sleeps,
            lane.running.map_or("-".into(), |kind| kind.replace(' ', "_")),
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

pub(super) fn contention(call: &mut Call<'_, '_>) {
    call.reply.put("# lock_class waits total_us longest_us\n");
    for class in manylane_sync::contention() {
        let (name, micros) = (class.class.replace(' ', "_"), |time: Duration| time.as_micros());
        let _ =
            writeln!(call.reply, "{name} {} {} {}", class.times, micros(class.total), micros(class.longest));
    }
}

pub(super) fn pools(call: &mut Call<'_, '_>) {
    match pool_table(call.word(0)) {
        Some(table) => call.reply.put(&table),
        None => call.error("'show pools' takes one of byname, bysize, byusage."),
    }
}

/// What the pools hold, in that order: `byname` or nothing, `bysize`, `byusage`.
pub(crate) fn pool_table(order: &str) -> Option<String> {
    let mut pools = manylane_pool::report(); // by name
    match order {
        "" | "byname" => {}
        "bysize" => pools.sort_by_key(|pool| Reverse(pool.size)),
        "byusage" => pools.sort_by_key(|pool| Reverse(pool.used * pool.size as u64)),
        _ => return None,
    }
    let bytes = |pool: &PoolReport, objects: u64| objects * pool.size as u64;
    let mut table = String::from("Dumping pools usage.\n");
    for pool in &pools {
        let _ = writeln!(
            table,
            "  - Pool {} ({} bytes) : {} allocated ({} bytes), {} used (~{} by thread caches), {} failures, {} lanes",
            pool.name,
            pool.size,
            pool.allocated,
            bytes(pool, pool.allocated),
            pool.used,
            pool.cached,
            pool.failed,
            pool.lanes.len(),
        );
    }
    let sum = |of: fn(&PoolReport) -> u64| pools.iter().map(|pool| bytes(pool, of(pool))).sum::<u64>();
    let _ = writeln!(
        table,
        "Total: {} pools, {} bytes allocated, {} used (~{} by thread caches).",
        pools.len(),
        sum(|pool| pool.allocated),
        sum(|pool| pool.used),
        sum(|pool| pool.cached),
    );
    Some(table)
}

fn mode() -> &'static str {
    match manylane_sched::profiling() {
        Profiling::Off => "off",
        Profiling::On => "on",
        Profiling::Auto => "auto",
    }
}

pub(super) fn set_profiling(call: &mut Call<'_, '_>) {
    if call.word(0) != "tasks" {
        return call.error("Expects 'tasks'; the use of memory is counted always, see 'show pools'.");
    }
    let wanted = match call.word(1) {
        "on" => Profiling::On,
        "off" => Profiling::Off,
        "auto" => Profiling::Auto,
        _ => return call.error("Expects either 'on', 'auto', or 'off'."),
    };
    manylane_sched::set_profiling(wanted);
}

/// A time in four letters and a unit: columns stay below each other.
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

pub(super) fn profiling(call: &mut Call<'_, '_>) {
    let _ = writeln!(
        call.reply,
        "Per-task CPU profiling              : {}   # set profiling tasks {{on|auto|off}}\n",
        mode()
    );
    call.reply.put("Tasks activity:\n");
    let _ = writeln!(
        call.reply,
        "  {:<20} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "kind", "calls", "cpu_tot", "cpu_avg", "lat_tot", "lat_avg"
    );
    for kind in manylane_sched::profile() {
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
