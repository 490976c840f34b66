//! What an expression may name: proxies, servers, user lists, variables, files.

use crate::acl::Acls;
use crate::convert;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::fetch;
use crate::pattern::References;
use crate::show::Shown;
use crate::table::NamedTable;
use crate::variable::VariableNames;

/// A proxy of the generation; what the number means is the business of who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProxyId(pub u32);

/// A server of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// A user list of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserlistId(pub u32);

/// One of a proxy's two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxySide {
    /// It listens.
    Front,
    /// It has servers.
    Back,
}

/// Resolves names while a generation is built.
pub trait Names {
    /// The proxy of that name with that side.
    fn proxy(&self, name: &[u8], side: ProxySide) -> Option<ProxyId>;
    /// The proxy whose line is compiled, if it has that side.
    fn current(&self, side: ProxySide) -> Option<ProxyId>;
    /// The server of that name of the backend.
    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId>;
    /// The user list of that name.
    fn userlist(&self, name: &[u8]) -> Option<UserlistId>;
    /// Whether the user list has that group.
    fn has_group(&self, list: UserlistId, name: &[u8]) -> bool;
    /// The stick table of that name, which is that of its proxy.
    fn table(&self, _name: &[u8]) -> Option<NamedTable> {
        None
    }
    /// A variable of the environment as the configuration sees it.
    fn environment(&self, name: &[u8]) -> Option<Vec<u8>>;
    /// The bytes of a map or a file of patterns; `name` is as it was written.
    fn file(&self, name: &[u8]) -> std::io::Result<Vec<u8>>;
}

/// What a word of an expression looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// At nothing but its arguments, the clock and variables.
    Fixed,
    /// At the connections and what the stream remembers.
    Connection,
    /// At a number of the host's.
    Number,
    /// At a message's head, or its body for a form's parameter.
    Message,
    /// At bytes of a body or of a TCP stream.
    Data,
    /// It is a converter.
    Converter,
    /// It is an alias of a log format.
    Alias,
}

/// Why a fetch, a converter or an alias would give nothing where the expressions will run; nothing when it
/// works.
pub type Missing = fn(name: &str, looks: Looks) -> Option<&'static str>;

/// Compiles the expressions of one generation.
pub struct Compiler<'a> {
    /// Resolves names.
    pub names: &'a dyn Names,
    /// All variables that the generation's expressions name.
    pub variables: &'a mut VariableNames,
    /// All maps and files of patterns that they use.
    pub references: &'a mut References,
    /// The named ACLs that its conditions and the fetch `acl` see.
    pub acls: Acls,
    /// What is probably not meant: the fetch gives nothing at this place.
    pub warnings: Vec<Error>,
    /// What whoever runs the expressions does not supply: using it is an error.
    pub missing: Missing,
    /// Something compiled so far looks at bytes of a body or of a TCP stream. Set here, reset by whoever
    /// wants to know.
    pub reads_data: bool,
    /// The same of the addresses of connections to servers.
    pub looks_at_links: bool,
    /// The same of what a stream's log line says of its course: times, bytes, tries, its end.
    pub looks_at_course: bool,
    /// The line at work stands in a `defaults` section: a server must be named with its backend, since the
    /// backends that begin with the section differ.
    pub in_defaults: bool,
    /// The file and line at work, as reports name them.
    pub place: Option<(&'a [u8], u32)>,
}

impl<'a> Compiler<'a> {
    /// For one generation; `variables` and `references` are kept by the caller, since evaluation needs them.
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
            looks_at_links: false,
            looks_at_course: false,
            in_defaults: false,
            place: None,
        }
    }

    /// Where the line at work stands.
    pub(crate) fn at(&self) -> String {
        self.place.map_or("an unknown place".to_owned(), |(file, line)| {
            format!("file '{}' line {line}", Shown(file))
        })
    }

    /// The warnings so far, taken out.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings)
    }
}

/// What `--help` and the manual say about a fetch or a converter.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// One sentence without its full stop.
    pub help: &'static str,
    /// Why it is refused, if it is.
    pub refused: Option<&'static str>,
    /// Where a fetch has something to give; nothing for converters.
    pub places: Option<EvalPoints>,
}

/// All fetches, in order of their names, those that are not built yet among them.
pub fn fetches() -> impl Iterator<Item = Described> {
    fetch::table().iter().map(|row| Described {
        name: row.name,
        help: row.help,
        refused: row.refused(),
        places: Some(row.places),
    })
}

/// All converters, in order of their names, those that are not built yet among them.
pub fn converters() -> impl Iterator<Item = Described> {
    convert::table().iter().map(|row| Described {
        name: row.name,
        help: row.help,
        refused: row.refused(),
        places: None,
    })
}
