//! Section headers, and the state of the current section.

use super::{Builder, proposal};
use crate::Shown;
use crate::lex::Word;
use crate::limits::{MAX_INHERITED, MAX_SECTIONS};
use crate::table::{SectionKind, Status, Table};
use crate::tree::{
    Config, CrtStore, HttpErrors, LogForward, LogProfile, Peers, Proxy, ProxyKind, Resolvers, Ring, Settings,
    Userlist,
};

/// The current section, with its index in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    /// No section yet in this file.
    Top,
    Global,
    Proxy(usize),
    Userlist(usize),
    HttpErrors(usize),
    Resolvers(usize),
    Peers(usize),
    Ring(usize),
    LogProfile(usize),
    Healthcheck(usize),
    CrtStore(usize),
    /// A section whose lines are checked but have no effect.
    FcgiApp,
    /// A refused section: its lines are skipped without further errors.
    Skipped,
}

impl Current {
    pub(super) fn place(self, config: &Config) -> SectionKind {
        match self {
            Self::Top | Self::Skipped => SectionKind::Top,
            Self::Global => SectionKind::Global,
            Self::Proxy(index) if config.proxies[index].forward.is_some() => SectionKind::LogForward,
            Self::Proxy(index) => match config.proxies[index].kind {
                ProxyKind::Defaults => SectionKind::Defaults,
                ProxyKind::Frontend => SectionKind::Frontend,
                ProxyKind::Backend => SectionKind::Backend,
                ProxyKind::Listen => SectionKind::Listen,
            },
            Self::Userlist(_) => SectionKind::Userlist,
            Self::HttpErrors(_) => SectionKind::HttpErrors,
            Self::Resolvers(_) => SectionKind::Resolvers,
            Self::Peers(_) => SectionKind::Peers,
            Self::Ring(_) => SectionKind::Ring,
            Self::LogProfile(_) => SectionKind::LogProfile,
            Self::Healthcheck(_) => SectionKind::Healthcheck,
            Self::CrtStore(_) => SectionKind::CrtStore,
            Self::FcgiApp => SectionKind::FcgiApp,
        }
    }
}

