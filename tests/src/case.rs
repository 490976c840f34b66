//! Cases: a configuration, requests, what origins answer, and what may differ, in one file.
//!
//! ```text
//! # What it shows, in one or more lines.
//! == config
//! ...                        ${FRONT} and other names that begin so: descriptors of listeners, for 'bind
//!                            fd@${FRONT}'
//!                            ${ORIGIN_A} and others: addresses of servers; ${DEAD}: one where nobody listens
//!                            ${LOG}: a receiver of log lines; ${DIR}: a folder with the case's files
//!                            ${DNS}: a name server
//! == file NAME               a file in ${DIR}, with CR LF at the ends of lines
//! == text NAME               the same with LF alone
//! == origin A [close|drop|silence]   what ORIGIN_A answers to its first request; again for the second, ...
//! == talker A                TALK_A is the address of a server of any protocol, PORT_A its port: on each
//! connection it does what the lines say, `say TEXT`, `hear TEXT`
//!                            (until what it heard ends so), `close`, `reset`, and then hears the rest. What
//!                            it heard is compared with
//!                            what origins saw; the bytes are those of lines without their ends
//! == unordered               log lines, and connections to talkers, may come in any order
//! == connection [FRONT_B]    a new connection of the client; the first is there by itself, to FRONT
//! == request [head] [N]      sent, then N answers are read (default 1); 'head': they have no body
//! == send                    sent, and no answer is read yet
//! == cli [at NAME]           each line is asked of the run-time socket, which the configuration binds to
//! ${DIR}/cli, or to ${DIR}/NAME;
//!                            `\n` within a line begins the next line of a payload
//! == cli columns NAME...     only these columns of tables are compared
//! == cli lines WORD...       only lines that begin so, behind blanks, are compared
//! == cli words WORD...       only words that begin so are compared, of lines that are not about who asks
//! == cli names               only what stands before a colon is compared, line by line
//! == cli types               only what stands before the last colon: names, places and types of 'typed'
//!                            answers
//! == cli json                the same of 'json' answers: a line for each field, or for each leaf of what
//!                            has no fields
//! == cli form                numbers are N, blanks beside each other one: names, order and form are compared
//! == until TEXT              the line is asked until its answer has that text; nothing of it is compared
//! == until not TEXT          the same until it has it no more
//! == logged TEXT             waits until a log line has that text, behind the one that was waited for last
//! == logs N TEXT             waits until N log lines have that text, counted from the first
//! == save NAME               the answer to the line goes to ${DIR}/NAME, as an operator's script would
//!                            write it
//! == restart                 the program is told to finish; when it has ended, it begins again with the
//!                            same configuration
//! == restart other           the same, and the other one of the two programs begins: a case's two runs then
//!                            go in opposite
//!                            directions, and what is the same was understood by both
//! == dns [code N]            what the name server answers from now on: 'NAME ADDRESS...', or 'NAME srv
//! WEIGHT PORT TARGET [ADDRESS]' in one
//!                            or more lines; other names stay as they were, those never told do not exist.
//! With N, all answers have that code
//! == seen A                  waits until ORIGIN_A has seen as many requests as there were such steps: what
//!                            ends then was under way
//! == asked NAME              waits until the program has dealt with what is answered for that name now
//! == differs answers|origin|log|cli|exit     why the two programs differ there, and how: lines '- ...' are
//!                            haproxy's alone, lines
//!                            '+ ...' Manylane's, as the test shows them
//! == differs over http/2 PART                the same where the case runs over HTTP/2, in place of the other
//! ```
//! All lines up to the next `==` belong to a section, empty ones too: a head needs its empty line.
//! Lines of messages are sent with CR LF behind each; a line that ends with a backslash is sent without.
//! `\xHH`, `\r`, `\n`, `\t`, `\0` are bytes.

