//! Cases: a configuration, requests, reactions of origins, and intended differences, in one file.
//!
//! ```text
//! # What it shows, in one or more lines.
//! == config
//! ...                        ${FRONT} and other names that begin so: descriptors of listeners, for
//!                            'bind fd@${FRONT}'
//!                            ${ORIGIN_A} and others: addresses of servers; ${DEAD}: one where nobody listens
//!                            ${LOG}: a receiver of log lines; ${DIR}: a folder with the case's files
//!                            ${DNS}: a name server
//! == file NAME               a file in ${DIR}, with CR LF at the ends of lines
//! == text NAME               the same with LF alone
//! == origin A [close|drop|silence]   what ORIGIN_A answers to its first request; again for the second, ...
//! == talker A                TALK_A is the address of a server of any protocol, PORT_A its port: on each
//!                            connection it does what the lines say, `say TEXT`, `hear TEXT` (until what
//!                            it heard since the last one ends so), `close`, `reset`, and then hears the
//!                            rest. What it heard is compared with what origins saw; the bytes are those
//!                            of lines without their ends
//! == unordered               log lines, and connections to talkers, may come in any order
//! == connection [FRONT_B]    a new connection of the client; the first is there by itself, to FRONT
//! == request [head] [N]      sent, then N answers are read (default 1); 'head': they have no body
//! == send                    sent, and no answer is read yet
//! == cli [at NAME]           each line is asked of the run-time socket, which the configuration binds to
//!                            ${DIR}/cli, or to ${DIR}/NAME, with the values of names such as ${TALK_A};
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
//!                            go in opposite directions, and what is the same was understood by both
//! == dns [code N]            what the name server answers from now on: 'NAME ADDRESS...', or 'NAME srv
//!                            WEIGHT PORT TARGET [ADDRESS]' in one or more lines; other names stay as they
//!                            were, those never told do not exist. With N, all answers have that code
//! == seen A                  waits until ORIGIN_A has seen as many requests as there were such steps: what
//!                            ends then was under way
//! == asked NAME              waits until the program has dealt with what is answered for that name now
//! == differs answers|origin|log|cli|exit
//!                            why the two programs differ there, and how: lines '- ...' are haproxy's
//!                            alone, lines '+ ...' Manylane's, as the test shows them
//! == differs over http/2|tls PART
//!                            the same where the case runs over HTTP/2 or TLS, in place of the other
//! ```
//! All lines up to the next `==` belong to a section, including empty ones: a head needs its empty line.
//! Lines of messages are sent with CR LF; a line that ends with a backslash is sent without. `\xHH`, `\r`,
//! `\n`, `\t` and `\0` are bytes.

use crate::origin::Answer;
use crate::talker;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A step of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connects to this listener.
    Connect(String),
    /// Sends bytes, then reads responses.
    Send {
        /// Bytes to send.
        bytes: Vec<u8>,
        /// Number of responses to read.
        answers: usize,
        /// True if they are responses to HEAD.
        to_head: bool,
    },
    /// Sends commands to the run-time socket.
    Ask {
        /// Name of the socket in the case's folder.
        at: String,
        /// Commands; one with a payload has several lines.
        commands: Vec<String>,
        /// Part of the responses that is compared.
        compared: Compared,
    },
    /// Repeats a command until the response contains a text, or does not contain it any more.
    Until {
        /// The command.
        command: String,
        /// The text.
        text: String,
        /// True to wait for the text, false to wait until it is gone.
        there: bool,
    },
    /// Waits for a log line that contains this text.
    Logged(String),
    /// Stores the response to a command in a file.
    Save {
        /// The command.
        command: String,
        /// Name of the file.
        file: String,
    },
    /// Stops the program and starts it again, or the other program.
    Restart {
        /// True for the other program.
        other: bool,
    },
    /// Changes the answers of the name server.
    Names {
        /// RCODE of all answers; 0 answers from the records.
        code: u8,
        /// Records by name.
        records: BTreeMap<String, Record>,
    },
    /// Waits until this number of log lines contain a text.
    Logs(usize, String),
    /// Waits until the program has processed the current answers for a name.
    Requested(String),
    /// Waits until an origin has had one more request than at the previous such step.
    RecordedRequest(String),
}

/// Records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Addresses; none if empty.
    Addresses(Vec<String>),
    /// Servers of a service: weight, port, name, and the address in an additional record.
    Service(Vec<(u16, u16, String, Option<String>)>),
}

