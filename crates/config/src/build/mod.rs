//! Builds the checked tree from statements.
//!
//! For each line, the table gives the keyword, the sections in which it is valid, and the number and types of
//! its arguments. If they match, the handler of the keyword runs. Otherwise the error is reported and the
//! next line is read, so one run finds all errors. After the last file, names and references are checked.

mod check;
mod inherit;
mod line;
mod log_backends;
pub(crate) mod parse;
mod section;

pub(crate) use line::{Line, Prefix};
pub use parse::algorithms;

use crate::cond::Build;
use crate::diag::Diagnostics;
use crate::guess;
use crate::lex::{Environment, Word};
use crate::limits::{MAX_BINDS, MAX_SECTIONS, MAX_SERVERS};
use crate::read::{Item, Reader};
use crate::source::{Pos, Sources};
use crate::table::{BindOptions, KeywordContext, ServerOptions};
use crate::tree::{
    Acme, Config, CrtStore, HttpErrors, LogForward, LogProfile, Mailers, Peers, Proxy, Resolvers, Ring,
    Settings, Userlist,
};
use section::Current;
use std::collections::{HashMap, HashSet};

/// Result of reading a configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The tree. Use it only if `found` has no errors.
    pub config: Config,
    /// All findings.
    pub found: Diagnostics,
}

/// Reads all sources. `environment` is the environment of the first line. `diag_mode` is `-dD`.
///
/// Never panics. Time and memory are bounded by [`crate::limits`].
pub fn load(sources: &Sources, build: &Build, environment: Environment, diag_mode: bool) -> Loaded {
    let mut found = Diagnostics::new(diag_mode);
    let mut reader = Reader::new(sources, build, environment);
    let mut builder = Builder {
        found: &mut found,
        config: Config::default(),
        environment: Environment::new(),
        bind: BindOptions::default(),
        server: ServerOptions::default(),
        current: Current::Top,
        indent: 1,
        used: HashSet::new(),
        names: HashSet::new(),
        last_defaults: None,
        named_defaults: HashMap::new(),
        sections: 0,
        servers: 0,
        binds: 0,
        inherited: 0,
        sources,
    };
    // Allocate once: a vector that grows has a peak of three times its size.
    builder.config.proxies.reserve_exact(sources.proxies().min(MAX_SECTIONS));
    while let Some(item) = reader.next(builder.found) {
        match item {
            Item::Statement(words) => {
                builder.environment = std::mem::take(&mut reader.environment);
                builder.statement(&words);
                reader.environment = std::mem::take(&mut builder.environment);
                reader.section = builder.section_name();
                let global = &builder.config.global;
                for (off, name) in [(global.noreuseport, "REUSEPORT"), (global.nosplice, "SPLICE")] {
                    if off.is_some() {
                        reader.build = reader.build.without(name);
                    }
                }
            }
            Item::EndOfFile(_) => builder.current = Current::Top,
        }
    }
    builder.config.environment = reader.environment;
    builder.config.files = sources.files().map(|file| sources.name(file).into()).collect();
    check::check(&mut builder);
    let config = builder.config;
    Loaded { config, found }
}

/// State while the tree is being built.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) found: &'a mut Diagnostics,
    pub(crate) config: Config,
    /// The environment that the next line sees.
    pub(crate) environment: Environment,
    /// Options of the current `bind` line.
    pub(crate) bind: BindOptions,
    /// Options of the current `server` line.
    pub(crate) server: ServerOptions,
    /// The current section.
    current: Current,
    /// Column of its header.
    indent: u32,
    /// Keywords of the current section that may not be repeated.
    used: HashSet<&'static str>,
    /// Unique names in the current section, each after a letter for its kind.
    names: HashSet<Vec<u8>>,
    /// Indexes in `config.proxies`: the last `defaults` section, and the first two of each name.
    last_defaults: Option<usize>,
    named_defaults: HashMap<Vec<u8>, (usize, Option<usize>)>,
    /// Counters for the limits of the run.
    sections: usize,
    servers: usize,
    binds: usize,
    inherited: usize,
    sources: &'a Sources,
}

