//! Names in expressions: proxies, servers, user lists, variables, files.

use crate::acl::Acls;
use crate::convert;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::fetch;
use crate::pattern::References;
use crate::show::Shown;
use crate::table::NamedTable;
use crate::variable::VariableNames;

/// A proxy of the generation. The implementation of [`Names`] defines the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyId(pub u32);

/// A server of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// A user list of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserlistId(pub u32);

/// One side of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxySide {
    /// Accepts clients.
    Front,
    /// Has servers.
    Back,
}

/// Resolves names during compilation.
pub trait Names {
    /// The proxy with this name and side.
    fn proxy(&self, name: &[u8], side: ProxySide) -> Option<ProxyId>;
    /// The proxy of the current line, if it has this side.
    fn current(&self, side: ProxySide) -> Option<ProxyId>;
    /// The server with this name in a backend.
    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId>;
    /// The user list with this name.
    fn userlist(&self, name: &[u8]) -> Option<UserlistId>;
    /// True if the user list has the group.
    fn has_group(&self, list: UserlistId, name: &[u8]) -> bool;
    /// The stick table of the proxy or `peers` section with this name.
    fn table(&self, _name: &[u8]) -> Option<NamedTable> {
        None
    }
    /// The stick table of the proxy of the current line.
    fn own_table(&self) -> Option<NamedTable> {
        None
    }
    /// An environment variable of the configuration.
    fn environment(&self, name: &[u8]) -> Option<Vec<u8>>;
    /// Reads a map or a pattern file. `name` is as written.
    fn file(&self, name: &[u8]) -> std::io::Result<Vec<u8>>;
}

/// The input that a keyword of an expression uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleSource {
    /// Only its arguments, the clock and variables.
    Fixed,
    /// The connections, and data that the stream keeps.
    Connection,
    /// A number from [`Host`](crate::Host).
    Number,
    /// The head of a message, or its body for a form parameter.
    Message,
    /// Bytes of a body or of a TCP stream.
    Data,
    /// The keyword is a converter.
    Converter,
    /// The keyword is an alias of a log format.
    Alias,
}

/// The reason why a fetch, a converter or an alias has no value where the expressions run; `None` if it
/// works.
pub type Missing = fn(name: &str, source: SampleSource) -> Option<&'static str>;

/// Compiles the expressions of one generation.
pub struct Compiler<'a> {
    /// Resolves names.
    pub names: &'a dyn Names,
    /// All variables that the expressions use.
    pub variables: &'a mut VariableNames,
    /// All maps and pattern files that they use.
    pub references: &'a mut References,
    /// Named ACLs for conditions and the fetch `acl`.
    pub acls: Acls,
    /// Probable mistakes: the fetch has no value at this point.
    pub warnings: Vec<Error>,
    /// Keywords without a value where the expressions run: using one is an error.
    pub missing: Missing,
    /// True if an expression uses bytes of a body or a TCP stream. Compilation sets it; the caller resets it.
    pub reads_data: bool,
    /// True if an expression uses addresses of connections to servers; set and reset like `reads_data`.
    pub reads_connections: bool,
    /// True if an expression uses data of a stream's log line (times, bytes, retries, termination state); set
    /// and reset like `reads_data`.
    pub reads_stream_record: bool,
    /// True in a `defaults` section. A server must then be named with its backend, since several backends may
    /// inherit the line.
    pub in_defaults: bool,
    /// The current file and line for reports.
    pub position: Option<(&'a [u8], u32)>,
}

impl<'a> Compiler<'a> {
    /// A compiler for one generation. Evaluation needs `variables` and `references`, so the caller keeps
    /// them.
    pub fn new(
        names: &'a dyn Names,
        variables: &'a mut VariableNames,
        references: &'a mut References,
    ) -> Self {
        Self {
            names,
            variables,
            references,
            acls: Acls::default(),
            warnings: Vec::new(),
            missing: |_, _| None,
            reads_data: false,
            reads_connections: false,
            reads_stream_record: false,
            in_defaults: false,
            position: None,
        }
    }

    /// The current position for reports.
    pub(crate) fn at(&self) -> String {
        self.position.map_or("an unknown line".to_owned(), |(file, line)| {
            format!("file '{}' line {line}", Shown(file))
        })
    }

    /// Removes and returns the warnings so far.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings)
    }
}

/// Documentation of a fetch or a converter.
#[derive(Clone, Copy, Debug)]
pub struct KeywordDoc {
    /// Its name.
    pub name: &'static str,
    /// What it does: one sentence without the full stop.
    pub help: &'static str,
    /// Why it is refused; `None` if it is built.
    pub refused: Option<&'static str>,
    /// Points at which a fetch has a value; `None` for converters.
    pub points: Option<EvalPoints>,
}

/// All fetches, sorted by name, including those that are not built.
pub fn fetches() -> impl Iterator<Item = KeywordDoc> {
    fetch::table().iter().map(|row| KeywordDoc {
        name: row.name,
        help: row.help,
        refused: row.refused(),
        points: Some(row.points),
    })
}

/// All converters, sorted by name, including those that are not built.
pub fn converters() -> impl Iterator<Item = KeywordDoc> {
    convert::table().iter().map(|row| KeywordDoc {
        name: row.name,
        help: row.help,
        refused: row.refused(),
        points: None,
    })
}