use crate::origin::Answer;
use crate::talker;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens a connection to this listener.
    Connect(String),
    /// Sends these bytes, then reads so many answers.
    Send {
        /// The bytes.
        bytes: Vec<u8>,
        /// How many answers are read.
        answers: usize,
        /// Whether they answer HEAD.
        to_head: bool,
    },
    /// Asks the run-time socket.
    Ask {
        /// The socket's name in the case's folder.
        at: String,
        /// Lines, or several for one that has a payload.
        commands: Vec<String>,
        /// What of the answers is compared.
        shown: Shown,
    },
    /// Asks until the answer has a text, or has it no more.
    Until {
        /// What is asked.
        command: String,
        /// What is looked for.
        text: String,
        /// Whether it is to be there.
        there: bool,
    },
    /// Waits for a log line that has this text.
    Logged(String),
    /// Keeps the answer to a command in a file.
    Save {
        /// What is asked.
        command: String,
        /// The file's name.
        file: String,
    },
    /// Ends the program and begins it again, or the other one.
    Restart {
        /// Whether it is the other one.
        other: bool,
    },
    /// Changes what the name server answers.
    Names {
        /// The code of all answers, 0 for what there is.
        code: u8,
        /// By name.
        records: BTreeMap<String, Record>,
    },
    /// Waits until so many log lines have a text.
    Logs(usize, String),
    /// Waits until the program has dealt with what is answered for a name.
    Requested(String),
    /// Waits until an origin has seen one more request than at the last such step.
    SeenRequest(String),
}

/// What a name has from a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Addresses, perhaps none.
    Addresses(Vec<String>),
    /// Servers of a service: weight, port, name, and an address that stands beside.
    Service(Vec<(u16, u16, String, Option<String>)>),
}

/// What of an answer of the run-time socket is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All of it.
    All,
    /// These columns of a table.
    Columns(Vec<String>),
    /// Lines that begin with one of these.
    Lines(Vec<String>),
    /// Words that begin with one of these, of lines that have any and do not speak of haproxy's own sessions.
    Words(Vec<String>),
    /// What stands before a colon, line by line.
    Names,
    /// What stands before the last colon, line by line.
    Types,
    /// Fields of a JSON text without what they say, a line each; or its leaves.
    Json,
    /// All but numbers and how many blanks there are.
    Form,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// What the client got.
    Answers,
    /// What the origins saw.
    Origin,
    /// Log lines.
    Log,
    /// What the run-time socket answered.
    Cli,
    /// How the program ended.
    Exit,
}

