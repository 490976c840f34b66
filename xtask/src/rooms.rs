//! The rooms of the workspace: their order, and the permissions of each.

use cargo_metadata::DependencyKind;

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Room {
    /// Name of the folder; the package is `manylane-<name>` unless it is in [`PLAIN`].
    pub(crate) name: &'static str,
    pub(crate) unsafe_code: UnsafeCode,
    pub(crate) memory: Memory,
}

/// Whether a room may use `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsafeCode {
    Refused,
    Allowed,
}

/// How a room accesses shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Through `manylane_sync`, so that the model checker and the simulator see it.
    ThroughSync,
    /// With the atomics and locks of std.
    Direct,
}

use Memory::{Direct, ThroughSync};
use UnsafeCode::{Allowed, Refused};

/// From top to bottom: a room may depend on those below it only. Planned rooms are listed, too, so that the
/// order is settled before the first dependency.
pub(crate) static ROOMS: &[Room] = &[
    // name, `unsafe`, shared memory
    room("xtask", Refused, ThroughSync),
    // calls peers' allocators by raw pointers, and uses their locks and atomics
    room("bench", Allowed, Direct),
    room("fuzz", Allowed, ThroughSync), // looks at blocks that the pool manages
    room("tests", Refused, Direct),     // a test may use any tool
    room("manylane", Refused, ThroughSync),
    room("control", Refused, ThroughSync),
    room("runtime", Refused, ThroughSync),
    room("proxy", Refused, ThroughSync),
    room("rules", Refused, ThroughSync),
    room("lanes", Refused, ThroughSync),
    room("plan", Refused, ThroughSync),
    room("balance", Refused, ThroughSync),
    room("check", Refused, ThroughSync),
    room("resolve", Refused, ThroughSync),
    room("peers", Refused, ThroughSync),
    room("acme", Refused, ThroughSync),
    room("stick", Refused, ThroughSync),
    room("logs", Refused, ThroughSync),
    room("config", Refused, ThroughSync),
    room("expr", Refused, ThroughSync),
    room("mux", Refused, ThroughSync),
    room("h1", Refused, ThroughSync),
    room("h2", Refused, ThroughSync),
    room("http", Refused, ThroughSync),
    room("net", Refused, ThroughSync),
    room("tls", Refused, ThroughSync),
    room("io", Allowed, ThroughSync),
    room("sched", Allowed, ThroughSync),
    room("local-capi", Allowed, ThroughSync), // pointers from C
    room("local", Allowed, ThroughSync),
    room("buf", Allowed, ThroughSync),
    room("pool", Allowed, ThroughSync),
    room("stats", Refused, ThroughSync),
    room("list", Allowed, ThroughSync),
    room("sync", Allowed, Direct), // the gateway
    room("sim", Allowed, Direct),  // below the gateway: the machine that `sync` can run on
];

/// Rooms whose package has no prefix.
const PLAIN: &[&str] = &["manylane", "xtask"];

/// Rooms that no room may depend on.
const LEAVES: &[&str] = &["xtask", "bench", "fuzz", "tests"];

/// Permitted dependencies on a room above.
const EXCEPTIONS: &[(&str, &str, DependencyKind, &str)] = &[(
    "sim",
    "sync",
    DependencyKind::Development,
    "the simulator's validation runs sync's own atomics and locks on it",
)];

const fn room(name: &'static str, unsafe_code: UnsafeCode, memory: Memory) -> Room {
    Room { name, unsafe_code, memory }
}

/// The room of a package, if it has one.
pub(crate) fn of(package: &str) -> Option<&'static Room> {
    let name = if PLAIN.contains(&package) { package } else { package.strip_prefix("manylane-")? };
    ROOMS.iter().find(|room| room.name == name)
}

/// Why `from` may not depend on `to`; `None` if it may.
pub(crate) fn refusal(from: &Room, to: &Room, kind: DependencyKind) -> Option<String> {
    let index = |room: &Room| ROOMS.iter().position(|r| std::ptr::eq(r, room));
    if EXCEPTIONS.iter().any(|&(f, t, k, _)| (f, t, k) == (from.name, to.name, kind)) {
        return None;
    }
    if LEAVES.contains(&to.name) {
        return Some(format!(
            "`{}` depends on `{}`, which is a tool and not a library; move what both need into a room below",
            from.name, to.name
        ));
    }
    (index(from) >= index(to)).then(|| {
        format!(
            "`{}` depends on `{}`, which stands above it; arrows point down only: move what both need into a \
                room \
             below `{}`",
            from.name, to.name, from.name
        )
    })
}
