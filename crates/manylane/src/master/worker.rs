//! A worker, from both sides.

use crate::arguments::Arguments;
use crate::last_words::SLOWEST;
use crate::say;
use manylane_io::passing::send_descriptor;
use manylane_io::socket::{self, Shape};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait until a worker has received a connection from its socket.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of the line in a worker's report: the worker has given up rights that the master still has, so
/// the master trusts no length. The kept messages follow the line.
const MAX_REPORT_LINE: u64 = 256;

/// Time that a worker has for its end behind its soft stop: what it writes last takes at most [`SLOWEST`].
const LAST_WORDS: Duration = SLOWEST.saturating_add(Duration::from_secs(1));

/// Report of a worker once all of its lanes accept, or never will.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerReport {
    pub(crate) accepts: bool,
    /// `mworker-max-reloads` of its configuration.
    pub(crate) most_reloads: Option<u32>,
    /// Longest time of its soft stop: `grace` and `hard-stop-after` of its configuration.
    pub(crate) longest_stop: Option<Duration>,
    /// Version of the worker.
    pub(crate) version: String,
    /// Messages that the worker wrote to standard error.
    pub(crate) said: String,
}

impl WorkerReport {
    /// Receives the report of the worker at the other end of `passage`. A worker that ends without a report
    /// does not accept.
    fn hear(passage: UnixStream) -> Self {
        let mut passage = BufReader::new(passage);
        let mut line = String::new();
        let head = (&mut passage).take(MAX_REPORT_LINE).read_line(&mut line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Ok(1..), [word, most, stop, version, length]) = (head, &words[..]) else {
            return Self::default();
        };
        let length = length.parse().unwrap_or(0).min(say::MOST_KEPT as u64);
        let mut said = Vec::new();
        let _ = passage.take(length).read_to_end(&mut said); // as much as there is
        // Terminals show both, so control characters are removed.
        let mut said = String::from_utf8_lossy(&said).into_owned();
        said.retain(|letter| letter == '\n' || !letter.is_control());
        let mut version = (*version).to_owned();
        version.retain(|letter| !letter.is_control());
        let longest_stop = stop.parse().ok().map(Duration::from_millis);
        Self { accepts: *word == "ready", most_reloads: most.parse().ok(), longest_stop, version, said }
    }
}

/// A worker, from the master's side.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) child: Child,
    /// Socket over which the master passes connections.
    passage: UnixStream,
    pub(crate) began: Instant,
    /// Number of reloads since the worker began.
    pub(crate) reloads: u32,
    pub(crate) report: WorkerReport,
    /// When the worker is killed, because it should have ended by itself before.
    pub(crate) overdue: Option<Instant>,
}

/// Makes the next started process inherit the descriptor.
fn inherit(descriptor: &OwnedFd) -> io::Result<()> {
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from)?;
    Ok(())
}

impl Worker {
    /// Starts a worker, which takes over from `before` if given. The `first` worker of all also does what the
    /// command line says about other processes. Calls `report` on another thread with the worker's process
    /// number, once it accepts or never will.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn start(
        program: &Path,
        arguments: &Arguments,
        before: Option<&Self>,
        first: bool,
        environment: &[(&'static str, OsString)],
        report: impl FnOnce(u32, WorkerReport) + Send + 'static,
    ) -> io::Result<Self> {
        let (ours, theirs) = socket::pair(Shape::Stream)?;
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("HAPROXY_MWORKER", "1").env_remove("NOTIFY_SOCKET");
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        inherit(&theirs)?;
        command.arg("--worker").arg(theirs.as_raw_fd().to_string()).arg(std::process::id().to_string());
        command.args(arguments.of_worker(first));
        let handed = before.map(|before| before.passage.as_fd().try_clone_to_owned()).transpose()?;
        if let Some(handed) = &handed {
            inherit(handed)?;
            command.arg("-x").arg(format!("sockpair@{}", handed.as_raw_fd()));
        }
        let passage = UnixStream::from(ours);
        passage.set_nonblocking(false)?;
        passage.set_write_timeout(Some(TIMEOUT))?;
        let listener = passage.try_clone()?;
        let mut child = command.spawn()?;
        let pid = child.id();
        let listening = std::thread::Builder::new().name("worker".into()).spawn(move || {
            report(pid, WorkerReport::hear(listener));
        });
        if let Err(error) = listening {
            // Without a thread that receives its report, the worker would serve beside the others unnoticed.
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        let (began, report) = (Instant::now(), WorkerReport::default());
        Ok(Self { child, passage, began, reloads: 0, report, overdue: None })
    }

    /// Returns the process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the worker a signal. The worker may have ended already.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid().cast_signed()), signal);
    }

    /// Tells the worker to end, with a time after which it is killed if it hangs: then it would keep its
    /// share of the new connections.
    pub(crate) fn end(&mut self, signal: Signal, longest: Option<Duration>) {
        self.signal(signal);
        let overdue = longest.and_then(|longest| Instant::now().checked_add(longest + LAST_WORDS));
        self.overdue = overdue.into_iter().chain(self.overdue).min();
    }

    /// Returns a duplicate of the socket over which connections are passed to the worker.
    pub(crate) fn passage(&self) -> io::Result<UnixStream> {
        self.passage.try_clone()
    }
}

/// Returns a connection to the run-time interface of the worker at the other end of `passage`.
///
/// # Errors
/// An error of the system; the worker may have ended.
pub(crate) fn connect(passage: &UnixStream) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    send_descriptor(passage.as_fd(), theirs.as_fd())?;
    Ok(ours)
}

