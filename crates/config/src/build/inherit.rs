//! Checks on named `defaults` sections: which proxies may share one, and which may share one that has rules.

use super::Builder;
use crate::Shown;
use crate::source::Pos;
use crate::table::Ruleset;
use crate::tree::{Proxy, ProxyKind, Rule};
use std::collections::HashMap;

pub(super) fn check(b: &mut Builder<'_>, proxies: &[Proxy]) {
    implicit_defaults(b, proxies);
    // For each section with rules: the first proxy with a frontend side and the first with a backend side
    // that inherit them.
    let mut users: HashMap<usize, [Option<&Proxy>; 2]> = HashMap::new();
    for proxy in proxies {
        let Some(index) = proxy.defaults.filter(|index| !proxies[*index].rules.is_empty()) else { continue };
        let defaults = &proxies[index];
        let wrong = match proxy.kind {
            ProxyKind::Defaults => Some((
                first(defaults),
                "rules are not handed on from one 'defaults' section to the next",
                "let both begin with a third one that has no rules",
            )),
            ProxyKind::Listen => Some((
                first(defaults),
                "they would run for both of its sides",
                "write the rules in the section itself, or split it into a frontend and a backend",
            )),
            ProxyKind::Frontend | ProxyKind::Backend => {
                let back = proxy.kind == ProxyKind::Backend;
                let sides = users.entry(index).or_default();
                sides[usize::from(back)].get_or_insert(proxy);
                misplaced(defaults, back).or_else(|| {
                    sides[usize::from(!back)].map(|_| {
                        (
                            first(defaults),
                            "a frontend and a backend that both take them would run them twice",
                            "give one of the two sides a 'defaults' section of its own",
                        )
                    })
                })
            }
        };
        if let Some((rule, why, remedy)) = wrong {
            let message = format!(
                "{} '{}' cannot begin with 'defaults {}' ({}), which has '{} {}' ({}): {why}; {remedy}",
                proxy.kind.name(),
                proxy.name.shown(),
                defaults.name.shown(),
                at(b, defaults.pos),
                rule.list.name(),
                rule.action,
                at(b, rule.pos),
            );
            b.found.alert(proxy.pos, message);
        }
    }
}

fn first(defaults: &Proxy) -> &Rule {
    &defaults.rules[0]
}

/// A rule that is invalid on this side, the reason, and the advice.
fn misplaced(defaults: &Proxy, back: bool) -> Option<(&Rule, &'static str, &'static str)> {
    let front_only = |list| matches!(list, Ruleset::TcpRequestConnection | Ruleset::TcpRequestSession);
    let makes_slot =
        |rule: &&Rule| rule.action == "capture" && matches!(&rule.words[..], [.., len, _] if *len == *"len");
    let find = |has: &dyn Fn(&&Rule) -> bool| defaults.rules.iter().find(has);
    if !back {
        let rule = find(&|rule| rule.list == Ruleset::TcpResponseContent)?;
        return Some((rule, "a frontend receives no bytes from servers", "let backends only begin with it"));
    }
    let accepting = find(&|rule| front_only(rule.list))
        .map(|rule| (rule, "a backend accepts no connections", "let frontends only begin with it"));
    accepting.or_else(|| {
        find(&makes_slot)
            .map(|rule| (rule, "only frontends have capture slots", "let frontends only begin with it"))
    })
}

fn at(b: &Builder<'_>, pos: Pos) -> String {
    format!("{}:{}", Shown(b.sources.name(pos.file)), pos.line)
}

/// Warns of a `defaults` section that one proxy names and another inherits by position, as HAProxy does.
fn implicit_defaults(b: &mut Builder<'_>, proxies: &[Proxy]) {
    let mut users: HashMap<usize, [Option<&Proxy>; 2]> = HashMap::new();
    for proxy in proxies {
        if let Some(index) = proxy.defaults {
            users.entry(index).or_default()[usize::from(proxy.explicit_defaults)].get_or_insert(proxy);
        }
    }
    for (index, defaults) in proxies.iter().enumerate() {
        let Some(&[implicit, explicit]) = users.get(&index).filter(|_| !defaults.name.bytes().is_empty())
        else {
            continue;
        };
        if let (Some(explicit), Some(implicit)) = (explicit, implicit) {
            let message = format!(
                "defaults section '{}' is used explicitly by {} '{}' and implicitly by {} '{}'; better name \
                    it in both or add one for implicit use",
                defaults.name.shown(),
                explicit.kind.name(),
                explicit.name.shown(),
                implicit.kind.name(),
                implicit.name.shown()
            );
            b.found.warning(implicit.pos, message);
        }
    }
}
