//! Section headers, and the state of the current section.

use super::{Builder, proposal};
use crate::lex::Word;
use crate::limits::{MAX_DIAGNOSTICS, MAX_INHERITED, MAX_SECTIONS};
use crate::table::{KeywordContext, Status, Table};
use crate::tree::{
    Acme, BindOptions, Config, CrtStore, HttpErrors, LogForward, LogProfile, Mailers, Peers, Proxy,
    ProxyKind, Resolvers, Ring, ServerOptions, Settings, Userlist,
};
use crate::{Shown, nearest};

/// Words of the longest header: `backend b from d`.
const LONGEST_HEADER: usize = 4;

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
    Mailers(usize),
    Peers(usize),
    Ring(usize),
    LogProfile(usize),
    Healthcheck(usize),
    CrtStore(usize),
    Acme(usize),
    /// A section whose lines are checked but have no effect.
    FcgiApp,
    /// A refused section: its lines are skipped without further errors.
    Skipped,
}

impl Current {
    pub(super) fn context(self, config: &Config) -> KeywordContext {
        match self {
            Self::Top | Self::Skipped => KeywordContext::Top,
            Self::Global => KeywordContext::Global,
            Self::Proxy(index) if config.proxies[index].forward.is_some() => KeywordContext::LogForward,
            Self::Proxy(index) => match config.proxies[index].kind {
                ProxyKind::Defaults => KeywordContext::Defaults,
                ProxyKind::Frontend => KeywordContext::Frontend,
                ProxyKind::Backend => KeywordContext::Backend,
                ProxyKind::Listen => KeywordContext::Listen,
            },
            Self::Userlist(_) => KeywordContext::Userlist,
            Self::HttpErrors(_) => KeywordContext::HttpErrors,
            Self::Resolvers(_) => KeywordContext::Resolvers,
            Self::Mailers(_) => KeywordContext::Mailers,
            Self::Peers(_) => KeywordContext::Peers,
            Self::Ring(_) => KeywordContext::Ring,
            Self::LogProfile(_) => KeywordContext::LogProfile,
            Self::Healthcheck(_) => KeywordContext::Healthcheck,
            Self::CrtStore(_) => KeywordContext::CrtStore,
            Self::Acme(_) => KeywordContext::Acme,
            Self::FcgiApp => KeywordContext::FcgiApp,
        }
    }
}

