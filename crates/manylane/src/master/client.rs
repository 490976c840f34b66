//! The master CLI (`-S`): commands for the master, and `@1`, `@!PID` before those for a worker.

use super::Event;
use super::channel::{Receiver, Sender, channel};
use super::worker::connect;
use crate::{environment, system, version};
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_control::Level;
use manylane_net::{Bound, Endpoint};
use manylane_proxy::Generation;
use manylane_proxy::generation::{RuntimeSocket, Wishes};
use manylane_sync::Arc;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// Clients of one socket at once; others wait.
const MOST_CLIENTS: usize = 10;

/// Bytes of a line at most.
const LONGEST_LINE: u64 = manylane_control::LONGEST_LINE as u64;

/// Bytes of a payload at most.
const LONGEST_PAYLOAD: usize = manylane_control::LONGEST_PAYLOAD;

/// Which worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `@1`
    Current,
    /// `@!PID`
    Pid(u32),
}

/// What a client asks of the master, with the place for the answer.
pub(super) enum Question {
    /// `reload`: whether the new worker serves.
    Reload(Sender<bool>),
    /// `show proc`
    Processes(Sender<String>),
    /// Whether the last reload failed.
    Failed(Sender<bool>),
    /// A worker's number, and the way to it.
    Worker(Target, Sender<Option<(u32, UnixStream)>>),
}

/// Sockets of the master CLI, with their level.
pub(super) type Sockets = Vec<(Bound, &'static str)>;

/// Run-time sockets of lines such as `stats socket` has them.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn run_time_sockets(lines: &[String]) -> Result<Arc<[RuntimeSocket]>, String> {
    let text: String = lines.iter().map(|line| format!(" stats socket {line}\n")).collect();
    let mut sources = Sources::new();
    sources.add("-S", format!("global\n{text}")).map_err(|error| error.to_string())?;
    let mut loaded = load(&sources, &version::BUILD, environment::before(&sources, None), false);
    let generation = Generation::build(&loaded.config, Wishes::default(), &mut loaded.found);
    if loaded.found.errors() > 0 {
        return Err(loaded.found.render(&sources, std::process::id()));
    }
    Ok(generation.process.stats_sockets.clone())
}

/// Binds the sockets that `-S` names: an address, and options of `bind` between commas.
///
/// # Errors
/// Why one cannot be.
pub(super) fn bind(words: &[OsString]) -> Result<Sockets, String> {
    let mut all = Vec::new();
    for word in words {
        let text = word.to_string_lossy();
        let has_level = text.split(',').any(|word| word == "level");
        let level = if has_level { "" } else { " level admin" };
        let sockets = run_time_sockets(&[text.replace(',', " ") + level])?;
        for socket in sockets.iter() {
            let mut none = manylane_net::HandedOver::default();
            let bound = manylane_proxy::bind_listener(&socket.listener, 1, &system::owner, &mut none);
            let bound = bound.map_err(|error| format!("Binding for the master CLI: {error}"))?;
            all.extend(bound.into_iter().map(|bound| (bound, socket.level)));
        }
    }
    Ok(all)
}

/// Serves clients on threads. What it gives back is to be kept as long as they shall be served.
///
/// # Errors
/// The system has no descriptor or no thread left.
pub(super) fn serve(sockets: Sockets, events: &Sender<Event>) -> Result<Vec<Bound>, String> {
    let mut kept = Vec::new();
    for (bound, level) in sockets {
        let failed = |error: &dyn std::fmt::Display| format!("the master CLI cannot be served: {error}");
        let socket = bound.duplicate().map_err(|error| failed(&error))?;
        let is_ip = matches!(bound.endpoint(), Endpoint::Ip(_));
        let (events, level) = (events.clone(), Level::named(level).unwrap_or(Level::User));
        let serving = move || accept(socket, is_ip, level, &events);
        std::thread::Builder::new()
            .name("master CLI".into())
            .spawn(serving)
            .map_err(|error| failed(&error))?;
        kept.push(bound);
    }
    Ok(kept)
}

