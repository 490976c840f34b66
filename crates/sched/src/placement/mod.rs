//! Number and places of lanes: usable processors, grouped by shared caches and memory.
//!
//! The system provides all of it: the calling thread's affinity mask, the CPU quota of its control groups
//! (version 2 and 1), and the topology under `/sys`. Data that cannot be read counts as absent: one group, no
//! quota.

mod cpus;
mod quota;

pub use cpus::{BadCpuList, parse_cpus};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A processor that a lane may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The system's number of the processor.
    pub cpu: usize,
    /// NUMA node of the processor; 0 if the system does not tell it.
    pub node: usize,
    /// Group of processors that share the largest cache: the lowest number among them.
    pub cache: usize,
    /// Index of the processor among the threads of its core, from 0.
    pub thread: usize,
    /// Relative speed: the system's capacity of the processor, otherwise its highest frequency; 0 if the
    /// system tells neither.
    pub capacity: u64,
}

/// Placement of the lanes of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One place for each lane; processors that share a cache are adjacent.
    pub lanes: Vec<Cpu>,
    /// Number of processors that the affinity mask allows.
    pub usable: usize,
    /// Processor time that the control groups allow, in thousandths of a processor; none without a quota.
    pub quota: Option<u64>,
}

impl Placement {
    /// Reads the system: one lane for each usable processor, limited by the quota.
    ///
    /// # Errors
    /// That of the system if it does not provide the affinity mask.
    pub fn read() -> io::Result<Self> {
        let mask = sched_getaffinity(None)?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect();
        Ok(Self::read_from(Path::new("/"), &usable))
    }

    /// As [`read`](Self::read), from the files below `root`, for a process that may use the processors
    /// `usable`.
    pub fn read_from(root: &Path, usable: &[usize]) -> Self {
        let nodes = nodes(root);
        let mut lanes: Vec<Cpu> = usable
            .iter()
            .map(|&cpu| Cpu {
                cpu,
                node: nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map_or(0, |(node, _)| *node),
                cache: largest_cache(root, cpu),
                thread: thread_of_core(root, cpu),
                capacity: capacity(root, cpu),
            })
            .collect();
        lanes.sort_by_key(|lane| (lane.node, lane.cache, lane.cpu));
        let quota = quota::read(root);
        if let Some(quota) = quota {
            // A fraction of a processor deserves a lane: two lanes use up a quota of 1.5, one does not.
            let paid = usize::try_from(quota.div_ceil(1000)).unwrap_or(usize::MAX);
            lanes.truncate(paid.max(1));
        }
        Self { lanes, usable: usable.len(), quota }
    }
}

/// Error: a thread could not be pinned.
#[derive(Debug)]
pub struct PinError {
    /// The processor.
    pub cpu: usize,
    /// The system's reason.
    pub error: io::Error,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the thread cannot be pinned to processor {}: {}; choose one that the process may use",
            self.cpu, self.error
        )
    }
}

impl std::error::Error for PinError {}

/// Pins the calling thread to processor `cpu`.
///
/// # Errors
/// [`PinError`].
pub fn pin_to(cpu: usize) -> Result<(), PinError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(PinError { cpu, error: io::ErrorKind::InvalidInput.into() });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    bind(&set).map_err(|error| PinError { cpu, error })
}

/// Restricts the calling thread, and threads that it starts later, to the existing processors of `cpus`.
///
/// # Errors
/// That of the system: the process may use none of them.
pub fn keep_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    bind(&set)
}

/// Processors of this process's threads before `bind` restricted the first of them.
static UNBOUND: OnceLock<CpuSet> = OnceLock::new();

/// Binds the calling thread. The first call stores the thread's allowed processors: neither it nor its parent
/// was bound before.
fn bind(set: &CpuSet) -> io::Result<()> {
    if UNBOUND.get().is_none() {
        let all = sched_getaffinity(None)?;
        UNBOUND.get_or_init(|| all);
    }
    Ok(sched_setaffinity(None, set)?)
}

/// Allows the calling thread, which inherited its processors from the thread that started it, all processors
/// of the process.
#[cfg(not(any(loom, manylane_sim)))] // neither machine has system threads
pub(crate) fn unbind() {
    if let Some(all) = UNBOUND.get() {
        // If the system refuses, for example since the process has lost all of them, the thread stays where
        // it is.
        let _ = sched_setaffinity(None, all);
    }
}

/// Returns the NUMA nodes and their processors.
fn nodes(root: &Path) -> Vec<(usize, Vec<usize>)> {
    let Ok(entries) = fs::read_dir(root.join("sys/devices/system/node")) else { return Vec::new() };
    let node = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((number, parse_cpus(&fs::read_to_string(path.join("cpulist")).ok()?).ok()?))
    };
    let mut nodes: Vec<_> = entries.flatten().filter_map(|entry| node(entry.path())).collect();
    nodes.sort_unstable();
    nodes
}

