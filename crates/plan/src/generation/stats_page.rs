//! `stats uri` and related keywords: path, users and contents of the statistics page.

use manylane_config::lex::Word;
use manylane_config::tree::{Mode, Proxy};
use manylane_config::value::{self, Unit};
use manylane_http::{Head, Target};
use std::time::Duration;

/// Default of `stats uri`.
const USUAL_URI: &[u8] = b"/haproxy?stats";
/// Default of `stats realm`.
pub(super) const USUAL_REALM: &[u8] = b"HAProxy Statistics";

/// A user's name and password.
pub type Credentials = (Box<[u8]>, Box<[u8]>);

/// The statistics page of a proxy.
#[derive(Clone, Debug)]
pub struct StatsPage {
    /// `stats uri`: prefix of the request targets that ask for the page.
    pub uri: Box<[u8]>,
    /// `stats auth`: users and passwords; empty if the page is open to all.
    pub users: Vec<Credentials>,
    /// `stats realm`
    pub realm: Box<[u8]>,
    /// `stats refresh`
    pub refresh: Option<Duration>,
    /// `stats scope`: names of the proxies on the page; empty for all.
    pub scope: Vec<Box<str>>,
    /// False with `stats hide-version`.
    pub shows_version: bool,
    /// `stats show-node`: this name, or that of the process.
    pub node: Option<Option<Box<str>>>,
    /// `stats show-desc`: this text, or that of the process.
    pub description: Option<Option<Box<str>>>,
    /// `stats show-legends`
    pub legends: bool,
}

impl StatsPage {
    /// Returns true if the page shows the proxy with this name.
    pub fn shows(&self, name: &str) -> bool {
        self.scope.is_empty() || self.scope.iter().any(|own| **own == *name)
    }

    /// Returns the part of the request target behind the page's URI; `None` if the request is for something
    /// else.
    #[inline]
    pub fn behind_uri<'a>(&self, head: &'a Head) -> Option<&'a [u8]> {
        let target = head.target();
        let target = if target.starts_with(b"/") || !self.uri.starts_with(b"/") {
            target
        } else {
            behind_authority(head, target)
        };
        target.strip_prefix(&*self.uri)
    }
}

/// Returns the target without `scheme://authority`.
#[cold]
fn behind_authority<'a>(head: &Head, target: &'a [u8]) -> &'a [u8] {
    match Target::of(target, head.method_kind()) {
        Target { scheme: Some(scheme), authority: Some(authority), .. } => {
            target.get(scheme.len() + 3 + authority.len()..).unwrap_or_default()
        }
        _ => target,
    }
}

/// Returns the page of a proxy; `None` without `stats` lines, or outside of HTTP mode.
pub(super) fn stats_page(proxy: &Proxy) -> Option<StatsPage> {
    let settings = &proxy.settings;
    if settings.stats.is_empty() || proxy.mode_of_rules() != Mode::Http {
        return None;
    }
    let mut page = StatsPage {
        uri: USUAL_URI.into(),
        users: Vec::new(),
        realm: USUAL_REALM.into(),
        refresh: None,
        scope: Vec::new(),
        shows_version: true,
        node: None,
        description: None,
        legends: false,
    };
    let text = |word: &Word| String::from_utf8_lossy(word.bytes()).into();
    for statement in &settings.stats {
        let first = statement.words.first();
        let bytes = || first.map_or(&[][..], Word::bytes);
        match statement.keyword {
            "stats uri" => page.uri = bytes().into(),
            "stats realm" => page.realm = bytes().into(),
            "stats refresh" => page.refresh = value::time(bytes(), Unit::S).ok(), // checked by the table
            "stats auth" => {
                let colon = bytes().iter().position(|byte| *byte == b':').unwrap_or(bytes().len());
                let password = bytes().get(colon + 1..).unwrap_or_default();
                page.users.push((bytes()[..colon].into(), password.into()));
            }
            "stats scope" if bytes() == b"." => page.scope.push(text(&proxy.name)),
            "stats scope" => page.scope.extend(first.map(text)),
            "stats hide-version" => page.shows_version = false,
            "stats show-version" => page.shows_version = true,
            "stats show-node" => page.node = Some(first.map(text)),
            "stats show-desc" if statement.words.is_empty() => page.description = Some(None),
            "stats show-desc" => {
                let words: Vec<_> =
                    statement.words.iter().map(|word| String::from_utf8_lossy(word.bytes())).collect();
                page.description = Some(Some(words.join(" ").into()));
            }
            "stats show-legends" => page.legends = true,
            _ => {} // `stats enable`, and keywords that the table refuses
        }
    }
    Some(page)
}