/// Accepts clients to the end of the process.
fn accept(socket: OwnedFd, is_ip: bool, level: Level, events: &Sender<Event>) {
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
            std::thread::sleep(std::time::Duration::from_millis(100)); // no descriptors: somebody may close some
            continue;
        };
        let (events, leave) = (events.clone(), leave.clone());
        let serving = move || {
            let _ = Client::new(client, level, events).and_then(|mut client| client.serve()); // it may be gone
            let _ = leave.send(());
        };
        clients += usize::from(std::thread::Builder::new().name("master CLI".into()).spawn(serving).is_ok());
    }
}

/// Whether a client goes on.
type Goes = io::Result<bool>;

/// A client of the master CLI. Sockets are read and written as files, whatever their kind.
struct Client {
    input: BufReader<File>,
    output: File,
    events: Sender<Event>,
    level: Level,
    /// Whom the next commands are for, if not for the master.
    target: Option<(u32, Target)>,
    interactive: bool,
    expert: bool,
    experimental: bool,
}

impl Client {
    fn new(socket: OwnedFd, level: Level, events: Sender<Event>) -> io::Result<Self> {
        let output = File::from(socket.as_fd().try_clone_to_owned()?);
        let input = BufReader::new(File::from(socket));
        Ok(Self {
            input,
            output,
            events,
            level,
            target: None,
            interactive: false,
            expert: false,
            experimental: false,
        })
    }