/// Returns the lowest processor that shares the largest cache with `cpu`; 0 if the system lists no cache.
fn largest_cache(root: &Path, cpu: usize) -> usize {
    let caches = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    let Ok(entries) = fs::read_dir(caches) else { return 0 };
    let cache = |path: PathBuf| {
        let level: u32 = fs::read_to_string(path.join("level")).ok()?.trim().parse().ok()?;
        let shared = parse_cpus(&fs::read_to_string(path.join("shared_cpu_list")).ok()?).ok()?;
        Some((level, *shared.first()?))
    };
    entries
        .flatten()
        .filter_map(|entry| cache(entry.path()))
        .max_by_key(|(level, _)| *level)
        .map_or(0, |c| c.1)
}

/// Returns the index of a processor among the threads of its core.
fn thread_of_core(root: &Path, cpu: usize) -> usize {
    let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let siblings = fs::read_to_string(path).ok().and_then(|text| parse_cpus(&text).ok());
    siblings.and_then(|all| all.iter().position(|sibling| *sibling == cpu)).unwrap_or(0)
}

fn capacity(root: &Path, cpu: usize) -> u64 {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    number("cpu_capacity").or_else(|| number("cpufreq/cpuinfo_max_freq")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files, deleted on drop.
    struct Tree(PathBuf);

    impl Tree {
        fn new(test: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("manylane-placement-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root); // left by an earlier run that was killed
            fs::create_dir_all(&root).expect("the folder can be made");
            for (file, text) in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().expect("it is below the root"))
                    .expect("the folder can be made");
                fs::write(path, text).expect("the file can be written");
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn processors_are_grouped_by_node_and_largest_cache() {
        let mut files = vec![
            ("sys/devices/system/node/node0/cpulist".to_owned(), "0-3\n"),
            ("sys/devices/system/node/node1/cpulist".to_owned(), "4-7\n"),
        ];
        for cpu in 0..8 {
            let index = |n: u32| format!("sys/devices/system/cpu/cpu{cpu}/cache/index{n}");
            let own = ["0", "1", "2", "3", "4", "5", "6", "7"][cpu];
            let shared = ["0,2", "1,3", "0,2", "1,3", "4-7", "4-7", "4-7", "4-7"][cpu];
            files.push((index(0) + "/level", "1\n"));
            files.push((index(0) + "/shared_cpu_list", own));
            files.push((index(3) + "/level", "3\n"));
            files.push((index(3) + "/shared_cpu_list", shared));
        }
        let files: Vec<_> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let tree = Tree::new("groups", &files);
        let placement = Placement::read_from(&tree.0, &[0, 1, 2, 3, 5, 6]);
        assert_eq!(placement.lanes.iter().map(|lane| lane.cpu).collect::<Vec<_>>(), [0, 2, 1, 3, 5, 6]);
        assert_eq!((placement.usable, placement.quota), (6, None));
    }

    #[test]
    fn a_system_that_tells_nothing_has_one_group_of_all_processors() {
        let tree = Tree::new("nothing", &[]);
        let placement = Placement::read_from(&tree.0, &[1, 3]);
        assert_eq!(placement.lanes.len(), 2);
    }

    #[test]
    fn the_smallest_quota_of_all_enclosing_groups_limits_the_lanes() {
        let tree = Tree::new(
            "version2",
            &[
                ("proc/self/cgroup", "0::/outer/inner\n"),
                ("sys/fs/cgroup/outer/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n"),
            ],
        );
        let placement = Placement::read_from(&tree.0, &[0, 1, 2, 3]);
        assert_eq!((placement.lanes.len(), placement.usable, placement.quota), (2, 4, Some(1500)));
    }

    #[test]
    fn version_1_quotas_count_too_and_there_is_always_one_lane() {
        let tree = Tree::new(
            "version1",
            &[
                ("proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/service\n"),
                ("sys/fs/cgroup/cpu/service/cpu.cfs_quota_us", "20000\n"),
                ("sys/fs/cgroup/cpu/service/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let placement = Placement::read_from(&tree.0, &[0, 1]);
        assert_eq!((placement.lanes.len(), placement.quota), (1, Some(200)));
    }

    #[test]
    fn a_thread_is_kept_to_those_of_some_processors_that_there_are() {
        let usable = || Placement::read().expect("the system tells the mask").usable;
        std::thread::spawn(move || {
            let before = usable();
            keep_to(&(0..100_000).collect::<Vec<_>>()).expect("some of them are there");
            assert!((1..=CpuSet::MAX_CPU).contains(&usable()) && usable() >= before);
            keep_to(&[100_000]).expect_err("there is none of them");
            assert!(usable() >= before, "it runs where it ran");
        })
        .join()
        .expect("kept");
    }

    #[test]
    fn a_thread_is_pinned_where_it_may_run_and_refused_where_it_may_not() {
        let placement = Placement::read().expect("the system tells the mask");
        assert!(!placement.lanes.is_empty() && placement.lanes.len() <= placement.usable);
        let cpu = placement.lanes[0].cpu;
        std::thread::spawn(move || {
            pin_to(cpu).expect("it may run there");
            assert_eq!(
                Placement::read().expect("the mask").lanes.iter().map(|p| p.cpu).collect::<Vec<_>>(),
                [cpu]
            );
        })
        .join()
        .expect("pinned");
        let error = pin_to(100_000).expect_err("no such processor");
        assert!(
            error.to_string().starts_with("the thread cannot be pinned to processor 100000: "),
            "{error}"
        );
    }
}
