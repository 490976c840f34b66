//! Requests to the system at the start of the process: limits, users, the background, the pid file.

use manylane_plan::generation::{Generation, Owner, Process};
use manylane_pool::reserve::{ONE_ARENA, PLAIN};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Descriptors besides those of connections and listeners: drivers, logs, files that are open for a moment.
const OTHERS: u64 = 64;

/// Most connections, if neither the configuration nor the command line nor the system sets a limit.
const MOST: u64 = 1 << 20;

/// Makes the process use pages of the usual size. The allocator asks for huge pages, of which each thread and
/// each object size has its own, so they take several times the used memory. If the system does not know this
/// setting, nothing changes.
pub(crate) fn usual_pages() {
    let _ = nix::sys::prctl::set_thp_disable(true);
}

/// Redirects standard input, output and error to `nowhere`, for a process in the background.
pub(crate) fn leave_the_terminal(nowhere: &File) {
    // If the system refuses, a descriptor stays as it is.
    let _ = rustix::stdio::dup2_stdin(nowhere);
    let _ = rustix::stdio::dup2_stdout(nowhere);
    let _ = rustix::stdio::dup2_stderr(nowhere);
}

/// Opens the file for standard input and output of a process in the background. To be called before a
/// `chroot`.
///
/// # Errors
/// An error of the system.
pub(crate) fn nowhere() -> Result<File, String> {
    let opened = File::options().read(true).write(true).open("/dev/null");
    opened.map_err(|error| format!("cannot open /dev/null: {error}"))
}

/// The file for the number of the process. It is opened with the rights of the start, and holds the number of
/// the process before until this one serves. If it never does, a file that it has created is removed.
#[derive(Debug)]
pub(crate) struct PidFile {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl PidFile {
    /// Opens the file.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let new = File::options().write(true).create_new(true).open(path);
        let is_new = new.is_ok();
        let opened = new.or_else(|_| File::options().write(true).create(true).truncate(false).open(path));
        let file = opened.map_err(|error| format!("Cannot create pidfile {}: {error}", path.display()))?;
        Ok(Self { file, path: path.to_owned(), is_new })
    }

    /// Writes the number of this process.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn write(mut self) -> Result<(), String> {
        self.is_new = false;
        let failed = |error| format!("Cannot write the pidfile {}: {error}", self.path.display());
        let is_file = self.file.metadata().map_err(failed)?.is_file(); // and not /dev/null
        if is_file {
            self.file.set_len(0).map_err(failed)?;
        }
        self.file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_own = || {
            let (own, there) = (self.file.metadata().ok()?, std::fs::metadata(&self.path).ok()?);
            // Not in a `chroot`, where the path may name another file, and not if another process has started
            // meanwhile and written its number.
            Some((own.dev(), own.ino()) == (there.dev(), there.ino()) && there.len() == 0)
        };
        if self.is_new && is_own() == Some(true) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Keeps programs that the process starts from inheriting its descriptors: the listeners of `fd@`, and what
/// its own starter has left open. Without `/proc` they inherit those. To be called before a `chroot`.
pub(crate) fn keep_descriptors_from_children() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    for number in open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()) {
        if number > 2 {
            let _ = manylane_io::socket::keep_from_children(number); // it is open
        }
    }
}

/// Returns the number of descriptors that the process may open.
pub(crate) fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}

/// The limit of descriptors at some moment. Dropping it sets the limit back, unless the later one is
/// [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct LimitBefore(Option<(u64, u64)>);

impl LimitBefore {
    pub(crate) fn now() -> Self {
        Self(getrlimit(Resource::RLIMIT_NOFILE).ok())
    }