/// Socket between a worker and its master, as in the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Descriptor of the worker's end of the socket.
    pub(crate) passage: i32,
    /// Process number of the master.
    pub(crate) master: u32,
}

impl Joined {
    /// Returns the address of the run-time socket that the master uses.
    pub(crate) fn socket(self) -> String {
        format!("sockpair@{} level admin expose-fd listeners", self.passage)
    }

    /// Makes the worker end with its master from now on. To be called on the main thread after the change of
    /// the user.
    ///
    /// # Errors
    /// The master has ended already, or the system refuses.
    pub(crate) fn end_with_master(self) -> Result<(), String> {
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)
            .map_err(|error| format!("cannot watch the master: {error}"))?;
        if std::os::unix::process::parent_id() == self.master {
            return Ok(());
        }
        Err("the master has ended".to_owned())
    }

    /// Keeps programs that this process starts from inheriting the passage, which gives all rights on this
    /// process.
    pub(crate) fn keep(self) {
        let _ = socket::keep_from_children(self.passage); // without a passage the worker ends anyway
    }

    /// Reports whether all lanes accept or never will, with the messages so far.
    pub(crate) fn tell(self, accepts: bool, most_reloads: Option<u32>, longest_stop: Option<Duration>) {
        let (word, said) = (if accepts { "ready" } else { "failed" }, say::kept());
        let most = most_reloads.map_or("-".to_owned(), |most| most.to_string());
        let stop = longest_stop.map_or("-".to_owned(), |longest| longest.as_millis().to_string());
        let text = format!("{word} {most} {stop} {} {}\n{said}", env!("CARGO_PKG_VERSION"), said.len());
        // Without a master the worker ends anyway. The socket has room for the whole report: nothing was
        // written before.
        let inherited = socket::inherited(self.passage).map_err(io::Error::from);
        let _ = inherited.and_then(|socket| UnixStream::from(socket).write_all(text.as_bytes()));
    }
}

impl Arguments {
    /// Returns the command line of a worker. Only the first worker gets the options about other processes.
    pub(crate) fn of_worker(&self, first: bool) -> Vec<OsString> {
        let Self {
            files,
            folder: _, // the master has changed there already
            check: _,
            condition: _,
            daemon,
            foreground,
            verbose,
            quiet,
            version: _,
            build: _,
            help: _,
            pidfile: _,
            maxconn,
            megabytes,
            local_peer,
            warnings_are_errors,
            diagnose,
            ignore_unresolved,
            no_splice,
            no_reuse_port,
            no_epoll,
            predecessor,
            finish,
            terminate,
            master: _,
            master_sockets: _,
            background: _,
            worker: _,
        } = self;
        let mut words: Vec<OsString> = Vec::new();
        for (is_set, word) in [
            (*daemon, "-D"),
            (*foreground, "-db"),
            (*verbose, "-V"),
            (*quiet, "-q"),
            (*warnings_are_errors, "-dW"),
            (*diagnose, "-dD"),
            (*ignore_unresolved, "-dr"),
            (*no_splice, "-dS"),
            (*no_reuse_port, "-dR"),
            (*no_epoll, "-de"),
        ] {
            words.extend(is_set.then(|| word.into()));
        }
        let mut give = |word: &str, value: OsString| words.extend([word.into(), value]);
        files.iter().for_each(|file| give("-f", file.into()));
        maxconn.iter().for_each(|most| give("-n", most.to_string().into()));
        megabytes.iter().for_each(|most| give("-m", most.to_string().into()));
        local_peer.iter().for_each(|name| give("-L", name.clone()));
        if first {
            predecessor.iter().for_each(|at| give("-x", at.clone()));
            finish.iter().for_each(|pid| give("-sf", pid.to_string().into()));
            terminate.iter().for_each(|pid| give("-st", pid.to_string().into()));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_what_concerns_it() {
        let read = |text: &str| Arguments::read(text.split(' ').map(OsString::from)).unwrap();
        let all = "-Ws -S /m -f a -f b -C / -db -V -q -p pid -n 5 -m 6 -L me -dW -dD -dr -dS -dR -de -x s \
            -sf 1 2 -st 3";
        let first = read(all).of_worker(true).join(" ".as_ref()).into_string().unwrap();
        assert_eq!(
            first,
            "-db -V -q -dW -dD -dr -dS -dR -de -f a -f b -n 5 -m 6 -L me -x s -sf 1 -sf 2 -st 3"
        );
        let later = read(all).of_worker(false).join(" ".as_ref()).into_string().unwrap();
        assert_eq!(later, "-db -V -q -dW -dD -dr -dS -dR -de -f a -f b -n 5 -m 6 -L me");
    }
}
