//! Capture slots of a frontend: `capture`, `declare capture` and rules `capture ... len`.

use super::super::refuse::Refuse;
use manylane_config::source::Pos;
use manylane_config::table::Ruleset;
use manylane_config::tree::{Capture, CaptureKind, Proxy};
use std::collections::HashMap;

/// Default limit of a captured cookie, in bytes.
const COOKIE: usize = 63;

/// Captures of a frontend. Slots are in the order of the file.
#[derive(Debug, Default)]
pub struct Captures {
    /// Size of each slot for requests, in bytes.
    pub request: Vec<usize>,
    /// Size of each slot for responses, in bytes.
    pub response: Vec<usize>,
    /// Captured fields of requests, with their slots.
    pub request_fields: Vec<(Box<[u8]>, usize)>,
    /// Captured fields of responses, with their slots.
    pub response_fields: Vec<(Box<[u8]>, usize)>,
    /// Prefix of the captured cookies' names, and the size limit in bytes.
    pub cookie: Option<(Box<[u8]>, usize)>,
}

/// Captures, and the slots of rules by position in the file.
#[derive(Debug, Default)]
pub(in crate::generation) struct Slots {
    pub(in crate::generation) captures: Captures,
    pub(super) of_rules: HashMap<Pos, usize>,
}

/// Returns true if rules of this list may create slots by `capture ... len`.
pub(super) fn makes_slots(list: Ruleset) -> bool {
    matches!(list, Ruleset::HttpRequest | Ruleset::TcpRequestContent)
}

/// A line that creates a slot.
enum Line<'c> {
    Capture(&'c Capture),
    /// Position of a rule, and size of its slot in bytes.
    Rule(Pos, usize),
}

impl Slots {
    /// Returns the slots of a proxy and of its `defaults` section. `longest` is `tune.http.cookielen`.
    pub(super) fn new<'c>(
        sections: impl Iterator<Item = &'c Proxy> + Clone,
        longest: Option<u64>,
        refuse: &mut Refuse<'_>,
    ) -> Self {
        let longest = longest.map_or(COOKIE, |longest| longest as usize);
        let mut slots = Self::default();
        let rules = sections.clone().flat_map(|proxy| &proxy.rules);
        let rules = rules.filter(|rule| rule.action == "capture" && makes_slots(rule.list));
        let of_rules = rules.filter_map(|rule| {
            let length = match &rule.words[..] {
                [.., len, number] if *len == *"len" => number.text()?.parse().ok()?,
                _ => return None, // names a slot, or is wrong; reported with the rules
            };
            Some(Line::Rule(rule.pos, length))
        });
        let mut lines: Vec<Line<'_>> =
            sections.flat_map(|proxy| &proxy.captures).map(Line::Capture).chain(of_rules).collect();
        lines.sort_by_key(|line| match line {
            Line::Capture(capture) => capture.pos,
            Line::Rule(pos, _) => *pos,
        });
        for line in lines {
            slots.add(&line, longest, refuse);
        }
        slots
    }

    fn add(&mut self, line: &Line<'_>, longest: usize, refuse: &mut Refuse<'_>) {
        let Captures { request, response, request_fields, response_fields, cookie } = &mut self.captures;
        let slot = |list: &mut Vec<usize>, length: usize| {
            list.push(length);
            list.len() - 1
        };
        match line {
            Line::Rule(pos, length) => {
                self.of_rules.insert(*pos, slot(request, *length));
            }
            Line::Capture(Capture { kind, name, length, pos }) => {
                let length = *length as usize;
                let name = || -> Box<[u8]> { name.bytes().into() };
                match kind {
                    CaptureKind::Cookie if cookie.is_some() => {
                        refuse.found.alert(
                            *pos,
                            "'capture cookie' expects to be the only one of its proxy, found \
                                another: remove one",
                        );
                    }
                    CaptureKind::Cookie => {
                        if length > longest {
                            let message = format!(
                                "{longest} bytes of the cookie are captured at most, as \
                                    'tune.http.cookielen' says"
                            );
                            refuse.found.warning(*pos, message);
                        }
                        *cookie = Some((name(), length.min(longest)));
                    }
                    CaptureKind::RequestSlot => {
                        slot(request, length);
                    }
                    CaptureKind::ResponseSlot => {
                        slot(response, length);
                    }
                    CaptureKind::RequestHeader => {
                        request_fields.push((name(), slot(request, length)));
                    }
                    CaptureKind::ResponseHeader => {
                        response_fields.push((name(), slot(response, length)));
                    }
                }
            }
        }
    }
}
