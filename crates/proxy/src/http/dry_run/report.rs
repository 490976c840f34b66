//! What a dry run tells.

use crate::explain::Line;
use manylane_expr::{Needs, is_harmful};

/// A connection, and what comes over it.
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

/// What became of a rule.
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
    /// A variable has this value now; none: it is not set.
    Variable(String, Option<String>),
    /// A header field is there, by name and value.
    Added(String, String),
    /// A header field is gone.
    Removed(String, String),
    /// The first line of the message.
    Line(String),
    /// Something else, in words.
    Note(String),
    /// What it makes depends on these: in a process at work it may be another value.
    Unknown(Needs),
}

/// A rule, or something that takes part as one.
#[derive(Clone, Debug)]
pub struct Step {
    /// The proxy that runs it.
    pub proxy: Box<str>,
    /// The keyword of its list.
    pub keyword: &'static str,
    /// Where it stands.
    pub line: Option<Line>,
    /// What became of it.
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
        /// Its head: first line and fields.
        head: Vec<String>,
        /// Why, where no rule says so.
        why: Option<String>,
    },
    /// The connection ends without a response.
    Closed {
        /// The rule that decides so.
        line: Option<Line>,
        /// How.
        how: String,
    },
    /// It goes to a server.
    Server {
        /// The backend.
        backend: Box<str>,
        /// What chooses: `use-server`, `cookie` or `balance` with its algorithm.
        by: String,
        /// The servers that may be chosen; one where it is known.
        servers: Vec<Candidate>,
        /// What one would have to know to tell which.
        unknown: Needs,
    },
    /// It depends on something that a dry run does not have.
    Unknown {
        /// The rule that says where it goes.
        line: Option<Line>,
        /// On these.
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
    /// Rules that could decide otherwise, if what is not known were known.
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
