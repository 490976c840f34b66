//! From statements to the checked tree.
//!
//! Each line goes through the table: which keyword is it, is it legal here, does it have the right number of
//! words, are they of the right kind. Then the keyword's own code runs. What is wrong is reported and the
//! next line is read, so that one run finds all errors; when all files are read, names and references are
//! checked.

mod check;
mod inherit;
mod line;
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
use crate::table::{BindOptions, SectionKind, ServerOptions};
use crate::tree::{
    Config, CrtStore, HttpErrors, LogProfile, Peers, Proxy, Resolvers, Ring, Settings, Userlist,
};
use section::Current;
use std::collections::{HashMap, HashSet};

/// What a run of reading gives.
#[derive(Debug)]
pub struct Loaded {
    /// The tree; use it only if `found` has no errors.
    pub config: Config,
    /// All findings.
    pub found: Diagnostics,
}

/// Reads all sources. `environment` is what lines see at the beginning, `diag_mode` is `-dD`.
///
/// Never panics, whatever is in the sources; ends in time and memory bounded by [`crate::limits`].
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
    // As many as there are: a vector that grows needs three times as much for a moment.
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

/// The tree at work.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) found: &'a mut Diagnostics,
    pub(crate) config: Config,
    /// The environment that the next line sees.
    pub(crate) environment: Environment,
    /// Options of the `bind` line at work.
    pub(crate) bind: BindOptions,
    /// Options of the `server` line at work.
    pub(crate) server: ServerOptions,
    /// The section at work.
    current: Current,
    /// Keywords of the section that may not be repeated.
    used: HashSet<&'static str>,
    /// Names in the section that may not be taken twice, behind a letter for their kind.
    names: HashSet<Vec<u8>>,
    /// The last `defaults` section, and the first two of each name: indexes of the tree's proxies.
    last_defaults: Option<usize>,
    named_defaults: HashMap<Vec<u8>, (usize, Option<usize>)>,
    /// Counts of the run, for the limits.
    sections: usize,
    servers: usize,
    binds: usize,
    inherited: usize,
    sources: &'a Sources,
}

/// Rows are found by place, so a row of proxies runs in proxies only, and so on for every kind of section.
const PLACED: &str = "a keyword runs only in the sections of its row";

impl Builder<'_> {
    /// Where the next line stands.
    pub(crate) fn place(&self) -> SectionKind {
        self.current.place(&self.config)
    }

    pub(crate) fn proxy(&mut self) -> &mut Proxy {
        match self.current {
            Current::Proxy(index) => &mut self.config.proxies[index],
            _ => panic!("{PLACED}"),
        }
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

    /// The `http-errors` section at work, if it is one.
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

    /// Whether the section has no such name yet; it has it then.
    pub(crate) fn takes_name(&mut self, kind: u8, name: &Word) -> bool {
        self.names.insert([&[kind], name.bytes()].concat())
    }

    /// Whether `count` more servers are allowed.
    pub(crate) fn has_room_for_servers(&mut self, pos: Pos, count: u64) -> bool {
        if count > (MAX_SERVERS - self.servers) as u64 {
            self.found.alert(pos, format!("there are more than {MAX_SERVERS} servers"));
            return false;
        }
        self.servers += count as usize;
        true
    }

    /// Whether one more listener is allowed.
    pub(crate) fn has_room_for_bind(&mut self, pos: Pos) -> bool {
        if self.binds >= MAX_BINDS {
            self.found.alert(pos, format!("there are more than {MAX_BINDS} 'bind' lines"));
            return false;
        }
        self.binds += 1;
        true
    }

    fn statement(&mut self, words: &[Word]) {
        if let Some(place) = SectionKind::section(words[0].bytes()) {
            self.begin_section(place, words);
        } else {
            self.keyword(words);
        }
    }
}

/// `; did you mean 'x'?` with the nearest known words, or nothing.
pub(crate) fn proposal<'a>(word: &Word, known: impl IntoIterator<Item = &'a str>) -> String {
    guess(word.bytes(), known)
}