/// A difference that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Why it is there.
    pub reason: String,
    /// It is of HTTP/2 alone.
    pub over_http2: bool,
    /// Lines that only one has, with `- ` before haproxy's and `+ ` before ours.
    pub lines: Vec<String>,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its file.
    pub path: PathBuf,
    /// The configuration.
    pub config: String,
    /// Files by name, as they are written.
    pub files: BTreeMap<String, String>,
    /// What origins answer, by their names without `ORIGIN_`.
    pub origins: BTreeMap<String, Vec<Answer>>,
    /// What talkers do, by their names without `TALK_`.
    pub talkers: BTreeMap<String, Vec<talker::Part>>,
    /// Log lines, and connections to talkers, may come in any order.
    pub unordered: bool,
    /// What the client does.
    pub steps: Vec<Step>,
    /// What differs, and why.
    pub differs: BTreeMap<Part, Difference>,
    /// What differs over HTTP/2, in place of that.
    pub differs_over_http2: BTreeMap<Part, Difference>,
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// A sentence with the line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut case = Self {
            path: path.to_path_buf(),
            config: String::new(),
            files: BTreeMap::new(),
            origins: BTreeMap::new(),
            talkers: BTreeMap::new(),
            unordered: false,
            steps: Vec::new(),
            differs: BTreeMap::new(),
            differs_over_http2: BTreeMap::new(),
        };
        let mut sections: Vec<(&str, String)> = Vec::new();
        let mut shows = false;
        for line in text.lines() {
            match (line.strip_prefix("== "), sections.last_mut()) {
                (Some(title), _) => sections.push((title.trim(), String::new())),
                (None, Some((_, body))) => *body += &format!("{line}\n"),
                (None, None) if line.starts_with("# ") => shows = true,
                (None, None) if line.is_empty() => {}
                (None, None) => return Err(format!("'{line}' stands before the first section")),
            }
        }
        if !shows {
            return Err("it begins with lines of '#' that say what it shows".into());
        }
        for (title, body) in &sections {
            case.section(title, body).map_err(|wrong| format!("'== {title}': {wrong}"))?;
        }
        if case.config.is_empty() {
            return Err("'== config' is missing".into());
        }
        Ok(case)
    }

    fn section(&mut self, title: &str, body: &str) -> Result<(), String> {
        let words: Vec<&str> = title.split_whitespace().collect();
        match *words.as_slice() {
            ["config"] => body.clone_into(&mut self.config),
            ["file", name] => {
                self.files.insert(name.to_owned(), body.replace('\n', "\r\n"));
            }
            ["text", name] => {
                self.files.insert(name.to_owned(), body.to_owned());
            }
            ["origin", name] => self.answer(name, Answer::Bytes(bytes(body)?, false)),
            ["origin", name, "close"] => self.answer(name, Answer::Bytes(bytes(body)?, true)),
            ["origin", name, "drop"] => self.answer(name, Answer::Close),
            ["origin", name, "silence"] => self.answer(name, Answer::Silence),
            ["talker", name] => {
                let parts =
                    body.lines().filter(|line| !line.is_empty()).map(talk).collect::<Result<_, _>>()?;
                self.talkers.insert(name.to_owned(), parts);
            }
            ["unordered"] => self.unordered = true,
            ["connection"] => self.steps.push(Step::Connect("FRONT".into())),
            ["connection", name] => self.steps.push(Step::Connect(name.to_owned())),
            ["send"] => self.send(body, 0, false)?,
            ["request"] => self.send(body, 1, false)?,
            ["request", "head"] => self.send(body, 1, true)?,
            ["request", count] => self.send(body, number(count)?, false)?,
            ["request", "head", count] => self.send(body, number(count)?, true)?,
            ["cli", "at", name, ref how @ ..] => self.ask(name, body, shown(how)?)?,
            ["cli", ref how @ ..] => self.ask("cli", body, shown(how)?)?,
            ["until", "not", ref text @ ..] => self.until(body, text, false)?,
            ["until", ref text @ ..] => self.until(body, text, true)?,
            ["logged", ref text @ ..] => self.steps.push(Step::Logged(text.join(" "))),
            ["logs", count, ref text @ ..] => self.steps.push(Step::Logs(number(count)?, text.join(" "))),
            ["save", file] => {
                let step = Step::Save { command: one_line(body)?, file: file.to_owned() };
                self.steps.push(step);
            }
            ["restart"] => self.steps.push(Step::Restart { other: false }),
            ["restart", "other"] => self.steps.push(Step::Restart { other: true }),
            ["dns"] => self.steps.push(Step::Names { code: 0, records: records(body)? }),
            ["dns", "code", code] => {
                let code = u8::try_from(number(code)?).map_err(|_| "a code is a small number")?;
                self.steps.push(Step::Names { code, records: records(body)? });
            }
            ["seen", name] => self.steps.push(Step::SeenRequest(name.to_owned())),
            ["asked", name] => self.steps.push(Step::Requested(name.to_owned())),
            ["differs", ref over @ .., part] if matches!(over, [] | ["over", "http/2"]) => {
                let over_http2 = !over.is_empty();
                let part = match part {
                    "answers" => Part::Answers,
                    "origin" => Part::Origin,
                    "log" => Part::Log,
                    "cli" => Part::Cli,
                    "exit" => Part::Exit,
                    _ => return Err(format!("'{part}' is none of answers, origin, log, cli, exit")),
                };
                let stated = |line: &&str| matches!(line.split(' ').next(), Some("-" | "+"));
                let (lines, reason): (Vec<&str>, Vec<&str>) =
                    body.trim().lines().partition(|line| stated(line));
                if reason.is_empty() {
                    return Err("a reason is missing".into());
                }
                let difference = Difference { reason: reason.join("\n"), over_http2, lines: owned(&lines) };
                let list = if over_http2 { &mut self.differs_over_http2 } else { &mut self.differs };
                list.insert(part, difference);
            }
            _ => return Err("no such section".into()),
        }
        Ok(())
    }

    fn answer(&mut self, name: &str, answer: Answer) {
        self.origins.entry(name.to_owned()).or_default().push(answer);
    }

    fn send(&mut self, body: &str, answers: usize, to_head: bool) -> Result<(), String> {
        if !self.steps.iter().any(|step| matches!(step, Step::Connect(_))) {
            self.steps.push(Step::Connect("FRONT".into()));
        }
        self.steps.push(Step::Send { bytes: bytes(body)?, answers, to_head });
        Ok(())
    }

    fn ask(&mut self, at: &str, body: &str, shown: Shown) -> Result<(), String> {
        let commands: Vec<String> = body.lines().map(|line| line.replace("\\n", "\n")).collect();
        if commands.is_empty() {
            return Err("it has no commands".into());
        }
        self.steps.push(Step::Ask { at: at.to_owned(), commands, shown });
        Ok(())
    }

    fn until(&mut self, body: &str, text: &[&str], there: bool) -> Result<(), String> {
        if text.is_empty() {
            return Err("a text is missing".into());
        }
        self.steps.push(Step::Until { command: one_line(body)?, text: text.join(" "), there });
        Ok(())
    }

    /// Names in the configuration that begin with `prefix`, as in `${FRONT_B}`.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .config
            .split("${")
            .skip(1)
            .filter_map(|rest| rest.split_once('}'))
            .map(|(name, _)| name.to_owned())
            .filter(|name| name.starts_with(prefix))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

