//! Sections and option lists in which keywords are valid.

use super::{Keyword, own};

/// A kind of section, or an option list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SectionKind {
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
const ALL: [(SectionKind, &str); 23] = [
    (SectionKind::Global, "global"),
    (SectionKind::Defaults, "defaults"),
    (SectionKind::Frontend, "frontend"),
    (SectionKind::Listen, "listen"),
    (SectionKind::Backend, "backend"),
    (SectionKind::Userlist, "userlist"),
    (SectionKind::Peers, "peers"),
    (SectionKind::Mailers, "mailers"),
    (SectionKind::Resolvers, "resolvers"),
    (SectionKind::Ring, "ring"),
    (SectionKind::HttpErrors, "http-errors"),
    (SectionKind::LogForward, "log-forward"),
    (SectionKind::Cache, "cache"),
    (SectionKind::Program, "program"),
    (SectionKind::FcgiApp, "fcgi-app"),
    (SectionKind::CrtStore, "crt-store"),
    (SectionKind::Traces, "traces"),
    (SectionKind::LogProfile, "log-profile"),
    (SectionKind::Acme, "acme"),
    (SectionKind::Healthcheck, "healthcheck"),
    (SectionKind::BindOption, "bind"),
    (SectionKind::ServerOption, "server"),
    (SectionKind::Top, "top"),
];

impl SectionKind {
    /// Proxies and their `defaults`.
    pub(super) const PROXIES: [Self; 4] = [Self::Defaults, Self::Frontend, Self::Listen, Self::Backend];

    pub(crate) fn is_proxy(self) -> bool {
        Self::PROXIES.contains(&self)
    }

    /// The keyword that begins the section.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(place, _)| *place == self).map_or("", |(_, name)| name)
    }

    /// The section that a keyword begins.
    pub(crate) fn section(word: &[u8]) -> Option<Self> {
        let sections = ALL.iter().filter(|(place, _)| *place < Self::BindOption);
        sections.clone().find(|(_, name)| name.as_bytes() == word).map(|(place, _)| *place)
    }

    /// Keywords that begin sections.
    pub(crate) fn section_names() -> impl Iterator<Item = &'static str> {
        ALL.iter().filter(|(place, _)| *place < Self::BindOption).map(|(_, name)| *name)
    }
}

/// A set of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionKinds(u32);

impl SectionKinds {
    pub(super) const fn of(places: &[SectionKind]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < places.len() {
            bits |= 1 << places[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// True if the set has `place`.
    pub fn contains(self, place: SectionKind) -> bool {
        self.0 & 1 << place as u8 != 0
    }

    /// All places of the set.
    pub fn iter(self) -> impl Iterator<Item = SectionKind> {
        ALL.iter().map(|(place, _)| *place).filter(move |place| self.contains(*place))
    }
}

use SectionKind::*;

pub(super) const GLOBAL: SectionKinds = SectionKinds::of(&[Global]);
/// Named after the manual's columns: `D` defaults, `F` frontend, `L` listen, `B` backend.
pub(super) const DFLB: SectionKinds = SectionKinds::of(&[Defaults, Frontend, Listen, Backend]);
pub(super) const DFL: SectionKinds = SectionKinds::of(&[Defaults, Frontend, Listen]);
pub(super) const DLB: SectionKinds = SectionKinds::of(&[Defaults, Listen, Backend]);
pub(super) const FLB: SectionKinds = SectionKinds::of(&[Frontend, Listen, Backend]);
pub(super) const FL: SectionKinds = SectionKinds::of(&[Frontend, Listen]);
pub(super) const LB: SectionKinds = SectionKinds::of(&[Listen, Backend]);
pub(super) const BIND: SectionKinds = SectionKinds::of(&[BindOption]);
pub(super) const SERVER: SectionKinds = SectionKinds::of(&[ServerOption]);

/// Rows of the section headers.
pub(super) fn rows() -> Vec<Keyword> {
    const TOP: SectionKinds = SectionKinds::of(&[Top]);
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
        own("mailers", TOP, "<name>", 1, "mail servers for alerts")
            .adds()
            .refused("alerts by mail are not built"),
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
        own("acme", TOP, "<name>", 1, "an authority that issues certificates")
            .adds()
            .refused(super::ssl::TLS),
    ]
}