    /// Keeps the limit that was set since.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for LimitBefore {
    fn drop(&mut self) {
        if let Some((soft, hard)) = self.0 {
            // A process that may not raise the hard limit has not raised it since, so this is permitted.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        }
    }
}

/// Raises the limit of descriptors to what `maxconn` needs. If `maxconn` is not set, derives it from the
/// limit. Returns `maxconn`.
///
/// # Errors
/// A sentence, if the limit cannot be raised and `strict-limits` is on.
pub(crate) fn limits(generation: &Generation, lanes: usize, maxconn: Option<u32>) -> Result<u64, String> {
    let process = &generation.process;
    let listeners: usize = generation.frontends.iter().map(|frontend| frontend.listeners.len()).sum();
    let fixed = OTHERS + (listeners as u64 + 8) * (lanes as u64 + 1);
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| format!("cannot read the limits: {error}"))?;
    let most = process.most_descriptors.map_or(hard, |most| hard.min(most.into()));
    let wanted = match (process.descriptors, maxconn.or(process.maxconn)) {
        (Some(descriptors), _) => u64::from(descriptors),
        (None, Some(maxconn)) => 2 * u64::from(maxconn) + fixed,
        (None, None) => most,
    };
    if wanted > soft || process.descriptors.is_some() {
        let outcome = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted));
        let outcome = outcome.or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard));
        let now = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
        if now < wanted || outcome.is_err() {
            let message = format!("Cannot raise FD limit to {wanted}, limit is {now}.");
            if process.strict_limits {
                return Err(message);
            }
            crate::say::warning(format_args!("[manylane.main()] {message}"));
        }
    }
    let now = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
    Ok(match maxconn.or(process.maxconn) {
        Some(maxconn) => maxconn.into(),
        None => (now.saturating_sub(fixed) / 2).clamp(1, MOST),
    })
}

/// Sets the nice value of the calling thread, which the threads that it starts inherit:
/// `tune.renice.startup`, `tune.renice.runtime`.
pub(crate) fn renice(which: &str, nice: Option<i32>) {
    if let Some(nice) = nice
        && let Err(error) = rustix::process::setpriority_process(None, nice)
    {
        crate::say::warning(format_args!(
            "[manylane.main()] couldn't set the {which} nice value to {nice}: {error}."
        ));
    }
}

/// Keeps the process and everything it starts from gaining rights: no program can give them those of another
/// user.
pub(crate) fn no_new_rights() {
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        crate::say::warning(format_args!(
            "[manylane.main()] cannot set PR_SET_NO_NEW_PRIVS; set-user-ID programs may add \
                privileges: {error}."
        ));
    }
}

/// `set-dumpable`: lets the process write a core file of any size although it changed its user.
pub(crate) fn dumpable() {
    let raised = setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY);
    let raised = raised.or_else(|_| {
        getrlimit(Resource::RLIMIT_CORE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, hard, hard))
    });
    for outcome in [raised, nix::sys::prctl::set_dumpable(true)] {
        if let Err(error) = outcome {
            crate::say::warning(format_args!(
                "[manylane.main()] Failed to set 'set-dumpable', core dumping will not work: {error}."
            ));
        }
    }
}

/// File that says which allocations the system refuses: with 2, those beyond its memory.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// Returns whether the system refuses memory beyond a limit other than `-m`. The limit of a group of
/// processes (cgroup) does not count: the system ends one of them instead of refusing memory.
fn may_be_refused() -> bool {
    let is_limited = |which| getrlimit(which).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    is_limited(Resource::RLIMIT_DATA)
        || is_limited(Resource::RLIMIT_AS)
        || std::fs::read(OVERCOMMIT).is_ok_and(|text| text.trim_ascii() == b"2")
}

/// Starts the program again with the system's allocator, which is chosen before `main`, if `bounded` says
/// that memory is bounded by `-m`, or if the system bounds it. Where it cannot start again, a process without
/// `-m` goes on as it is.
///
/// # Errors
/// A sentence, if it cannot start again although it must.
pub(crate) fn choose_allocator(bounded: bool) -> Result<(), String> {
    if manylane_pool::reserve::is_plain() {
        let _ = nix::sys::prctl::set_name(c"manylane"); // the system calls it "exe", by its file
        return Ok(());
    }
    if !bounded && !may_be_refused() {
        return Ok(());
    }
    let message =
        format!("[manylane.main()] Cannot execute the program again for bounded memory: {}.", again());
    if bounded {
        return Err(message);
    }
    crate::say::warning(format_args!("{message} Clients may end the process when memory is short."));
    Ok(())
}