/// Rows are found by place, so a handler runs only in the sections of its row.
const PLACED: &str = "a keyword runs only in the sections of its row";

impl Builder<'_> {
    /// The kind of the current section.
    pub(crate) fn context(&self) -> KeywordContext {
        self.current.context(&self.config)
    }

    pub(crate) fn proxy(&mut self) -> &mut Proxy {
        match self.current {
            Current::Proxy(index) => &mut self.config.proxies[index],
            Current::Healthcheck(index) => &mut self.config.healthchecks[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn log_forward(&mut self) -> &mut LogForward {
        self.proxy().forward.as_mut().expect(PLACED)
    }

    pub(crate) fn settings(&mut self) -> &mut Settings {
        &mut self.proxy().settings
    }

    pub(crate) fn userlist(&mut self) -> &mut Userlist {
        match self.current {
            Current::Userlist(index) => &mut self.config.userlists[index],
            _ => panic!("{PLACED}"),
        }
    }

    /// The current `http-errors` section; `None` in other sections.
    pub(crate) fn http_errors(&mut self) -> Option<&mut HttpErrors> {
        match self.current {
            Current::HttpErrors(index) => Some(&mut self.config.http_errors[index]),
            _ => None,
        }
    }

    pub(crate) fn resolvers(&mut self) -> &mut Resolvers {
        match self.current {
            Current::Resolvers(index) => &mut self.config.resolvers[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn mailers(&mut self) -> &mut Mailers {
        match self.current {
            Current::Mailers(index) => &mut self.config.mailers[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn peers(&mut self) -> &mut Peers {
        match self.current {
            Current::Peers(index) => &mut self.config.peers[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn ring(&mut self) -> &mut Ring {
        match self.current {
            Current::Ring(index) => &mut self.config.rings[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn log_profile(&mut self) -> &mut LogProfile {
        match self.current {
            Current::LogProfile(index) => &mut self.config.log_profiles[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn crt_store(&mut self) -> &mut CrtStore {
        match self.current {
            Current::CrtStore(index) => &mut self.config.crt_stores[index],
            _ => panic!("{PLACED}"),
        }
    }

    pub(crate) fn acme(&mut self) -> &mut Acme {
        match self.current {
            Current::Acme(index) => &mut self.config.acmes[index],
            _ => panic!("{PLACED}"),
        }
    }

    /// Takes a name in the current section. False if it is taken.
    pub(crate) fn takes_name(&mut self, kind: u8, name: &Word) -> bool {
        self.names.insert([&[kind], name.bytes()].concat())
    }

    /// Takes a name as [`takes_name`](Self::takes_name), and reports one that is taken.
    pub(crate) fn declares(&mut self, kind: u8, what: &str, name: &Word) -> bool {
        let is_new = self.takes_name(kind, name);
        if !is_new {
            let message = format!(
                "a section expects each {what} once, found '{}' again: give it another name",
                name.shown()
            );
            self.found.alert(name.pos(), message);
        }
        is_new
    }

    /// Counts `count` more servers. False, with an error, beyond the limit.
    pub(crate) fn has_room_for_servers(&mut self, pos: Pos, count: u64) -> bool {
        if count > (MAX_SERVERS - self.servers) as u64 {
            self.found.alert(pos, format!("expected at most {MAX_SERVERS} servers, found more"));
            return false;
        }
        self.servers += count as usize;
        true
    }

    /// Counts a `bind` line. False, with an error, beyond the limit.
    pub(crate) fn has_room_for_bind(&mut self, pos: Pos) -> bool {
        if self.binds >= MAX_BINDS {
            self.found.alert(pos, format!("expected at most {MAX_BINDS} 'bind' lines, found more"));
            return false;
        }
        self.binds += 1;
        true
    }

    fn statement(&mut self, words: &[Word]) {
        if let Some(context) = KeywordContext::section(words[0].bytes()) {
            self.begin_section(context, words);
        } else {
            self.keyword(words);
        }
    }
}

/// `; did you mean 'x'?` with the nearest known words, or an empty string.
pub(crate) fn proposal<'a>(word: &Word, known: impl IntoIterator<Item = &'a str>) -> String {
    guess(word.bytes(), known)
}
