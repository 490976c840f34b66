//! A worker, from both sides.

use super::Event;
use crate::arguments::Arguments;
use crate::channel::Sender;
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

/// Seconds that a worker has for its end behind its soft stop: what it writes last takes at most [`SLOWEST`].
const LAST_SECONDS: u64 = SLOWEST.as_secs() + 1;

/// Report of a worker once all of its lanes accept, or never will.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerReport {
    pub(crate) accepts: bool,
    /// `mworker-max-reloads` of its configuration.
    pub(crate) most_reloads: Option<u32>,
    /// Longest time of its soft stop by the configuration of its start.
    pub(crate) longest_stop: Option<Duration>,
    /// Version of the worker.
    pub(crate) version: String,
    /// Messages that the worker wrote to standard error.
    pub(crate) said: String,
}

impl WorkerReport {
    /// Receives the report of the worker at the other end of `passage`. A worker that ends without a report
    /// does not accept.
    fn hear(passage: &mut impl BufRead) -> Self {
        let line = heard_line(passage);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [word, most, stop, version, length] = words[..] else { return Self::default() };
        let length = length.parse().unwrap_or(0).min(say::MOST_KEPT as u64);
        let mut said = Vec::new();
        let _ = passage.take(length).read_to_end(&mut said); // as much as there is
        // Terminals show both, so control characters are removed.
        let mut said = String::from_utf8_lossy(&said).into_owned();
        said.retain(|letter| letter == '\n' || !letter.is_control());
        let mut version = version.to_owned();
        version.retain(|letter| !letter.is_control());
        let longest_stop = stop.parse().ok().map(Duration::from_millis);
        Self { accepts: word == "ready", most_reloads: most.parse().ok(), longest_stop, version, said }
    }
}

/// Receives a line of a worker; empty if there is none.
fn heard_line(passage: &mut impl BufRead) -> String {
    let mut line = String::new();
    let _ = passage.take(MAX_REPORT_LINE).read_line(&mut line); // after an error it is empty or cut
    line
}

/// Receives the longest time of a soft stop that begins, by the configuration that the worker serves by then;
/// `Some(None)` without a limit. Returns `None` when the worker has ended without one.
fn heard_stop(passage: &mut impl BufRead) -> Option<Option<Duration>> {
    let line = heard_line(passage);
    Some(line.strip_prefix("stops ")?.trim_end().parse().ok().map(Duration::from_millis))
}

/// Formats the longest time of a soft stop.
fn milliseconds(longest: Option<Duration>) -> String {
    longest.map_or("-".to_owned(), |longest| longest.as_millis().to_string())
}

/// Time that a worker has to end by itself.
#[derive(Debug, Default)]
struct TimeLeft {
    /// End of its soft stop, or of the running second behind that.
    until: Option<Instant>,
    /// Seconds that follow. They are counted one by one: when master and workers have stood still together,
    /// a worker loses no more than one.
    seconds: u64,
    /// The worker was told to end at once.
    at_once: bool,
}

impl TimeLeft {
    /// Begins a soft stop.
    fn stops(&mut self, now: Instant, longest: Option<Duration>) {
        if !self.at_once {
            (self.until, self.seconds) = (longest.and_then(|longest| now.checked_add(longest)), LAST_SECONDS);
        }
    }

    /// Begins the end at once.
    fn ends(&mut self, now: Instant) {
        self.stops(now, Some(Duration::ZERO));
        self.at_once = true;
    }

    /// Returns whether it is over. To be called when [`TimeLeft::until`] has come.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.until.take_if(|until| *until <= now).is_none() {
            return false;
        }
        let Some(seconds) = self.seconds.checked_sub(1) else { return true };
        (self.until, self.seconds) = (now.checked_add(Duration::from_secs(1)), seconds);
        false
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
    left: TimeLeft,
}

/// Makes the next started process inherit the descriptor.
fn inherit(descriptor: &OwnedFd) -> io::Result<()> {
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from)?;
    Ok(())
}