fn shown(how: &[&str]) -> Result<Shown, String> {
    Ok(match how {
        [] => Shown::All,
        ["columns", names @ ..] => Shown::Columns(owned(names)),
        ["lines", beginnings @ ..] => Shown::Lines(owned(beginnings)),
        ["words", beginnings @ ..] => Shown::Words(owned(beginnings)),
        ["names"] => Shown::Names,
        ["types"] => Shown::Types,
        ["json"] => Shown::Json,
        ["form"] => Shown::Form,
        _ => return Err(format!("'{}' is no way to compare", how.join(" "))),
    })
}

fn one_line(body: &str) -> Result<String, String> {
    match body.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().as_slice() {
        [line] => Ok((*line).to_owned()),
        _ => Err("it takes one line".into()),
    }
}

fn records(body: &str) -> Result<BTreeMap<String, Record>, String> {
    let mut records = BTreeMap::new();
    for line in body.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [name, "srv", weight, port, target, ref address @ ..] if address.len() < 2 => {
                let small = |word| u16::try_from(number(word)?).map_err(|_| format!("'{word}' is too large"));
                let address = address.first().map(|address| (*address).to_owned());
                let server = (small(weight)?, small(port)?, target.to_owned(), address);
                match records.entry(name.to_owned()).or_insert_with(|| Record::Service(Vec::new())) {
                    Record::Service(all) => all.push(server),
                    Record::Addresses(_) => return Err(format!("'{name}' has addresses already")),
                }
            }
            [name, "srv"] => {
                records.insert(name.to_owned(), Record::Service(Vec::new()));
            }
            [name, ref addresses @ ..] => {
                records.insert(name.to_owned(), Record::Addresses(owned(addresses)));
            }
            [] => {}
        }
    }
    Ok(records)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// One thing that a talker does.
fn talk(line: &str) -> Result<talker::Part, String> {
    let (word, text) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "say" => bytes(&format!("{text}\\")).map(talker::Part::Say),
        "hear" => bytes(&format!("{text}\\")).map(talker::Part::Hear),
        "close" => Ok(talker::Part::Close),
        "reset" => Ok(talker::Part::Reset),
        _ => Err(format!("'{line}' is none of say, hear, close, reset")),
    }
}

fn number(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("'{word}' is no number"))
}

/// The bytes that a section's lines stand for.
fn bytes(body: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for line in body.lines() {
        let (line, ends) = match line.strip_suffix('\\') {
            Some(line) => (line, false),
            None => (line, true),
        };
        let mut rest = line.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'\\' {
                out.push(byte);
                continue;
            }
            let hex = |rest: &mut std::str::Bytes<'_>| {
                let digit = rest.next().and_then(|digit| char::from(digit).to_digit(16));
                digit.ok_or("'\\x' takes two digits")
            };
            out.push(match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(b'\\') => b'\\',
                Some(b'x') => (hex(&mut rest)? * 16 + hex(&mut rest)?) as u8,
                _ => return Err("'\\' is followed by one of r n t 0 x \\".into()),
            });
        }
        if ends {
            out.extend(b"\r\n");
        }
    }
    Ok(out)
}
