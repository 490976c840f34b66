//! Resource usage of processes: processor time, memory, system calls. Measured from outside, in the same way
//! for every program.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program's processes: the one that was started, and its children.
#[derive(Clone, Debug)]
pub(crate) struct Processes(Vec<u32>);

/// Processor time so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The total, in nanoseconds.
    pub(crate) nanos: u64,
    /// Time in the program's own code and in the kernel, in the system's ticks: only their ratio is used.
    pub(crate) user: u64,
    pub(crate) system: u64,
}

impl Usage {
    /// Usage since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            nanos: self.nanos - before.nanos,
            user: self.user - before.user,
            system: self.system - before.system,
        }
    }

    /// The share of time in the program's own code.
    pub(crate) fn user_share(self) -> f64 {
        self.user as f64 / (self.user + self.system).max(1) as f64
    }
}

impl Processes {
    /// `pid` and its children.
    pub(crate) fn of(pid: u32) -> Self {
        let mut found = vec![pid];
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if stat(child).and_then(|fields| fields.get(1)?.parse().ok()) == Some(pid) {
                found.push(child);
            }
        }
        Self(found)
    }

    /// Their usage so far.
    ///
    /// # Errors
    /// A sentence if one of them has ended.
    pub(crate) fn usage(&self) -> Result<Usage, String> {
        let mut usage = Usage::default();
        for &pid in &self.0 {
            let fields = stat(pid).ok_or_else(|| format!("process {pid} has ended"))?;
            let field = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
            usage.user += field(11);
            usage.system += field(12);
            // For each thread, to the nanosecond; threads do not end during a measurement.
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
                usage.nanos +=
                    text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(usage)
    }

    /// Their resident memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.sum("VmRSS:")
    }

    /// Their peak memory, in bytes: for a program that returns its initial memory, this shows its further
    /// needs.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.sum("VmHWM:")
    }

    fn sum(&self, field: &str) -> u64 {
        let of = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = text.lines().find(|line| line.starts_with(field))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        self.0.iter().filter_map(of).sum::<u64>() * 1024
    }

    /// Starts counting `events`, by their names in `perf stat`; `None` if the system does not allow it.
    pub(crate) fn count<E: AsRef<str>>(&self, events: &[E]) -> Option<Count> {
        let events: Vec<String> = events.iter().map(|event| event.as_ref().to_owned()).collect();
        let pids: Vec<String> = self.0.iter().map(u32::to_string).collect();
        let perf = Command::new("perf")
            .args(["stat", "-x,", "-e", &events.join(","), "-p", &pids.join(",")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        std::thread::sleep(Duration::from_millis(300)); // it does not report when it has begun
        Some(Count { perf, events })
    }
}

/// Event for system calls, in a separate pass, since counting takes time in the kernel.
pub(crate) const CALLS: &[&str] = &["raw_syscalls:sys_enter"];
/// Events for instructions of the program, and of the kernel for it.
pub(crate) const INSTRUCTIONS: &[&str] = &["instructions:u", "instructions:k"];

/// Kernel probes at the functions by which a program allocates from its global allocator. Removed on drop.
#[derive(Debug)]
pub(crate) struct Allocator {
    group: String,
    /// The probes, as events of `perf stat`.
    pub(crate) events: Vec<String>,
}

impl Allocator {
    /// Adds probes for `processes`: ours is linked with an allocator, the peers use the C library's. `None`
    /// if the system does not allow it.
    pub(crate) fn of(processes: &Processes, is_ours: bool) -> Option<Self> {
        let pid = *processes.0.first()?;
        let (path, functions): (PathBuf, &[&str]) = if is_ours {
            (
                fs::read_link(format!("/proc/{pid}/exe")).ok()?,
                &["mi_malloc_aligned", "mi_zalloc_aligned", "mi_realloc_aligned"],
            )
        } else {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
            let library = maps.lines().find_map(|line| {
                let path = line.split_whitespace().nth(5)?;
                path.rsplit('/').next()?.starts_with("libc.so").then(|| PathBuf::from(path))
            })?;
            (library, &["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"])
        };
        let group = format!("manylane_bench_{}_{pid}", std::process::id());
        let mut probes = Self { events: Vec::new(), group };
        let mut perf = Command::new("perf");
        perf.args(["probe", "-q", "-x"]).arg(path);
        for (n, function) in functions.iter().enumerate() {
            perf.arg("--add").arg(format!("{}:p{n}={function}", probes.group));
            probes.events.push(format!("{}:p{n}", probes.group));
        }
        let added = perf.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        added.success().then_some(probes)
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let all = format!("{}:*", self.group);
        let mut perf = Command::new("perf");
        perf.args(["probe", "-q", "--del", &all]).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = perf.status(); // there may be none
    }
}

/// A running count.
#[derive(Debug)]
pub(crate) struct Count {
    perf: Child,
    events: Vec<String>,
}

impl Count {
    /// Ends the count; returns the number of each event.
    pub(crate) fn end(mut self) -> Option<Vec<u64>> {
        let pid = rustix::process::Pid::from_child(&self.perf);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok()?;
        let mut text = String::new();
        self.perf.stderr.take()?.read_to_string(&mut text).ok()?;
        self.perf.wait().ok()?;
        let of =
            |event: &String| text.lines().find(|line| line.contains(event))?.split(',').next()?.parse().ok();
        self.events.iter().map(of).collect()
    }
}

/// The fields of a process after its name, beginning with its state.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(") ")?;
    Some(behind.split(' ').map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate process: threads of this one end with other tests, and their times with them.
    #[test]
    fn time_that_was_used_is_seen() {
        let mut busy =
            Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("there is a shell");
        let processes = Processes::of(busy.id());
        let before = processes.usage().expect("it does not end by itself");
        let used = loop {
            let used = processes.usage().expect("it does not end by itself").since(before);
            if used.nanos > 0 && processes.memory() > 0 {
                break used;
            }
        };
        busy.kill().expect("it is ours");
        busy.wait().expect("it is ours");
        assert!((0.0..=1.0).contains(&used.user_share()), "{used:?}");
    }
}
