//! Input and report of a dry run.

use crate::explain::Line;
use manylane_expr::{Needs, is_harmful};

/// A connection, and the bytes that arrive on it.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Number of the frontend.
    pub frontend: usize,
    /// Number of its listener.
    pub listener: usize,
    /// The client's bytes: a request in HTTP mode.
    pub bytes: Vec<u8>,
    /// The client's address. Without it, rules that look at it cannot be evaluated.
    pub source: Option<std::net::SocketAddr>,
    /// The address that the client connected to, likewise.
    pub destination: Option<std::net::SocketAddr>,
    /// The name that the client asks for in its TLS handshake, where the listener has TLS.
    pub server_name: Option<Box<str>>,
}

/// Result of the evaluation of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It applies.
    Matched,
    /// Its condition does not hold.
    NotMatched,
    /// A rule before it ended the list or the request.
    NotReached,
    /// Its condition depends on these, which a dry run does not have. It is passed over.
    Unknown(Needs),
}

/// What a rule that matched did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A variable, by name, has this value now; `None` if it is unset.
    Variable(String, Option<String>),
    /// A header field was added: name and value.
    Added(String, String),
    /// A header field was removed: name and value.
    Removed(String, String),
    /// The message has this first line now.
    Line(String),
    /// Something else, in words.
    Note(String),
    /// The effect depends on these absent inputs, so a serving process may have another result.
    Unknown(Needs),
}

/// A rule, or something that takes part as one.
#[derive(Clone, Debug)]
pub struct Step {
    /// The proxy that runs it.
    pub proxy: Box<str>,
    /// The keyword of its list.
    pub keyword: &'static str,
    /// Its line, if it has one.
    pub line: Option<Line>,
    /// Result of its evaluation.
    pub outcome: Outcome,
    /// It can end the request, or say where it goes.
    pub decides: bool,
    /// What it did.
    pub effects: Vec<Effect>,
}

/// A server that the request may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: Box<str>,
    /// Its weight.
    pub weight: u16,
    /// It is a backup server.
    pub backup: bool,
    /// `redir`: clients are sent there.
    pub redirects: Option<String>,
}

/// How a dry run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The proxy answers itself.
    Answer {
        /// The rule that decides so.
        line: Option<Line>,
        /// Status of the response.
        status: u16,
        /// Head of the response: first line and fields.
        head: Vec<String>,
        /// The reason, if no rule decides.
        why: Option<String>,
    },
    /// The connection ends without a response.
    Closed {
        /// The rule that decides so.
        line: Option<Line>,
        /// How the connection ends, in words.
        how: String,
    },
    /// The request goes to a server.
    Server {
        /// The backend.
        backend: Box<str>,
        /// What chooses the server: `use-server`, `cookie` or `balance` with its algorithm.
        by: String,
        /// The servers that may be chosen: one, if the choice is known.
        servers: Vec<Candidate>,
        /// The absent inputs on which the choice depends.
        unknown: Needs,
    },
    /// The end depends on inputs that a dry run does not have.
    Unknown {
        /// The rule that decides where the request goes.
        line: Option<Line>,
        /// The inputs on which the end depends.
        needs: Needs,
    },
}

/// What a dry run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Rules in the order in which they are evaluated.
    pub steps: Vec<Step>,
    /// The head of the request as its server would get it.
    pub head: Vec<String>,
    /// How it ends.
    pub end: End,
}

impl Report {
    /// Returns the rules that could decide the request but depend on absent inputs.
    pub fn open(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.decides && matches!(step.outcome, Outcome::Unknown(_)))
    }
}

/// Text of a message or a configuration, harmless to a terminal.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_harmful(c) {
                true => text.extend(c.escape_unicode()),
                false => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}
