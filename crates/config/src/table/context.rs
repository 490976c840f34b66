//! Sections and option lists in which keywords are valid.

use super::{Keyword, own};

/// A kind of section, or an option list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeywordContext {
    /// `global`
    Global,
    /// `defaults`
    Defaults,
    /// `frontend`
    Frontend,
    /// `listen`
    Listen,
    /// `backend`
    Backend,
    /// `userlist`
    Userlist,
    /// `peers`
    Peers,
    /// `mailers`
    Mailers,
    /// `resolvers`
    Resolvers,
    /// `ring`
    Ring,
    /// `http-errors`
    HttpErrors,
    /// `log-forward`
    LogForward,
    /// `cache`
    Cache,
    /// `program`
    Program,
    /// `fcgi-app`
    FcgiApp,
    /// `crt-store`
    CrtStore,
    /// `traces`
    Traces,
    /// `log-profile`
    LogProfile,
    /// `acme`
    Acme,
    /// `healthcheck`
    Healthcheck,
    /// Options of a `bind` line.
    BindOption,
    /// Options of a `server` line.
    ServerOption,
    /// Section headers, which are valid anywhere, and the lines before the first section.
    Top,
}

/// All places with their names.
const ALL: [(KeywordContext, &str); 23] = [
    (KeywordContext::Global, "global"),
    (KeywordContext::Defaults, "defaults"),
    (KeywordContext::Frontend, "frontend"),
    (KeywordContext::Listen, "listen"),
    (KeywordContext::Backend, "backend"),
    (KeywordContext::Userlist, "userlist"),
    (KeywordContext::Peers, "peers"),
    (KeywordContext::Mailers, "mailers"),
    (KeywordContext::Resolvers, "resolvers"),
    (KeywordContext::Ring, "ring"),
    (KeywordContext::HttpErrors, "http-errors"),
    (KeywordContext::LogForward, "log-forward"),
    (KeywordContext::Cache, "cache"),
    (KeywordContext::Program, "program"),
    (KeywordContext::FcgiApp, "fcgi-app"),
    (KeywordContext::CrtStore, "crt-store"),
    (KeywordContext::Traces, "traces"),
    (KeywordContext::LogProfile, "log-profile"),
    (KeywordContext::Acme, "acme"),
    (KeywordContext::Healthcheck, "healthcheck"),
    (KeywordContext::BindOption, "bind"),
    (KeywordContext::ServerOption, "server"),
    (KeywordContext::Top, "top"),
];

impl KeywordContext {
    /// Proxies and their `defaults`.
    pub(super) const PROXIES: [Self; 4] = [Self::Defaults, Self::Frontend, Self::Listen, Self::Backend];

    pub(crate) fn is_proxy(self) -> bool {
        Self::PROXIES.contains(&self)
    }

    /// The keyword that begins the section.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(context, _)| *context == self).map_or("", |(_, name)| name)
    }

    /// The section that a keyword begins.
    pub(crate) fn section(word: &[u8]) -> Option<Self> {
        let sections = ALL.iter().filter(|(context, _)| *context < Self::BindOption);
        sections.clone().find(|(_, name)| name.as_bytes() == word).map(|(context, _)| *context)
    }

    /// All sections.
    pub(super) fn sections() -> impl Iterator<Item = Self> {
        ALL.iter().map(|(context, _)| *context).filter(|context| *context < Self::BindOption)
    }

    /// Keywords that begin sections.
    pub(crate) fn section_names() -> impl Iterator<Item = &'static str> {
        Self::sections().map(Self::name)
    }
}

/// A set of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeywordContexts(u32);

impl KeywordContexts {
    pub(super) const fn of(contexts: &[KeywordContext]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < contexts.len() {
            bits |= 1 << contexts[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// True if the set has `context`.
    pub fn contains(self, context: KeywordContext) -> bool {
        self.0 & 1 << context as u8 != 0
    }

    /// All places of the set.
    pub fn iter(self) -> impl Iterator<Item = KeywordContext> {
        ALL.iter().map(|(context, _)| *context).filter(move |section| self.contains(*section))
    }
}

use KeywordContext::*;

pub(super) const GLOBAL: KeywordContexts = KeywordContexts::of(&[Global]);
/// Named after the manual's columns: `D` defaults, `F` frontend, `L` listen, `B` backend.
pub(super) const DFLB: KeywordContexts = KeywordContexts::of(&[Defaults, Frontend, Listen, Backend]);
pub(super) const DFL: KeywordContexts = KeywordContexts::of(&[Defaults, Frontend, Listen]);
pub(super) const DLB: KeywordContexts = KeywordContexts::of(&[Defaults, Listen, Backend]);
pub(super) const FLB: KeywordContexts = KeywordContexts::of(&[Frontend, Listen, Backend]);
pub(super) const FL: KeywordContexts = KeywordContexts::of(&[Frontend, Listen]);
pub(super) const LB: KeywordContexts = KeywordContexts::of(&[Listen, Backend]);
pub(super) const BIND: KeywordContexts = KeywordContexts::of(&[BindOption]);
pub(super) const SERVER: KeywordContexts = KeywordContexts::of(&[ServerOption]);

/// Rows of the section headers.
pub(super) fn rows() -> Vec<Keyword> {
    const TOP: KeywordContexts = KeywordContexts::of(&[Top]);
    let read = |_: &mut crate::build::Builder<'_>, _: &crate::build::Line<'_>| {};
    vec![
        own("global", TOP, "", 0, "settings of the process; may be repeated").adds().built(read),
        own("defaults", TOP, "[<name>] [from <name>]", 0, "settings that following proxies begin with")
            .adds()
            .built(read),
        own("frontend", TOP, "<name> [from <name>]", 1, "listens, and chooses a backend for each request")
            .adds()
            .built(read),
        own("backend", TOP, "<name> [from <name>]", 1, "servers, and how one of them is chosen")
            .adds()
            .built(read),
        own("listen", TOP, "<name> [from <name>]", 1, "a frontend and its backend in one").adds().built(read),
        own("userlist", TOP, "<name>", 1, "users, their passwords and groups").adds().built(read),
        own("peers", TOP, "<name>", 1, "processes that share stick tables").adds().built(read),
        own("mailers", TOP, "<name>", 1, "mail servers for alerts").adds().built(read),
        own("resolvers", TOP, "<name>", 1, "name servers, and how long their answers hold")
            .adds()
            .built(read),
        own("ring", TOP, "<name>", 1, "a buffer for log lines, and servers that they are sent to")
            .adds()
            .built(read),
        own("http-errors", TOP, "<name>", 1, "a named group of error files").adds().built(read),
        own("log-forward", TOP, "<name>", 1, "forwards syslog messages").adds().built(read),
        own("cache", TOP, "<name>", 1, "keeps small responses").adds().refused("the cache is not built yet"),
        own("program", TOP, "<name>", 1, "starts a program beside the proxy")
            .adds()
            .refused("a service manager starts programs better; newer versions of HAProxy have removed it"),
        own("fcgi-app", TOP, "<name>", 1, "describes a FastCGI application")
            .adds()
            .idle("FastCGI is not built: what uses it is refused"),
        own("crt-store", TOP, "[<name>]", 0, "certificates and where they are found").adds().built(read),
        own("traces", TOP, "", 0, "traces for developers").adds().refused("traces are not built"),
        own("healthcheck", TOP, "<name>", 1, "a health check that servers name").adds().built(read),
        own("log-profile", TOP, "<name>", 1, "what lines to a target say, by step").adds().built(read),
        own("acme", TOP, "<name>", 1, "an authority that issues certificates").adds().built(read),
    ]
}