impl Worker {
    /// Starts a worker, which takes over from `before` if given. The `first` worker of all also does what the
    /// command line says about other processes. `events` get its reports: once it accepts or never will, and
    /// when its soft stop begins.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn start(
        program: &Path,
        arguments: &Arguments,
        before: Option<&Self>,
        first: bool,
        environment: &[(&'static str, OsString)],
        events: Sender<Event>,
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
            let mut passage = BufReader::new(listener);
            // The receiver is gone if the master has ended.
            let _ = events.send(Event::WorkerReport(pid, WorkerReport::hear(&mut passage)));
            if let Some(longest) = heard_stop(&mut passage) {
                let _ = events.send(Event::WorkerStops(pid, longest));
            }
        });
        if let Err(error) = listening {
            // Without a thread that receives its report, the worker would serve beside the others unnoticed.
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        let (began, report) = (Instant::now(), WorkerReport::default());
        Ok(Self { child, passage, began, reloads: 0, report, left: TimeLeft::default() })
    }

    /// Returns the process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the worker a signal. The worker may have ended already.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid().cast_signed()), signal);
    }

    /// Tells the worker to finish. If it hangs, it is killed after the longest time of its soft stop:
    /// otherwise it would keep its share of the new connections.
    pub(crate) fn finish(&mut self) {
        self.signal(Signal::SIGUSR1);
        self.stops(self.report.longest_stop);
    }

    /// Begins to count the time of its soft stop, which takes at most `longest`; `None` without a limit.
    pub(crate) fn stops(&mut self, longest: Option<Duration>) {
        self.left.stops(Instant::now(), longest);
    }

    /// Tells the worker to end at once.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.left.ends(Instant::now());
    }

    /// Returns the time of the next call of [`Worker::take_overdue`]; `None` without a limit.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.left.until
    }

    /// Returns true, once, when the time that the worker has to end by itself is over.
    pub(crate) fn take_overdue(&mut self) -> bool {
        self.left.is_over(Instant::now())
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
        let (stop, version) = (milliseconds(longest_stop), env!("CARGO_PKG_VERSION"));
        self.write(&format!("{word} {most} {stop} {version} {}\n{said}", said.len()));
    }

    /// Reports that a soft stop begins, and its longest time.
    pub(crate) fn tell_stop(self, longest: Option<Duration>) {
        self.write(&format!("stops {}\n", milliseconds(longest)));
    }

    fn write(self, text: &str) {
        // Without a master the worker ends anyway. The socket has room for both reports.
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
    fn a_worker_reports_its_start_and_later_its_stop() {
        let passage = |end: &str| format!("ready - 10 1.2.3 5\nwords{end}");
        for (end, expected) in [
            ("stops 3600000\n", Some(Some(Duration::from_secs(3600)))),
            ("stops -\n", Some(None)),
            ("", None),
        ] {
            let text = passage(end);
            let mut passage = text.as_bytes();
            let report = WorkerReport::hear(&mut passage);
            assert_eq!((report.accepts, &*report.said), (true, "words"));
            assert_eq!(report.longest_stop, Some(Duration::from_millis(10)));
            assert_eq!(heard_stop(&mut passage), expected, "{end}");
        }
    }

    /// Returns how many seconds before its end, counted one by one, a worker is killed.
    fn seconds(left: &mut TimeLeft) -> u64 {
        (0..).find(|_| left.is_over(left.until.expect("it is not over"))).unwrap()
    }

    #[test]
    fn a_worker_has_11_seconds_behind_the_stop_that_it_reported_last() {
        let (mut left, now, hour) = (TimeLeft::default(), Instant::now(), Duration::from_secs(3600));
        assert!(!left.is_over(now));
        left.stops(now, Some(Duration::from_millis(10)));
        assert!(!left.is_over(now) && !left.is_over(now + Duration::from_secs(1)));
        // Its file was changed since it began.
        left.stops(now, Some(hour));
        assert_eq!(left.until, Some(now + hour));
        assert_eq!(seconds(&mut left), 11);
        assert!(!left.is_over(now + hour * 2), "once");
        left.stops(now, None);
        assert_eq!(left.until, None);
        left.ends(now);
        left.stops(now, Some(hour));
        assert_eq!(left.until, Some(now));
        left.is_over(now);
        left.ends(now + Duration::from_millis(1)); // the next reload
        assert_eq!(seconds(&mut left), 10);
    }

    /// Behind a pause of the machine the worker has its seconds all the same.
    #[test]
    fn time_in_which_the_master_stood_still_does_not_count() {
        let (mut left, now) = (TimeLeft::default(), Instant::now());
        left.stops(now, Some(Duration::from_millis(10)));
        let hour = Duration::from_secs(3600);
        let looks = (1..).take_while(|hours| !left.is_over(now + hour * *hours)).count();
        assert_eq!(looks, 11);
    }

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
