//! The master CLI (`-S`): commands for the master, and those with `@1` or `@!PID` for a worker.

use super::bridge;
use super::worker::connect;
use super::{Event, Outcome};
use crate::channel::{Receiver, Sender, channel};
use crate::{environment, system, version};
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_control::Level::{self, Admin, Operator, User};
use manylane_control::{Mode, PromptMode, PromptUsage, Row, row};
use manylane_net::{Bound, Endpoint, HandedOver, PendingChanges};
use manylane_plan::Generation;
use manylane_plan::generation::{RuntimeSocket, StartOptions};
use manylane_sync::Arc;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Most concurrent clients of one socket; others wait.
const MOST_CLIENTS: usize = 10;

/// Most bytes of a line.
const LONGEST_LINE: u64 = manylane_control::LONGEST_LINE as u64;

/// Time before a client that has sent a part of a line is read again. One that sends byte by byte would
/// otherwise wake its thread for each.
const PAUSE: Duration = Duration::from_millis(2);

/// Most bytes of a payload.
const LONGEST_PAYLOAD: usize = manylane_control::LONGEST_PAYLOAD;

/// Target of a command: a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `@1`
    Current,
    /// `@!PID`
    Pid(u32),
}

/// A client's question to the master, with the sender for the answer.
pub(super) enum Question {
    /// `reload`: whether the new worker serves, and the messages of the reload.
    Reload(Sender<Outcome>),
    /// `show startup-logs`: the messages of the last reload, or of the start.
    Said(Sender<String>),
    /// `show proc`
    Processes(Sender<String>),
    /// Whether the last reload failed.
    Failed(Sender<bool>),
    /// When the worker with this process number started, or the master.
    Began(Option<u32>, Sender<Option<Instant>>),
    /// The process number of a worker, and the socket to reach it.
    Worker(Target, Sender<Option<(u32, UnixStream)>>),
}