/// Part of a run-time socket's response that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Everything.
    All,
    /// These columns of a table.
    Columns(Vec<String>),
    /// Lines that begin with one of these.
    Lines(Vec<String>),
    /// Words that begin with one of these. Lines without such words and those about HAProxy's own sessions
    /// are dropped.
    Words(Vec<String>),
    /// Text before the first colon of each line.
    Names,
    /// Text before the last colon of each line.
    Types,
    /// Fields of a JSON text without values, a line each; or its leaves.
    Json,
    /// Everything except numbers and widths of blanks.
    Form,
}

/// Part of an outcome that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Responses to the client.
    Answers,
    /// Requests at the origins.
    Origin,
    /// Log lines.
    Log,
    /// Responses of the run-time socket.
    Cli,
    /// Exit code of the program.
    Exit,
}

/// What requests of a case go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Over {
    /// TCP, as the case says.
    Tcp,
    /// HTTP/2.
    Http2,
    /// TLS.
    Tls,
}

/// An intended difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Reason of the difference.
    pub reason: String,
    /// What it occurs over; with [`Over::Tcp`] it may occur over all.
    pub over: Over,
    /// Lines of one program only: `- ` for HAProxy's, `+ ` for ours.
    pub lines: Vec<String>,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Path of its file.
    pub path: PathBuf,
    /// The configuration.
    pub config: String,
    /// Contents of files by name.
    pub files: BTreeMap<String, String>,
    /// Reactions of origins, by their names without `ORIGIN_`.
    pub origins: BTreeMap<String, Vec<Answer>>,
    /// Steps of talkers, by their names without `TALK_`.
    pub talkers: BTreeMap<String, Vec<talker::Part>>,
    /// Log lines, and connections to talkers, may come in any order.
    pub unordered: bool,
    /// Steps of the client.
    pub steps: Vec<Step>,
    /// Intended differences. Those over HTTP/2 and TLS take the place of those over TCP.
    pub differs: BTreeMap<(Over, Part), Difference>,
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
            ["cli", "at", name, ref how @ ..] => self.ask(name, body, compared(how)?)?,
            ["cli", ref how @ ..] => self.ask("cli", body, compared(how)?)?,
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
            ["seen", name] => self.steps.push(Step::RecordedRequest(name.to_owned())),
            ["asked", name] => self.steps.push(Step::Requested(name.to_owned())),
            ["differs", ref over @ .., part] if matches!(over, [] | ["over", "http/2"] | ["over", "tls"]) => {
                let over = match over.last() {
                    None => Over::Tcp,
                    Some(&"tls") => Over::Tls,
                    Some(_) => Over::Http2,
                };
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
                let difference = Difference { reason: reason.join("\n"), over, lines: owned(&lines) };
                self.differs.insert((over, part), difference);
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

    fn ask(&mut self, at: &str, body: &str, compared: Compared) -> Result<(), String> {
        let commands: Vec<String> = body.lines().map(|line| line.replace("\\n", "\n")).collect();
        if commands.is_empty() {
            return Err("it has no commands".into());
        }
        self.steps.push(Step::Ask { at: at.to_owned(), commands, compared });
        Ok(())
    }

    fn until(&mut self, body: &str, text: &[&str], there: bool) -> Result<(), String> {
        if text.is_empty() {
            return Err("a text is missing".into());
        }
        self.steps.push(Step::Until { command: one_line(body)?, text: text.join(" "), there });
        Ok(())
    }

    /// The intended difference of a part where requests go over `over`.
    pub fn differs(&self, over: Over, part: Part) -> Option<&Difference> {
        self.differs.get(&(over, part)).or_else(|| self.differs.get(&(Over::Tcp, part)))
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

fn compared(how: &[&str]) -> Result<Compared, String> {
    Ok(match how {
        [] => Compared::All,
        ["columns", names @ ..] => Compared::Columns(owned(names)),
        ["lines", beginnings @ ..] => Compared::Lines(owned(beginnings)),
        ["words", beginnings @ ..] => Compared::Words(owned(beginnings)),
        ["names"] => Compared::Names,
        ["types"] => Compared::Types,
        ["json"] => Compared::Json,
        ["form"] => Compared::Form,
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

/// Parses a step of a talker.
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

/// Converts the lines of a section to bytes.
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