    /// The next line with its end; none where there is no whole one.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        (&mut self.input).take(LONGEST_LINE + 1).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 > LONGEST_LINE {
                self.say(&format!("The line has more than {LONGEST_LINE} bytes; nothing was done.\n\n"))?;
            }
            return Ok(None);
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => {
                self.say("The command holds bytes that are no text (UTF-8); nothing was done.\n\n")?;
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
            if self.interactive {
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
        self.events.send(Event::Asked(question(answer))).map_err(|_| over(()))?;
        answered.recv().map_err(|_| over(()))
    }

    fn prompt(&mut self) -> io::Result<()> {
        let mut text = match self.target {
            Some((pid, _)) => pid.to_string(),
            None if self.ask(Question::Failed)? => "master[ReloadFailed]".to_owned(),
            None => "master".to_owned(),
        };
        if self.expert || self.experimental {
            let (expert, experimental) =
                (if self.expert { "e" } else { "" }, if self.experimental { "x" } else { "" });
            text += &format!("({experimental}{expert})");
        }
        self.say(&(text + "> "))
    }

    /// Runs a command.
    fn run(&mut self, command: &str) -> Goes {
        let Some(prefixed) = command.strip_prefix('@') else {
            return if command.is_empty() { Ok(true) } else { self.run_for(self.target, command) };
        };
        let (name, command) = prefixed.split_once([' ', '\t']).unwrap_or((prefixed, ""));
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
                    self.say(&format!("Can't find the target PID matching the prefix '@{name}'\n"))?;
                    return Ok(false);
                }
                found
            }
        };
        match command.trim() {
            "" => self.target = target,
            command => return self.run_for(target, command),
        }
        Ok(true)
    }

    /// Runs what is the client's own, or the target's.
    fn run_for(&mut self, target: Option<(u32, Target)>, command: &str) -> Goes {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["quit"] => return Ok(false),
            ["prompt"] => self.interactive = !self.interactive,
            ["operator"] => self.level = self.level.min(Level::Operator),
            ["user"] => self.level = Level::User,
            ["expert-mode"] => self.say(&format!("expert-mode is {}\n\n", on(self.expert)))?,
            ["experimental-mode"] => {
                self.say(&format!("experimental-mode is {}\n\n", on(self.experimental)))?
            }
            [mode @ ("expert-mode" | "experimental-mode"), word @ ("on" | "off")] => {
                if self.level < Level::Admin {
                    self.say("Permission denied\n\n")?;
                } else if mode == "expert-mode" {
                    self.expert = word == "on";
                } else {
                    self.experimental = word == "on";
                }
            }
            _ => match target {
                Some((_, target)) => return self.forward(target, command),
                None => return self.run_here(&words),
            },
        }
        Ok(true)
    }

    /// Runs a command of the master.
    fn run_here(&mut self, words: &[&str]) -> Goes {
        match words {
            ["show", "proc", ..] => {
                let text = self.ask(Question::Processes)?;
                self.say(&(text + "\n"))?;
            }
            ["show", "version"] => self.say(concat!(env!("CARGO_PKG_VERSION"), "\n\n"))?,
            ["show", "cli", "level"] => self.say(&format!("{}\n\n", self.level.name()))?,
            ["reload"] if self.level < Level::Operator => self.say("Permission denied\n\n")?,
            ["reload"] => {
                let good = self.ask(Question::Reload)?;
                self.say(&format!("Success={}\n", u8::from(good)))?;
                return Ok(false);
            }
            ["help", ..] => {
                let text: String =
                    HELP.iter().map(|(name, what)| format!("  {name:<40}: {what}\n")).collect();
                self.say(&format!("The following commands are valid at this level:\n{text}\n"))?;
            }
            _ => {
                let text: String =
                    HELP.iter().map(|(name, what)| format!("  {name:<40}: {what}\n")).collect();
                self.say(&format!(
                    "Unknown command; the master has these, '@1' before one is for the worker:\n{text}\n"
                ))?;
            }
        }
        Ok(true)
    }

    /// Has a worker run a command.
    fn forward(&mut self, target: Target, command: &str) -> Goes {
        let payload = match command.ends_with(" <<") {
            true => match self.payload()? {
                Some(payload) => payload,
                None => {
                    self.say("The payload did not come whole (an empty line ends it), or is too long or no text; nothing was done.\n\n")?;
                    return Ok(false);
                }
            },
            false => String::new(),
        };
        let Some((_, passage)) = self.ask(|answer| Question::Worker(target, answer))? else {
            self.say("The worker has ended.\n\n")?;
            return Ok(true);
        };
        let mut before = Vec::new();
        if self.expert {
            before.push("expert-mode on");
        }
        if self.experimental {
            before.push("experimental-mode on");
        }
        match self.level {
            Level::Admin => {}
            Level::Operator => before.push("operator"),
            Level::User => before.push("user"),
        }
        let line: String = before.iter().map(|word| format!("{word};")).collect();
        let asked = connect(&passage).and_then(|mut worker| {
            worker.write_all(format!("{line}{command}\n{payload}").as_bytes())?;
            worker.shutdown(Shutdown::Write)?;
            Ok(worker)
        });
        let Ok(mut worker) = asked else {
            self.say("The worker does not answer.\n\n")?;
            return Ok(true);
        };
        // What was said to that is an empty line each.
        let mut empty = vec![0; before.len()];
        if worker.read_exact(&mut empty).is_ok() {
            io::copy(&mut worker, &mut self.output)?;
        }
        Ok(true)
    }

    /// The lines up to an empty one, with it.
    fn payload(&mut self) -> io::Result<Option<String>> {
        let mut text = String::new();
        while let Some(line) = self.line()? {
            text += &line;
            if text.len() > LONGEST_PAYLOAD {
                break;
            }
            if matches!(&*line, "\n" | "\r\n") {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

fn on(mode: bool) -> &'static str {
    if mode { "ON" } else { "OFF" }
}

/// The commands of a line: between semicolons, but those behind a backslash.
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

/// What the master does.
const HELP: &[(&str, &str)] = &[
    ("@!<pid>", "send a command to the worker of that number"),
    ("@<relative pid>", "send a command to the worker: @1 is the one that serves"),
    ("@master", "send a command to the master"),
    ("expert-mode [on|off]", "the same for workers that commands are sent to"),
    ("experimental-mode [on|off]", "the same for workers that commands are sent to"),
    ("operator", "lower this client's level to operator"),
    ("reload", "start a worker that reads the configuration, and have it take over"),
    ("show cli level", "this client's level"),
    ("show proc", "the processes"),
    ("show version", "the program's version"),
    ("user", "lower this client's level to user"),
    ("help", "these commands"),
    ("prompt", "ask for each line, or stop that"),
    ("quit", "disconnect"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_part_commands_but_those_that_are_escaped() {
        assert_eq!(commands("a b;c"), ["a b", "c"]);
        assert_eq!(commands(r"a\;b;;\\;c"), [r"a\;b", "", r"\\", "c"]);
        assert_eq!(commands(""), [""]);
    }
}