/// Sockets of the master CLI with their levels.
pub(super) type Sockets = Vec<(Bound, &'static str)>;

/// Returns the run-time sockets of lines in the form of `stats socket`.
///
/// # Errors
/// The faults in the lines.
pub(crate) fn run_time_sockets(lines: &[String]) -> Result<Arc<[RuntimeSocket]>, String> {
    let text: String = lines.iter().map(|line| format!(" stats socket {line}\n")).collect();
    let mut sources = Sources::new();
    sources.add("-S", format!("global\n{text}")).map_err(|error| error.to_string())?;
    let mut loaded = load(&sources, &version::BUILD, environment::before(&sources, None), false);
    let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    if loaded.found.errors() > 0 {
        return Err(loaded.found.render(&sources, std::process::id()));
    }
    Ok(generation.process.stats_sockets.clone())
}

/// Binds the sockets of `-S`: an address, and comma-separated options of `bind`. The changes that others see
/// are to be completed once a worker serves.
///
/// # Errors
/// The reason why a socket cannot be bound.
pub(super) fn bind(words: &[OsString]) -> Result<(Sockets, PendingChanges), String> {
    let (mut all, mut none) = (Vec::new(), HandedOver::default());
    let failed = |error: &dyn Display| format!("Binding for the master CLI: {error}");
    for word in words {
        let text = word.to_string_lossy();
        let has_level = text.split(',').any(|word| word == "level");
        let level = if has_level { "" } else { " level admin" };
        let sockets = run_time_sockets(&[text.replace(',', " ") + level])?;
        for socket in sockets.iter() {
            if socket.listener.tls.is_some() {
                let why = "the master speaks no TLS: leave 'ssl' out, or use a 'stats socket' with 'ssl'";
                return Err(failed(&format!("'-S {text}' : {why}")));
            }
            let bound = manylane_lanes::bind_listener(&socket.listener, 1, &system::owner, &mut none);
            let bound = bound.map_err(|error| failed(&error))?;
            all.extend(bound.into_iter().map(|bound| (bound, socket.rights.level)));
        }
    }
    Ok((all, none.begin(false).map_err(|error| failed(&error))?))
}

/// Returns the addresses of the sockets in the form of `HAPROXY_MASTER_CLI`.
pub(super) fn listens(sockets: &Sockets) -> String {
    let shown = |(bound, _): &(Bound, _)| match bound.endpoint() {
        Endpoint::Ip(address @ SocketAddr::V4(_)) => format!("ipv4@{address}"),
        Endpoint::Ip(address @ SocketAddr::V6(_)) => format!("ipv6@{address}"),
        Endpoint::Unix(path) => format!("unix@{}", path.display()),
        other => other.to_string(),
    };
    sockets.iter().map(shown).collect::<Vec<_>>().join(";")
}

/// Starts threads that serve clients. The caller has to keep the result as long as clients are to be served.
///
/// # Errors
/// The system has no descriptor or no thread.
pub(super) fn serve(sockets: Sockets, events: &Sender<Event>) -> Result<Vec<Bound>, String> {
    let rows: String =
        sockets.iter().map(|(bound, level)| format!("{} {level} all\n", bound.endpoint())).collect();
    let rows = manylane_sync::Arc::new(format!("# socket lvl processes\n{rows}"));
    let mut kept = Vec::new();
    for (bound, level) in sockets {
        let failed = |error: &dyn Display| format!("cannot serve the master CLI: {error}");
        let socket = bound.duplicate().map_err(|error| failed(&error))?;
        let is_ip = matches!(bound.endpoint(), Endpoint::Ip(_));
        let (events, level) = (events.clone(), Level::named(level).unwrap_or(User));
        let rows = rows.clone();
        let serving = move || accept(socket, is_ip, level, &events, &rows);
        std::thread::Builder::new()
            .name("master CLI".into())
            .spawn(serving)
            .map_err(|error| failed(&error))?;
        kept.push(bound);
    }
    Ok(kept)
}

/// Accepts clients until the process ends.
fn accept(socket: OwnedFd, is_ip: bool, level: Level, events: &Sender<Event>, rows: &Arc<String>) {
    let accept: Box<dyn Fn() -> io::Result<OwnedFd>> = if is_ip {
        let listener = TcpListener::from(socket);
        let _ = listener.set_nonblocking(false);
        Box::new(move || Ok(listener.accept()?.0.into()))
    } else {
        let listener = UnixListener::from(socket);
        let _ = listener.set_nonblocking(false);
        Box::new(move || Ok(listener.accept()?.0.into()))
    };
    let (leave, left) = channel();
    let mut clients = 0;
    loop {
        if clients == MOST_CLIENTS && left.recv().is_ok() {
            clients -= 1;
        }
        clients -= left.drain();
        let Ok(client) = accept() else {
            // The process has no descriptors; another client may close some.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let (events, leave, rows) = (events.clone(), leave.clone(), rows.clone());
        let serving = move || {
            // The client may have left.
            let _ = Client::new(client, level, events, rows).and_then(|mut client| client.serve());
            let _ = leave.send(());
        };
        clients += usize::from(std::thread::Builder::new().name("master CLI".into()).spawn(serving).is_ok());
    }
}

const PROMPT_HELP: &str = "\
'prompt [help | i | p | timed]*' changes whether the master asks for lines; the last mode counts.
  i      it does not
  p      a prompt asks for each line
  timed  the prompt has the time since the start of the process that it names, or no longer
Without a word, 'prompt' changes between 'p' and 'i'.

";

/// Whether the client continues.
type Goes = io::Result<bool>;

/// A client of the master CLI. It reads and writes sockets as files, whatever their kind.
struct Client {
    input: BufReader<File>,
    output: File,
    events: Sender<Event>,
    level: Level,
    /// Worker for later commands; `None` for the master.
    target: Option<(u32, Target)>,
    /// `prompt`. Each client is interactive.
    prompt: PromptMode,
    expert: bool,
    experimental: bool,
    /// `mcli-debug-mode`: the master itself answers commands for workers, where it can.
    debug: bool,
    /// Text of `show cli sockets`.
    sockets: Arc<String>,
}

impl Client {
    fn new(socket: OwnedFd, level: Level, events: Sender<Event>, sockets: Arc<String>) -> io::Result<Self> {
        let output = File::from(socket.as_fd().try_clone_to_owned()?);
        let input = BufReader::new(File::from(socket));
        Ok(Self {
            input,
            output,
            events,
            level,
            target: None,
            prompt: PromptMode { interactive: true, ..PromptMode::default() },
            expert: false,
            experimental: false,
            debug: false,
            sockets,
        })
    }

    /// Returns the next line with its end, or `None` if there is no complete line.
    fn line(&mut self) -> io::Result<Option<String>> {
        let line = read_line(&mut self.input, || std::thread::sleep(PAUSE))?;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 > LONGEST_LINE {
                self.say(&format!("The line has more than {LONGEST_LINE} bytes; nothing was done.\n\n"))?;
            }
            return Ok(None);
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => {
                self.say("A command expects text in UTF-8, found other bytes; nothing was done.\n\n")?;
                Ok(None)
            }
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        while let Some(line) = self.line()? {
            for command in commands(line.trim_end_matches(['\n', '\r'])) {
                if !self.run(command.trim())? {
                    return Ok(());
                }
            }
            if self.prompt.prompts {
                self.prompt()?;
            }
        }
        Ok(())
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())
    }

    /// Asks the master.
    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Question) -> io::Result<T> {
        let (answer, answered): (_, Receiver<T>) = channel();
        let over = |_| io::Error::from(io::ErrorKind::NotConnected);
        self.events.send(Event::Asks(question(answer))).map_err(|_| over(()))?;
        answered.recv().map_err(|_| over(()))
    }

    fn prompt(&mut self) -> io::Result<()> {
        let mut text = String::new();
        if self.prompt.timed {
            let pid = self.target.map(|(pid, _)| pid);
            // A worker may have ended.
            if let Some(began) = self.ask(|answer| Question::Began(pid, answer))? {
                text = self.prompt.time(began) + " ";
            }
        }
        match self.target {
            Some((pid, _)) => text += &pid.to_string(),
            None if self.ask(Question::Failed)? => text += "master[ReloadFailed]",
            None => text += "master",
        }
        let modes = [(self.experimental, "x"), (self.expert, "e"), (self.debug, "d")];
        let modes: String = modes.iter().filter(|(is_on, _)| *is_on).map(|(_, letter)| *letter).collect();
        if !modes.is_empty() {
            text += &format!("({modes})");
        }
        self.say(&(text + "> "))
    }

    /// Runs a command.
    fn run(&mut self, command: &str) -> Goes {
        let Some(prefixed) = command.strip_prefix('@') else {
            return if command.is_empty() { Ok(true) } else { self.run_for(self.target, command) };
        };
        let (name, command) = prefixed.split_once([' ', '\t']).unwrap_or((prefixed, ""));
        // `@@`: both directions, until the end.
        let (name, both_ways) = name.strip_prefix('@').map_or((name, false), |name| (name, true));
        let target = match name {
            "" | "0" | "master" => None,
            name => {
                let target = match name.strip_prefix('!') {
                    Some(pid) => pid.parse().ok().map(Target::Pid),
                    None => (name == "1").then_some(Target::Current),
                };
                let found = match target {
                    Some(target) => {
                        self.ask(|answer| Question::Worker(target, answer))?.map(|(pid, _)| (pid, target))
                    }
                    None => None,
                };
                if found.is_none() {
                    let sign = if both_ways { "@@" } else { "@" };
                    self.say(&format!("Can't find the target PID matching the prefix '{sign}{name}'\n"))?;
                    return Ok(false);
                }
                found
            }
        };
        match command.trim() {
            command if both_ways => {
                let Some((_, target)) = target else {
                    self.say("'@@' expects a worker, such as '@@1', or '@@!' and its pid.\n")?;
                    return Ok(false);
                };
                return self.join(target, command);
            }
            "" => self.target = target,
            command => return self.run_for(target, command),
        }
        Ok(true)
    }

    /// Runs a command of the client itself or of the target.
    fn run_for(&mut self, target: Option<(u32, Target)>, command: &str) -> Goes {
        let words: Vec<&str> = command.split_whitespace().collect();
        let found = Row::find(TABLE, &words)
            .map(|(row, count)| (row, &words[count..]))
            .filter(|(row, _)| row.mode.is_none_or(|mode| self.has(mode)));
        match (found.map(|(row, more)| (row.run, row.level, more)), target) {
            (Some((Run::Client(_), level, _)), _) | (Some((Run::Master(_), level, _)), None)
                if self.level < level =>
            {
                self.say("Permission denied\n\n")?;
                Ok(true)
            }
            (Some((Run::Client(run), _, more)), _) => run(self, more),
            (_, Some((_, target))) => self.forward(target, command),
            (Some((Run::Master(run), _, more)), None) => run(self, more),
            (Some((Run::Nobody, ..)) | None, None) => {
                let text = self.help("");
                self.say(&format!(
                    "Unknown command; the master has these, '@1' before one is for the worker:\n{text}\n"
                ))?;
                Ok(true)
            }
        }
    }

    fn has(&self, mode: Mode) -> bool {
        match mode {
            Mode::Expert => self.expert,
            Mode::Experimental => self.experimental,
            Mode::Debug => self.debug,
        }
    }

    /// Sets a mode, or tells its state.
    fn set_mode(&mut self, name: &str, words: &[&str], of: fn(&mut Self) -> &mut bool) -> Goes {
        let now = if *of(self) { "ON" } else { "OFF" };
        match words {
            [] => self.say(&format!("{name} is {now}\n\n"))?,
            [word @ ("on" | "off"), ..] => *of(self) = *word == "on",
            _ => {
                self.say(&format!("'{name}' expects 'on', 'off', or nothing to show the mode.\n\n"))?;
            }
        }
        Ok(true)
    }

    /// `prompt`
    fn set_prompt(&mut self, words: &[&str]) -> Goes {
        // The master has no mode in which the connection ends behind the answers to a line.
        let usage = if words.contains(&"n") { Err(PromptUsage::Wrong) } else { self.prompt.with(words) };
        match usage {
            Ok(mode) => self.prompt = PromptMode { interactive: true, ..mode },
            Err(PromptUsage::Requested | PromptUsage::Wrong) => self.say(PROMPT_HELP)?,
        }
        Ok(true)
    }

    /// Answers with the master's reply to a question.
    fn tell(&mut self, question: fn(Sender<String>) -> Question) -> Goes {
        let text = self.ask(question)?;
        self.answer(&text)
    }

    fn answer(&mut self, text: &str) -> Goes {
        self.say(&format!("{text}\n"))?;
        Ok(true)
    }

    fn show_environment(&mut self, names: &[&str]) -> Goes {
        let all = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
            (names.is_empty() || names.contains(&&*name)).then(|| format!("{name}={value}\n"))
        });
        self.answer(&all.collect::<String>())
    }

    fn reload(&mut self) -> Goes {
        let (good, said) = self.ask(Question::Reload)?;
        self.say(&format!("Success={}\n--\n{said}\n", u8::from(good)))?;
        Ok(false)
    }

    fn help(&self, beginning: &str) -> String {
        let valid = |row: &&Row<Run>| row.level <= self.level && row.mode.is_none_or(|mode| self.has(mode));
        Row::help(TABLE.iter().filter(valid), beginning)
    }

    /// Returns the settings of the client that a worker gets before a command. The worker answers each with
    /// an empty line.
    fn settings(&self) -> Vec<&'static str> {
        let mut before = Vec::new();
        if self.expert {
            before.push("expert-mode on");
        }
        if self.experimental {
            before.push("experimental-mode on");
        }
        match self.level {
            Admin => {}
            Operator => before.push("operator"),
            User => before.push("user"),
        }
        before
    }

    /// Joins the client to a worker in both directions, behind a first command, until one of them ends.
    fn join(&mut self, target: Target, command: &str) -> Goes {
        let Some((_, passage)) = self.ask(|answer| Question::Worker(target, answer))? else {
            self.say("The worker has ended.\n\n")?;
            return Ok(false);
        };
        let before = self.settings();
        let mut line: String = before.iter().map(|word| format!("{word};")).collect();
        // Without a command, the settings alone would end the session.
        line += if command.is_empty() { "prompt" } else { command };
        let Ok(mut worker) = connect(&passage) else {
            self.say("The worker does not answer.\n\n")?;
            return Ok(false);
        };
        worker.write_all(format!("{line}\n").as_bytes())?;
        bridge::both_ways(&mut self.input, &mut self.output, worker, before.len())?;
        Ok(false)
    }

    /// Sends a command to a worker, and forwards the answer.
    fn forward(&mut self, target: Target, command: &str) -> Goes {
        let last = command.rsplit([' ', '\t']).next().and_then(|last| last.strip_prefix("<<"));
        let payload = match last {
            Some(end) => match self.payload(end)? {
                Some(payload) => payload,
                None => {
                    self.say(
                        "The payload did not come whole (an empty line ends it, or the pattern behind \
                        '<<'), or is too long or no text; nothing was done.\n\n",
                    )?;
                    return Ok(false);
                }
            },
            None => String::new(),
        };
        let Some((_, passage)) = self.ask(|answer| Question::Worker(target, answer))? else {
            self.say("The worker has ended.\n\n")?;
            return Ok(true);
        };
        let before = self.settings();
        let line: String = before.iter().map(|word| format!("{word};")).collect();
        let sent = connect(&passage).and_then(|mut worker| {
            worker.write_all(format!("{line}{command}\n{payload}").as_bytes())?;
            Ok(worker)
        });
        let Ok(worker) = sent else {
            self.say("The worker does not answer.\n\n")?;
            return Ok(true);
        };
        bridge::answer(&self.input, &mut self.output, worker, before.len())?;
        Ok(true)
    }

    /// Returns the lines up to the line `end`, including that.
    fn payload(&mut self, end: &str) -> io::Result<Option<String>> {
        let mut text = String::new();
        while let Some(line) = self.line()? {
            text += &line;
            if text.len() > LONGEST_PAYLOAD {
                break;
            }
            if line.trim_end_matches(['\r', '\n']) == end {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// Returns the next line with its end, or what has come of it at the end of the input or at its bound. It
/// calls `wait` before it reads on for a line that came in part.
fn read_line(input: &mut impl BufRead, wait: impl Fn()) -> io::Result<Vec<u8>> {
    let most = LONGEST_LINE as usize + 1;
    let mut line = Vec::new();
    loop {
        let came = match input.fill_buf() {
            Ok(came) => &came[..came.len().min(most - line.len())],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = came.iter().position(|byte| *byte == b'\n');
        let part = end.map_or(came, |end| &came[..=end]);
        let is_last = end.is_some() || part.is_empty();
        line.extend_from_slice(part);
        let length = part.len();
        input.consume(length);
        if is_last || line.len() == most {
            return Ok(line);
        }
        wait();
    }
}

/// Splits a line into commands at its semicolons, except those behind a backslash.
fn commands(line: &str) -> Vec<&str> {
    let (mut all, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in line.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ';' => {
                all.push(&line[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    all.push(&line[begin..]);
    all
}

/// Executor of a command.
#[derive(Clone, Copy)]
enum Run {
    /// None: a prefix of other commands, see [`Client::run`].
    Nobody,
    /// The client, with any target.
    Client(fn(&mut Client, &[&str]) -> Goes),
    /// The master, if it is the client's target.
    Master(fn(&mut Client, &[&str]) -> Goes),
}

/// All commands of the master.
static TABLE: &[Row<Run>] = &[
    row("@!<pid>", "", User, "send a command to the worker of that number", Run::Nobody),
    row("@<relative pid>", "", User, "send a command to the worker: @1 is the one that serves", Run::Nobody),
    row("@master", "", User, "send a command to the master", Run::Nobody),
    row(
        "echo",
        "<text>",
        User,
        "the text again, to tell answers apart",
        Run::Master(|own, words| match words {
            [] => own.answer(""),
            words => own.answer(&format!("{}\n", words.join(" "))),
        }),
    ),
    row(
        "expert-mode",
        "[on|off]",
        Admin,
        "allow expert commands at workers",
        Run::Client(|own, more| own.set_mode("expert-mode", more, |own| &mut own.expert)),
    ),
    row(
        "experimental-mode",
        "[on|off]",
        Admin,
        "allow experimental commands at workers",
        Run::Client(|own, more| own.set_mode("experimental-mode", more, |own| &mut own.experimental)),
    ),
    row(
        "@@<pid or relative pid>",
        "[<command>]",
        User,
        "join this client to the worker, both ways, to its end",
        Run::Nobody,
    ),
    row(
        "mcli-debug-mode",
        "[on|off]",
        Admin,
        "commands that tell of the master's own inside",
        Run::Client(|own, more| own.set_mode("mcli-debug-mode", more, |own| &mut own.debug)),
    ),
    row(
        "operator",
        "",
        Operator,
        "lower this client's level to operator",
        Run::Client(|own, _| {
            own.level = Operator; // it was not lower, or this is denied
            Ok(true)
        }),
    ),
    row(
        "reload",
        "",
        Operator,
        "start a worker that reads the configuration, and have it take over",
        Run::Master(|own, _| own.reload()),
    ),
    row(
        "show cli level",
        "",
        User,
        "this client's level",
        Run::Master(|own, _| own.answer(&format!("{}\n", own.level.name()))),
    ),
    row(
        "show cli sockets",
        "",
        User,
        "where the master listens",
        Run::Master(|own, _| own.answer(&own.sockets.clone())),
    ),
    row(
        "show proc",
        "[debug]",
        Operator,
        "the processes",
        Run::Master(|own, _| own.tell(Question::Processes)),
    ),
    row(
        "show startup-logs",
        "",
        Operator,
        "what was said during the last reload, or the start",
        Run::Master(|own, _| own.tell(Question::Said)),
    ),
    row(
        "show version",
        "",
        User,
        "the program's version",
        Run::Master(|own, _| own.answer(concat!(env!("CARGO_PKG_VERSION"), "\n"))),
    ),
    row(
        "user",
        "",
        User,
        "lower this client's level to user",
        Run::Client(|own, _| {
            own.level = User;
            Ok(true)
        }),
    ),
    row(
        "help",
        "[<command>]",
        User,
        "all commands, or those that begin so",
        Run::Master(|own, more| {
            own.answer(&format!(
                "The following commands are valid at this level:\n{}",
                own.help(&more.join(" "))
            ))
        }),
    ),
    row(
        "prompt",
        "[help|i|p|timed]*",
        User,
        "ask for each line, or stop that",
        Run::Client(Client::set_prompt),
    ),
    row("quit", "", User, "disconnect", Run::Client(|_, _| Ok(false))),
    row(
        "show env",
        "[<name>...]",
        Operator,
        "the master's environment",
        Run::Master(|own, names| own.show_environment(names)),
    )
    .only_in(Mode::Debug),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    /// Input that comes in pieces of these lengths, repeated.
    struct Pieces<'a, I>(&'a [u8], I);

    impl<I: Iterator<Item = usize>> Read for Pieces<'_, I> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.next().unwrap_or(1).min(buffer.len());
            Read::read(&mut self.0, &mut buffer[..length])
        }
    }

    proptest! {
        /// However lines are cut, they come as they were sent, up to their bound. What waits for its end
        /// takes at most twice the memory of its bytes and a cluster.
        #[test]
        fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
            lengths in prop::collection::vec(prop_oneof![0..20_usize, 0..20_000_usize], 1..10),
            cuts in prop::collection::vec(prop_oneof![3 => 1..20_usize, 1 => 1..20_000_usize], 1..30),
        ) {
            const CLUSTER: usize = 16_384;
            let sent: String = lengths.iter().map(|length| "x".repeat(*length) + "\n").collect();
            let mut input = BufReader::new(Pieces(sent.as_bytes(), cuts.into_iter().cycle()));
            let (most, buffer) = (LONGEST_LINE as usize + 1, input.capacity());
            for mut left in lengths.iter().map(|length| length + 1) {
                while left > 0 {
                    let line = read_line(&mut input, || ())?;
                    prop_assert_eq!(line.len(), left.min(most));
                    prop_assert_eq!(line.ends_with(b"\n"), left <= most);
                    // A vector never shrinks by itself: it had no more memory before.
                    prop_assert!(line.capacity() + buffer <= 2 * line.len() + CLUSTER);
                    left -= line.len();
                }
            }
            prop_assert!(read_line(&mut input, || ())?.is_empty());
        }
    }

    #[test]
    fn semicolons_part_commands_but_those_that_are_escaped() {
        assert_eq!(commands("a b;c"), ["a b", "c"]);
        assert_eq!(commands(r"a\;b;;\\;c"), [r"a\;b", "", r"\\", "c"]);
        assert_eq!(commands(""), [""]);
    }
}