impl Builder<'_> {
    /// Value of `.SECTION` for the next line.
    pub(super) fn section_name(&self) -> Vec<u8> {
        let name = match self.current {
            Current::Top | Current::Skipped => return Vec::new(),
            Current::FcgiApp => return b"fcgi-app".to_vec(),
            Current::Global => return b"global".to_vec(),
            Current::Proxy(index) => &self.config.proxies[index].name,
            Current::Userlist(index) => &self.config.userlists[index].name,
            Current::HttpErrors(index) => &self.config.http_errors[index].name,
            Current::Resolvers(index) => &self.config.resolvers[index].name,
            Current::Peers(index) => &self.config.peers[index].name,
            Current::Ring(index) => &self.config.rings[index].name,
            Current::LogProfile(index) => &self.config.log_profiles[index].name,
            Current::Healthcheck(index) => &self.config.healthchecks[index].name,
            Current::CrtStore(index) => &self.config.crt_stores[index].name,
        };
        if name.bytes().is_empty() { self.place().name().as_bytes().to_vec() } else { name.bytes().to_vec() }
    }

    pub(super) fn begin_section(&mut self, place: SectionKind, words: &[Word]) {
        self.used.clear();
        self.names.clear();
        self.sections += 1;
        if self.sections > MAX_SECTIONS {
            self.found.alert(words[0].pos(), format!("there are more than {MAX_SECTIONS} sections"));
            self.current = Current::Skipped;
            return;
        }
        if let Some(row) = Table::get().find(place.name(), SectionKind::Top)
            && let Status::Refused(reason) = row.status
        {
            let message =
                format!("section '{}' is a section of HAProxy that this program refuses: {reason}", row.name);
            self.found.alert(words[0].pos(), message);
            self.current = Current::Skipped;
            return;
        }
        let kind = match place {
            SectionKind::Global => {
                if let Some(extra) = words.get(1) {
                    self.found.alert(
                        extra.pos(),
                        format!("'global' expects no argument, found '{}'", extra.shown()),
                    );
                }
                self.current = Current::Global;
                return;
            }
            SectionKind::FcgiApp => {
                self.name(words);
                self.current = Current::FcgiApp;
                return;
            }
            SectionKind::CrtStore => return self.begin_crt_store(words),
            SectionKind::LogForward => return self.begin_log_forward(words),
            SectionKind::Defaults => ProxyKind::Defaults,
            SectionKind::Frontend => ProxyKind::Frontend,
            SectionKind::Backend => ProxyKind::Backend,
            SectionKind::Listen => ProxyKind::Listen,
            _ => return self.begin_named(place, words),
        };
        self.begin_proxy(kind, words);
    }

    /// The name in a header. If it is missing, reports an error and returns an empty name, so that the lines
    /// are still read.
    fn name(&mut self, words: &[Word]) -> Word {
        let header = &words[0];
        let Some(name) = words.get(1) else {
            self.found.alert(header.pos(), format!("'{}' expects <name>, found none", header.shown()));
            return Word::plain("", header.pos());
        };
        self.check_name(header, name);
        name.clone()
    }

    fn check_name(&mut self, header: &Word, name: &Word) {
        if name.bytes().is_empty() {
            self.found.alert(name.pos(), format!("'{}' expects a name that is not empty", header.shown()));
        } else if let Some(at) = super::parse::bad_name_byte(name.bytes()) {
            let message = format!(
                "character '{}' is not permitted in '{}' name '{}', use letters, digits and . : _ -",
                Shown(&name.bytes()[at..=at]),
                header.shown(),
                name.shown()
            );
            self.found.alert(name.pos_at(at), message);
        }
    }

    fn begin_proxy(&mut self, kind: ProxyKind, words: &[Word]) {
        let header = &words[0];
        let named = words.get(1).is_some_and(|word| *word != "from" || kind != ProxyKind::Defaults);
        let (name, rest) = match kind {
            ProxyKind::Defaults if !named => (Word::plain("", header.pos()), &words[1..]),
            ProxyKind::Defaults => (words[1].clone(), &words[2..]),
            _ => (self.name(words), words.get(2..).unwrap_or_default()),
        };
        let mut explicit = None;
        match rest {
            [] => {}
            [from, base, more @ ..] if *from == "from" => {
                explicit = Some(base);
                if let Some(extra) = more.first() {
                    self.unexpected(header, extra);
                }
            }
            [from] if *from == "from" => {
                self.found.alert(from.pos(), "'from' expects the name of a 'defaults' section, found none");
            }
            [extra, ..] if kind != ProxyKind::Defaults => {
                let message = format!(
                    "unexpected '{}', please use the 'bind' keyword for listening addresses",
                    extra.shown()
                );
                self.found.alert(extra.pos(), message);
            }
            [extra, ..] => self.unexpected(header, extra),
        }
        let defaults = match explicit {
            Some(base) => self.named_defaults(kind, &name, base),
            // A `defaults` section starts empty unless it names another one.
            None if kind == ProxyKind::Defaults => None,
            None => self.last_defaults,
        };
        self.inherited += defaults.map_or(0, |index| self.config.proxies[index].settings.lines());
        let settings = match defaults {
            Some(_) if self.inherited > MAX_INHERITED => {
                let message =
                    format!("more than {MAX_INHERITED} lines are taken over from 'defaults' sections");
                self.found.alert(header.pos(), message);
                Settings::default()
            }
            Some(index) => self.config.proxies[index].settings.clone(),
            None => Settings::default(),
        };
        self.config.proxies.push(Proxy {
            defaults,
            explicit_defaults: explicit.is_some(),
            ..Proxy::bare(kind, name, header.pos(), settings)
        });
        let index = self.config.proxies.len() - 1;
        if kind == ProxyKind::Defaults {
            self.last_defaults = Some(index);
            let name = self.config.proxies[index].name.bytes().to_vec();
            self.named_defaults
                .entry(name)
                .and_modify(|known| known.1 = known.1.or(Some(index)))
                .or_insert((index, None));
        }
        self.current = Current::Proxy(index);
    }

    fn unexpected(&mut self, header: &Word, extra: &Word) {
        self.found.alert(
            extra.pos(),
            format!("'{}' expects nothing behind its name, found '{}'", header.shown(), extra.shown()),
        );
    }

    fn named_defaults(&mut self, kind: ProxyKind, name: &Word, base: &Word) -> Option<usize> {
        let proxies = &self.config.proxies;
        let meant = self.named_defaults.get(base.bytes()).filter(|_| !base.bytes().is_empty()).copied();
        match meant {
            Some((index, None)) => {
                let header = Word::plain("defaults", base.pos());
                self.check_name(&header, base);
                Some(index)
            }
            Some((first, Some(second))) => {
                let at = |index: usize| {
                    let pos = self.config.proxies[index].pos;
                    format!("{}:{}", Shown(self.sources.name(pos.file)), pos.line)
                };
                let message = format!(
                    "ambiguous defaults section name '{}' referenced by {} '{}' exists at least at {} and {}",
                    base.shown(),
                    kind.name(),
                    name.shown(),
                    at(first),
                    at(second)
                );
                self.found.alert(base.pos(), message);
                None
            }
            None => {
                let known: Vec<String> = proxies
                    .iter()
                    .filter(|p| p.kind == ProxyKind::Defaults)
                    .filter_map(|p| p.name.text().map(str::to_owned))
                    .collect();
                let message = format!(
                    "defaults section '{}' not found for {} '{}'{}",
                    base.shown(),
                    kind.name(),
                    name.shown(),
                    proposal(base, known.iter().map(String::as_str))
                );
                self.found.alert(base.pos(), message);
                None
            }
        }
    }

    /// A frontend without `defaults`.
    fn begin_log_forward(&mut self, words: &[Word]) {
        let name = self.name(words);
        if let Some(extra) = words.get(2) {
            self.unexpected(&words[0], extra);
        }
        let pos = words[0].pos();
        let forward =
            LogForward { dgram_binds: Vec::new(), dont_parse: false, lines_only: false, host: "fill" };
        self.config.proxies.push(Proxy {
            forward: Some(Box::new(forward)),
            ..Proxy::bare(ProxyKind::Frontend, name, pos, Settings::default())
        });
        self.current = Current::Proxy(self.config.proxies.len() - 1);
        crate::table::forward::begin(self, pos);
    }

    /// The name is optional and need not be unique.
    fn begin_crt_store(&mut self, words: &[Word]) {
        let name = match words.get(1) {
            Some(_) => self.name(words),
            None => Word::plain("", words[0].pos()),
        };
        if let Some(extra) = words.get(2) {
            self.unexpected(&words[0], extra);
        }
        let section = CrtStore { name, crt_base: None, key_base: None, loads: Vec::new() };
        self.config.crt_stores.push(section);
        self.current = Current::CrtStore(self.config.crt_stores.len() - 1);
    }

    /// Begins a section whose header has a name and nothing else.
    fn begin_named(&mut self, place: SectionKind, words: &[Word]) {
        let name = self.name(words);
        if let Some(extra) = words.get(2) {
            self.unexpected(&words[0], extra);
        }
        let config = &mut self.config;
        let same = |known: &Word| known.bytes() == name.bytes() && !name.bytes().is_empty();
        let twin = match place {
            SectionKind::Userlist => config.userlists.iter().any(|section| same(&section.name)),
            SectionKind::HttpErrors => config.http_errors.iter().any(|section| same(&section.name)),
            SectionKind::Resolvers => config.resolvers.iter().any(|section| same(&section.name)),
            SectionKind::LogProfile => config.log_profiles.iter().any(|section| same(&section.name)),
            SectionKind::Healthcheck => config.healthchecks.iter().any(|section| same(&section.name)),
            SectionKind::Peers => config.peers.iter().any(|section| same(&section.name)),
            _ => config.rings.iter().any(|section| same(&section.name)),
        };
        if twin {
            let message =
                format!("there is a '{}' section named '{}' already", words[0].shown(), name.shown());
            self.found.alert(name.pos(), message);
        }
        self.current = match place {
            SectionKind::Userlist => {
                config.userlists.push(Userlist { name, groups: Vec::new(), users: Vec::new() });
                Current::Userlist(config.userlists.len() - 1)
            }
            SectionKind::HttpErrors => {
                config.http_errors.push(HttpErrors { name, files: Vec::new() });
                Current::HttpErrors(config.http_errors.len() - 1)
            }
            SectionKind::Resolvers => {
                config.resolvers.push(Resolvers {
                    name,
                    nameservers: Vec::new(),
                    system: false,
                    holds: Vec::new(),
                    payload: None,
                    retries: None,
                    timeout_resolve: None,
                    timeout_retry: None,
                });
                Current::Resolvers(config.resolvers.len() - 1)
            }
            SectionKind::LogProfile => {
                config.log_profiles.push(LogProfile { name, tag: None, steps: Vec::new() });
                Current::LogProfile(config.log_profiles.len() - 1)
            }
            SectionKind::Healthcheck => {
                let section = Proxy::bare(ProxyKind::Defaults, name, words[0].pos(), Settings::default());
                config.healthchecks.push(section);
                Current::Healthcheck(config.healthchecks.len() - 1)
            }
            SectionKind::Peers => {
                let (binds, peers, tables) = Default::default();
                config.peers.push(Peers { name, disabled: None, binds, peers, tables });
                Current::Peers(config.peers.len() - 1)
            }
            _ => {
                config.rings.push(Ring {
                    name,
                    description: None,
                    format: None,
                    maxlen: None,
                    size: None,
                    backing_file: None,
                    servers: Vec::new(),
                    timeout_connect: None,
                    timeout_server: None,
                });
                Current::Ring(config.rings.len() - 1)
            }
        };
    }

    /// True in a refused section.
    pub(super) fn skips(&self) -> bool {
        self.current == Current::Skipped
    }
}