/// Executes the program again, with the system's allocator. Returns why it cannot. `exec` of the library may
/// then leave the process with other signals than before.
fn again() -> nix::Error {
    let line = |name: &OsStr, value: &OsStr| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok() // none has a zero
    };
    let words: Vec<_> = std::env::args_os().filter_map(|word| CString::new(word.into_vec()).ok()).collect();
    let mut variables: Vec<_> = std::env::vars_os().filter_map(|(name, value)| line(&name, &value)).collect();
    variables.extend(line(OsStr::from_bytes(PLAIN.to_bytes()), OsStr::new("1")));
    if std::env::var_os(ONE_ARENA.0).is_none() {
        variables.extend(line(OsStr::new(ONE_ARENA.0), OsStr::new(ONE_ARENA.1)));
    }
    match nix::unistd::execve(c"/proc/self/exe", &words, &variables) {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Megabytes that a process with bounded memory reserves for allocations that must not fail: tables of lanes
/// double with their connections.
const KEPT: usize = 8;

/// Megabytes that the program needs to begin: for itself and the reserve, and for each lane with its stack
/// and its first pools.
const TAKEN: (u64, u64) = (64, 16);

/// `-m`: limits the memory that the process may write to.
///
/// # Errors
/// A sentence, if the program cannot begin with that limit.
pub(crate) fn memory(megabytes: u64, lanes: usize) -> Result<(), String> {
    let least = TAKEN.0 + TAKEN.1 * lanes as u64;
    if megabytes < least {
        return Err(format!(
            "-m expects at least {least} megabytes for {lanes} lanes, found {megabytes}; a lower 'nbthread' \
                needs less"
        ));
    }
    let bytes = megabytes << 20;
    setrlimit(Resource::RLIMIT_DATA, bytes, bytes)
        .map_err(|error| format!("cannot bound the memory to {megabytes} MB: {error}"))
}

/// Keeps memory for what must not fail, if memory is bounded.
///
/// # Errors
/// A sentence, if it is not there.
pub(crate) fn keep_memory() -> Result<(), String> {
    if !manylane_pool::reserve::is_plain() || manylane_pool::reserve::keep(KEPT << 20) {
        return Ok(());
    }
    Err(format!(
        "the limit of memory (-m, RLIMIT_DATA, RLIMIT_AS) is too low: {KEPT} MB, which are kept for what \
            must not fail, are not there"
    ))
}

/// Returns the number of a user or of a group.
pub(crate) fn owner(group: bool, name: &str) -> Result<u32, String> {
    let found = if group {
        Group::from_name(name).map(|found| found.map(|group| group.gid.as_raw()))
    } else {
        User::from_name(name).map(|found| found.map(|user| user.uid.as_raw()))
    };
    let kind = if group { "group" } else { "user" };
    match found {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!("'{kind}' expects a {kind} of this system, found '{name}'")),
        Err(error) => Err(format!("cannot look up {kind} '{name}': {error}")),
    }
}

fn number(group: bool, owner: &Option<Owner>) -> Result<Option<u32>, String> {
    match owner {
        None => Ok(None),
        Some(Owner::Number(number)) => Ok(Some(*number)),
        Some(Owner::Name(name)) => self::owner(group, name).map(Some),
    }
}

/// Identity that the process changes to. It is looked up before a `chroot` hides the system's files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    user: Option<u32>,
    group: Option<u32>,
}

impl Identity {
    /// Looks up the user and the group of the configuration.
    pub(crate) fn new(process: &Process) -> Result<Self, String> {
        Ok(Self { user: number(false, &process.user)?, group: number(true, &process.group)? })
    }

    /// Returns the user and the group, where the configuration names them.
    pub(crate) fn owner(self) -> (Option<u32>, Option<u32>) {
        (self.user, self.group)
    }

    /// Returns true if [`assume`](Self::assume) leaves the process with fewer rights, or without its files.
    pub(crate) fn gives_rights_up(self, chroot: bool) -> bool {
        chroot || self.user.is_some() || self.group.is_some()
    }

    /// Changes to the root folder, then to the group and the user.
    pub(crate) fn assume(self, chroot: Option<&Path>) -> Result<(), String> {
        if let Some(folder) = chroot {
            nix::unistd::chroot(folder)
                .and_then(|()| nix::unistd::chdir("/"))
                .map_err(|error| format!("Cannot chroot({}): {error}.", folder.display()))?;
        }
        if self.user.is_some() || self.group.is_some() {
            // Drops the rights that the starter had by further groups. A process without rights cannot drop
            // any, which is fine.
            let _ = nix::unistd::setgroups(&[]);
        }
        if let Some(group) = self.group {
            nix::unistd::setgid(Gid::from_raw(group))
                .map_err(|error| format!("Cannot set gid {group}: {error}."))?;
        }
        if let Some(user) = self.user {
            nix::unistd::setuid(Uid::from_raw(user))
                .map_err(|error| format!("Cannot set uid {user}: {error}."))?;
        }
        Ok(())
    }
}
