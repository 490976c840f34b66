//! Kinds of tasks: the unit of profiling and of the watchdog's reports.

#[cfg(not(loom))]
use crate::profile::Profile;

/// A kind of task: one static for each place that spawns.
///
/// ```
/// use manylane_sched::TaskKind;
/// static SESSION: TaskKind = TaskKind::new("http session");
/// assert_eq!(SESSION.name(), "http session");
/// ```
#[derive(Debug)]
pub struct TaskKind {
    name: &'static str,
    /// Loom models do not check profiles, and loom's atomics cannot be made in a static.
    #[cfg(not(loom))]
    pub(crate) profile: Profile,
}

impl TaskKind {
    /// Creates a kind called `name`: a short, unique name for reports (R-G6).
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(not(loom))]
            profile: Profile::new(),
        }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}
