//! Processor time that the control groups of this process allow.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the smallest quota of the process's groups and their ancestors, in thousandths of a processor.
pub(super) fn read(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| quota_of_line(root, line)).min()
}

/// A line is `number:controllers:path`; version 2 has the number 0 and no controllers.
fn quota_of_line(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let mounted = root.join("sys/fs/cgroup");
    if controllers.is_empty() {
        return smallest(&mounted, group, version2);
    }
    let name = controllers.split(',').find(|name| *name == "cpu")?;
    // The mount point has the name of one or of all controllers of the line.
    [name, controllers].iter().find_map(|folder| smallest(&mounted.join(folder), group, version1))
}

/// Returns the smallest quota from the group's folder up to the mount. In a container the path may begin
/// above the mount: then only the mount itself exists.
fn smallest(mounted: &Path, group: &str, quota: fn(&Path) -> Option<u64>) -> Option<u64> {
    let mut folder: PathBuf = mounted.join(group.trim_start_matches('/'));
    let mut least = None;
    loop {
        if let Some(found) = quota(&folder) {
            least = Some(least.map_or(found, |least: u64| least.min(found)));
        }
        if folder == mounted || !folder.pop() {
            return least;
        }
    }
}

/// `cpu.max` is `quota period` in microseconds; the quota may be `max`.
fn version2(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    thousandths(quota.parse().ok()?, period.parse().ok()?)
}

/// Two files; the quota is negative if there is none.
fn version1(folder: &Path) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<i64>().ok();
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    thousandths(u64::try_from(quota).ok()?, u64::try_from(period).ok()?)
}

fn thousandths(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}