impl Builder<'_> {
    /// Value of `.SECTION` for the next line.
    pub(super) fn section_name(&self) -> Vec<u8> {
        match (self.section_word(), self.current) {
            (Some(name), _) if !name.bytes().is_empty() => name.bytes().to_vec(),
            (_, Current::Top | Current::Skipped) => Vec::new(),
            _ => self.context().name().as_bytes().to_vec(),
        }
    }

    /// The name of the current section; `None` for sections that have none.
    pub(super) fn section_word(&self) -> Option<&Word> {
        Some(match self.current {
            Current::Top | Current::Skipped | Current::FcgiApp | Current::Global => return None,
            Current::Proxy(index) => &self.config.proxies[index].name,
            Current::Userlist(index) => &self.config.userlists[index].name,
            Current::HttpErrors(index) => &self.config.http_errors[index].name,
            Current::Resolvers(index) => &self.config.resolvers[index].name,
            Current::Mailers(index) => &self.config.mailers[index].name,
            Current::Peers(index) => &self.config.peers[index].name,
            Current::Ring(index) => &self.config.rings[index].name,
            Current::LogProfile(index) => &self.config.log_profiles[index].name,
            Current::Healthcheck(index) => &self.config.healthchecks[index].name,
            Current::CrtStore(index) => &self.config.crt_stores[index].name,
            Current::Acme(index) => &self.config.acmes[index].name,
        })
    }

    pub(super) fn begin_section(&mut self, context: KeywordContext, words: &[Word]) {
        self.used.clear();
        self.names.clear();
        self.indent = words[0].pos().column;
        self.sections += 1;
        if self.sections > MAX_SECTIONS {
            self.found.alert(words[0].pos(), format!("expected at most {MAX_SECTIONS} sections, found more"));
            self.current = Current::Skipped;
            return;
        }
        if let Some(row) = Table::get().find(context.name(), KeywordContext::Top)
            && let Status::Refused(reason) = row.status
        {
            let message =
                format!("section '{}' is a section of HAProxy that this program refuses: {reason}", row.name);
            self.found.alert(words[0].pos(), message);
            self.current = Current::Skipped;
            return;
        }
        let kind = match context {
            KeywordContext::Global => {
                if let Some(extra) = words.get(1) {
                    self.found.alert(
                        extra.pos(),
                        format!("'global' expects no argument, found '{}'", extra.shown()),
                    );
                }
                self.current = Current::Global;
                return;
            }
            KeywordContext::FcgiApp => {
                self.name(words);
                self.current = Current::FcgiApp;
                return;
            }
            KeywordContext::CrtStore => return self.begin_crt_store(words),
            KeywordContext::LogForward => return self.begin_log_forward(words),
            KeywordContext::Defaults => ProxyKind::Defaults,
            KeywordContext::Frontend => ProxyKind::Frontend,
            KeywordContext::Backend => ProxyKind::Backend,
            KeywordContext::Listen => ProxyKind::Listen,
            _ => return self.begin_named(context, words),
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
                "'{}' expects a name of letters, digits and . : _ -, found '{}' in '{}'",
                header.shown(),
                Shown(&name.bytes()[at..=at]),
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
            [extra, ..] if kind.is_frontend() => {
                let message = format!(
                    "'{}' expects nothing behind its name, found '{extra}': write 'bind {extra}' in a line \
                     of its own",
                    header.shown(),
                    extra = extra.shown()
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
                let message = format!(
                    "at most {MAX_INHERITED} lines come from 'defaults' sections, found more: shorten those"
                );
                self.found.alert(header.pos(), message);
                Settings::default()
            }
            Some(index) => self.config.proxies[index].settings.clone(),
            None => Settings { unsure: explicit.is_some(), ..Settings::default() },
        };
        self.config.proxies.push(Proxy {
            defaults,
            explicit_defaults: explicit.is_some(),
            ..Proxy::bare(kind, name, header.pos(), settings)
        });
        let index = self.config.proxies.len() - 1;
        if kind.is_frontend() && rest.first().is_some_and(|word| *word != "from") {
            self.config.proxies[index].settings.refused.push("bind"); // the address behind the name
        }
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
                    "{} '{}' expects one 'defaults' section of the name '{}', found several, at {} and {}: \
                     rename one",
                    kind.name(),
                    name.shown(),
                    base.shown(),
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
                    "{} '{}' expects the name of a 'defaults' section above it, found '{}'{}",
                    kind.name(),
                    name.shown(),
                    base.shown(),
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
    fn begin_named(&mut self, context: KeywordContext, words: &[Word]) {
        let name = self.name(words);
        if let Some(extra) = words.get(2) {
            self.unexpected(&words[0], extra);
        }
        let config = &mut self.config;
        let same = |known: &Word| known.bytes() == name.bytes() && !name.bytes().is_empty();
        let twin = match context {
            KeywordContext::Userlist => config.userlists.iter().any(|section| same(&section.name)),
            KeywordContext::HttpErrors => config.http_errors.iter().any(|section| same(&section.name)),
            KeywordContext::Resolvers => config.resolvers.iter().any(|section| same(&section.name)),
            KeywordContext::Mailers => config.mailers.iter().any(|section| same(&section.name)),
            KeywordContext::LogProfile => config.log_profiles.iter().any(|section| same(&section.name)),
            KeywordContext::Healthcheck => config.healthchecks.iter().any(|section| same(&section.name)),
            KeywordContext::Peers => config.peers.iter().any(|section| same(&section.name)),
            KeywordContext::Acme => config.acmes.iter().any(|section| same(&section.name)),
            _ => config.rings.iter().any(|section| same(&section.name)),
        };
        if twin {
            let message = format!(
                "'{}' expects a name of its own, found '{}', which a section above has",
                words[0].shown(),
                name.shown()
            );
            self.found.alert(name.pos(), message);
        }
        self.current = match context {
            KeywordContext::Userlist => {
                config.userlists.push(Userlist { name, groups: Vec::new(), users: Vec::new() });
                Current::Userlist(config.userlists.len() - 1)
            }
            KeywordContext::HttpErrors => {
                config.http_errors.push(HttpErrors { name, files: Vec::new() });
                Current::HttpErrors(config.http_errors.len() - 1)
            }
            KeywordContext::Resolvers => {
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
            KeywordContext::Mailers => {
                config.mailers.push(Mailers { name, mailers: Vec::new(), timeout: None });
                Current::Mailers(config.mailers.len() - 1)
            }
            KeywordContext::LogProfile => {
                config.log_profiles.push(LogProfile { name, tag: None, steps: Vec::new() });
                Current::LogProfile(config.log_profiles.len() - 1)
            }
            KeywordContext::Healthcheck => {
                let section = Proxy::bare(ProxyKind::Defaults, name, words[0].pos(), Settings::default());
                config.healthchecks.push(section);
                Current::Healthcheck(config.healthchecks.len() - 1)
            }
            KeywordContext::Peers => {
                config.peers.push(Peers {
                    name,
                    disabled: None,
                    binds: Vec::new(),
                    default_bind: BindOptions::default(),
                    peers: Vec::new(),
                    default_server: ServerOptions::default(),
                    shards: None,
                    tables: Vec::new(),
                });
                Current::Peers(config.peers.len() - 1)
            }
            KeywordContext::Acme => {
                let (directory, contact, account_key, map) = (None, None, None, None);
                let (eab_key_id, eab_mac_key, eab_mac_alg) = (None, None, None);
                let (bits, curves, keytype, challenge) = (None, None, None, None);
                config.acmes.push(Acme {
                    name,
                    directory,
                    contact,
                    account_key,
                    bits,
                    curves,
                    keytype,
                    challenge,
                    eab_key_id,
                    eab_mac_key,
                    eab_mac_alg,
                    map,
                });
                Current::Acme(config.acmes.len() - 1)
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

    /// The section that an unknown keyword begins if it is a misspelt header: it is as far to the left as
    /// the last header, and nothing that this section has is nearer. Beyond [`MAX_DIAGNOSTICS`] errors none
    /// is looked for.
    pub(super) fn misspelt_section(&self, words: &[Word]) -> Option<KeywordContext> {
        let context = self.context();
        let head = &words[0];
        let is_header = context == KeywordContext::Top || head.pos().column == self.indent;
        if !is_header || words.len() > LONGEST_HEADER || self.found.errors() >= MAX_DIAGNOSTICS {
            return None;
        }
        let section = nearest(head.bytes(), KeywordContext::section_names())?;
        let rows = Table::get().rows().iter().filter(|row| row.contexts.contains(context));
        let known = std::iter::once(section).chain(rows.filter_map(|row| row.name.split(' ').next()));
        let is_nearest = nearest(head.bytes(), known) == Some(section);
        KeywordContext::section(section.as_bytes()).filter(|_| is_nearest)
    }

    /// True in a refused section.
    pub(super) fn skips(&self) -> bool {
        self.current == Current::Skipped
    }
}
