//! `show pools` and `debug dev memstats`: memory by pool and by type.

use super::Call;
use manylane_pool::PoolReport;
use manylane_stats::{CallSite, MemReport};
use std::cmp::Reverse;
use std::fmt::Write;

/// Arguments of `show pools`.
#[derive(Debug, Default)]
struct PoolsQuery {
    order: Order,
    /// Only pools whose names begin with this.
    prefix: String,
    /// Most lines.
    lines: Option<usize>,
    /// Also each lane's part.
    detailed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Name,
    Size,
    /// By bytes in use; pools without any are left out.
    Usage,
}

impl PoolsQuery {
    /// `None` if a word is unknown.
    fn read(words: &[String]) -> Option<Self> {
        let mut wish = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match &**word {
                "byname" => wish.order = Order::Name,
                "bysize" => wish.order = Order::Size,
                "byusage" => wish.order = Order::Usage,
                "detailed" => wish.detailed = true,
                "match" => wish.prefix = words.next()?.clone(),
                lines => wish.lines = Some(lines.parse().ok().filter(|lines| *lines > 0)?),
            }
        }
        Some(wish)
    }
}

/// `show pools`
pub(super) fn show(call: &mut Call<'_, '_>) {
    match PoolsQuery::read(call.words) {
        Some(wish) => call.reply.put(&table(&wish)),
        None => call.error(
            "Expects either 'byname', 'bysize', 'byusage', 'match <pfx>', 'detailed', or a max number of \
            output lines.",
        ),
    }
}

/// Text of `show pools` without arguments.
pub(crate) fn all() -> String {
    table(&PoolsQuery::default())
}

fn table(wish: &PoolsQuery) -> String {
    let mut pools = manylane_pool::report(); // by name
    pools.retain(|pool| pool.name.starts_with(&*wish.prefix));
    match wish.order {
        Order::Name => {}
        Order::Size => pools.sort_by_key(|pool| Reverse(pool.size)),
        Order::Usage => {
            pools.retain(|pool| pool.used > 0);
            pools.sort_by_key(|pool| Reverse(pool.used * pool.size as u64));
        }
    }
    pools.truncate(wish.lines.unwrap_or(usize::MAX));
    let bytes = |pool: &PoolReport, objects: u64| objects * pool.size as u64;
    let mut table = String::from("Dumping pools usage.\n");
    for pool in &pools {
        let _ = writeln!(
            table,
            "  - Pool {} ({} bytes) : {} allocated ({} bytes), {} used (~{} by thread caches), {} failures, \
                {} lanes",
            pool.name,
            pool.size,
            pool.allocated,
            bytes(pool, pool.allocated),
            pool.used,
            pool.cached,
            pool.failed,
            pool.lanes.len(),
        );
        for lane in pool.lanes.iter().filter(|_| wish.detailed) {
            let _ = writeln!(
                table,
                "      > lane {} : {} calls to allocate, {} to free, {} cached, {} for other lanes, {} \
                    failures",
                lane.lane.index(),
                lane.allocs,
                lane.frees,
                lane.cached,
                lane.surplus,
                lane.failed,
            );
        }
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
    table
}

/// `debug dev memstats`: types in use first; `all` lists the others, too; `match` takes a prefix, any other
/// word a part of the name.
pub(super) fn memory(call: &mut Call<'_, '_>) {
    match (call.word(0), call.word(1)) {
        ("", _) => by_type(call, "", usize::MAX, false),
        ("all", _) => by_type(call, "", usize::MAX, true),
        ("match", prefix) if !prefix.is_empty() => by_type(call, prefix, usize::MAX, false),
        ("reset", _) => call.error(
            "Nothing is reset: counters only grow, so that a difference of two \
            readings is what came between them.",
        ),
        _ => call.error("'debug dev memstats' expects nothing, 'all', or 'match <prefix>'."),
    }
}

/// Writes the types of memory whose names begin with `prefix`: by bytes in use, or with `by_name` all of them
/// by name. In a build with call sites, each type is followed by the places in the source that allocated
/// (R-C3).
pub(super) fn by_type(call: &mut Call<'_, '_>, prefix: &str, lines: usize, by_name: bool) {
    call.reply.put(&types(prefix, lines, by_name));
}

fn types(prefix: &str, lines: usize, by_name: bool) -> String {
    let mut table = String::new();
    let mut types = manylane_stats::report_mem_sites(); // by name
    types.retain(|(kind, _)| kind.name.starts_with(prefix));
    if !by_name {
        types.retain(|(kind, _)| kind.sum.live() > 0 || kind.sum.allocs > 0);
        types.sort_by_key(|(kind, _)| Reverse(kind.sum.live_bytes()));
    }
    for (kind, sites) in types.iter().take(lines) {
        line(&mut table, kind);
        for CallSite { location, allocs, bytes } in sites {
            let source_line = location.map_or_else(
                || "other lines".to_owned(),
                |caller| format!("{}:{}", caller.file(), caller.line()),
            );
            let _ = writeln!(table, "  {source_line:<60} size: {bytes:>12} calls: {allocs:>12}");
        }
    }
    if cfg!(not(feature = "call-sites")) {
        table.push_str(
            "# a program that was built with '--features call-sites' names the lines of the source\n",
        );
    }
    table
}

fn line(table: &mut String, MemReport { name, sum, lanes }: &MemReport) {
    let _ = writeln!(
        table,
        "{:<28} size: {:>12} live: {:>10} allocated: {:>14} calls: {:>12} freed: {:>14} calls: {:>12} lanes: \
            {}",
        name.replace(' ', "_"),
        sum.live_bytes(),
        sum.live(),
        sum.bytes_in,
        sum.allocs,
        sum.bytes_out,
        sum.frees,
        lanes.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_requested_may_stand_in_any_order() {
        let read =
            |line: &str| PoolsQuery::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let wish = read("5 match se byusage detailed").unwrap();
        assert_eq!(
            (wish.order, &*wish.prefix, wish.lines, wish.detailed),
            (Order::Usage, "se", Some(5), true)
        );
        for bad in ["nope", "match", "0", "-1", "byname more"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    /// R-C3: who allocates, how much, how often.
    #[cfg(feature = "call-sites")]
    #[test]
    fn call_sites_stand_below_their_type() {
        static REQUESTED: manylane_stats::MemType = manylane_stats::MemType::new("asked by a test");
        REQUESTED.alloc(100);
        let here = format!("{}:{}", file!(), line!() - 1);
        let table = types("asked by", 1, false);
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("asked_by_a_test ") && lines[1].starts_with(&here), "{table}");
        assert!(
            lines[1].ends_with("calls:            1") && lines[1].contains("size:          100"),
            "{table}"
        );
    }
}
