//! A changed list behaves like a new list with the same entries, and changes are cheap.

use super::work::{counted, held};
use super::*;
use crate::sample::Value;
use crate::scratch::Lane;
use manylane_sync::Reader;
use proptest::prelude::*;

/// Kinds with patterns, each with some valid patterns.
const KINDS: &[(MatchKind, &[&str])] = &[
    (MatchKind::Str, &["a", "A", "ab", "aB", "b", ""]),
    (MatchKind::Bin, &["61", "6162", "62", "4142", "6A", "6a"]),
    (MatchKind::Beg, &["a", "ab", "Ab", "abc", "b", ""]),
    (MatchKind::End, &["a", "ba", "Ba", "cba", "b", ""]),
    (MatchKind::Dir, &["a", "/a", "a/b", "b/", "B", "c"]),
    (MatchKind::Dom, &["a", ".a", "a.b", "b.", "B", "c"]),
    (MatchKind::Sub, &["a", "ab", "B", "ba", "c", ""]),
    (MatchKind::Reg, &["a", "^ab", "B$", "[bc](?!c)", "c", "^$"]),
    (MatchKind::Int, &["1", "2", "1:3", ":2", "3:", "7"]),
    (MatchKind::Version, &["0.1", "0.2", "0.1:0.3", ":0.2", "0.3-", "0.7"]),
    (MatchKind::Len, &["1", "2", "1:3", ":2", "3:", "7"]),
    (MatchKind::Ip, &["1.2.3.4", "1.2.3.0/24", "1.2.0.0/16", "2001:db8::/32", "0.0.0.0/0", "::ffff:1.2.3.4"]),
];

const TEXTS: &[&str] =
    &["", "a", "A", "ab", "AB", "abc", "ba", "cba", "x/a/b?c", "/b/", "w.a.b", "a/b.c:B", "aabbcc", "j"];

/// Result of each look-up: the value, which identifies the entry, and whether there is a match.
fn found(list: &Reference, kind: MatchKind, view: View) -> Vec<(Option<Box<[u8]>>, bool)> {
    let reader = Reader::new();
    let snapshot = list.load(&reader);
    let mut lane = Lane::new();
    let values: Vec<Value<'_>> = match kind {
        MatchKind::Int | MatchKind::Version => [0, 1, 2, 3, 4, 7, 8].map(Value::Int).to_vec(),
        MatchKind::Ip => {
            let four =
                ["1.2.3.4", "1.2.3.5", "1.2.9.9", "9.9.9.9"].map(|text| Value::Ipv4(text.parse().unwrap()));
            let six = ["2001:db8::1", "::ffff:1.2.3.4", "::1"].map(|text| Value::Ipv6(text.parse().unwrap()));
            four.into_iter().chain(six).collect()
        }
        _ => TEXTS.iter().map(|text| Value::Str(text.as_bytes())).collect(),
    };
    values
        .into_iter()
        .map(|value| {
            let entry = snapshot.find(view, value, &mut lane.scratch()).map(|entry| entry.value().into());
            (entry, snapshot.is_match(view, value, &mut lane.scratch()))
        })
        .collect()
}

proptest! {
    #[test]
    fn what_was_changed_finds_the_same_as_what_is_made_anew(
        kind in 0..KINDS.len(),
        ignore_case: bool,
        first in prop::collection::vec(0..6_usize, 0..6),
        steps in prop::collection::vec((0..6_usize, 0..4_u8), 0..40),
    ) {
        let (kind, patterns) = KINDS[kind];
        let lines: Vec<String> = first.iter().enumerate().map(|(at, which)| format!("{} \
            f{at}", patterns[*which])).collect();
        let list = Reference::new(b"list", true, lines.join("\n").as_bytes()).unwrap();
        let view = list.view(kind, ignore_case);
        prop_assume!(view.is_ok()); // an empty pattern can make the value the pattern
        let view = view.unwrap();
        for (number, (which, step)) in steps.into_iter().enumerate() {
            let (pattern, value) = (patterns[which].as_bytes(), format!("s{number}"));
            match step {
                0 => list.add_all(None, vec![(pattern.into(), value.as_bytes().into())]).unwrap(),
                1 => drop(list.remove(EntrySelector::Pattern(pattern))),
                2 => list.set(pattern, value.as_bytes()).unwrap(),
                _ => {
                    let third = list.entries(None).iter().nth(2).map(|entry| entry.id());
                    prop_assert_eq!(list.remove(EntrySelector::Id(third.unwrap_or(u64::MAX))),
                        usize::from(third.is_some()));
                }
            }
            let anew = Reference::new(b"anew", true, b"").unwrap();
            let pairs = list.entries(None).iter().map(|entry| (entry.pattern().into(),
                entry.value().into())).collect();
            anew.add_all(None, pairs).unwrap();
            let same = anew.view(kind, ignore_case).unwrap();
            prop_assert_eq!(found(&list, kind, view), found(&anew, kind, same));
            let before: Vec<u64> = list.entries(None).iter().map(|entry| entry.id()).collect();
            let is_there = list.entries(None).iter().any(|entry| entry.pattern() == pattern);
            list.add_new(pattern, b"new").unwrap();
            prop_assert_eq!(list.entries(None).len(), before.len() + usize::from(!is_there));
            for entry in list.entries(None).iter().filter(|entry| !before.contains(&entry.id())) {
                list.remove(EntrySelector::Id(entry.id()));
            }
        }
    }
}

/// A list of `count` different patterns, prepared for changes.
fn long(kind: MatchKind, count: usize) -> Reference {
    let lines: Vec<String> = (0..count).map(|number| format!("{} v", pattern(kind, number))).collect();
    let list = Reference::new(b"long", true, lines.join("\n").as_bytes()).unwrap();
    list.view(kind, false).unwrap();
    list.will_change();
    list
}

fn pattern(kind: MatchKind, number: usize) -> String {
    match kind {
        MatchKind::Int | MatchKind::Len => number.to_string(),
        MatchKind::Version => format!("{}.{}", number >> 16, number & 0xffff),
        MatchKind::Ip => format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
        MatchKind::Bin => format!("{number:08x}"),
        _ => format!("/some/way/{number}/to/it"),
    }
}

/// Maximum and average number of steps of a change.
fn steps(kind: MatchKind, count: usize) -> (usize, usize) {
    let list = long(kind, count);
    let all: Vec<usize> = (0..400)
        .map(|number| {
            let new = pattern(kind, count + number);
            let old = pattern(kind, number * 7 % count);
            counted(|| match number % 4 {
                0 | 1 => list.set(new.as_bytes(), b"new").unwrap(),
                2 => list.set(old.as_bytes(), b"changed").unwrap(),
                _ => drop(list.remove(EntrySelector::Pattern(old.as_bytes()))),
            })
        })
        .collect();
    (all.iter().copied().max().unwrap_or(0), all.iter().sum::<usize>() / all.len())
}

/// The cost of a change by a rule must not grow with the list.
#[test]
fn a_change_takes_about_as_many_steps_in_a_long_list_as_in_a_short_one() {
    for kind in [
        MatchKind::Str,
        MatchKind::Bin,
        MatchKind::Beg,
        MatchKind::End,
        MatchKind::Dir,
        MatchKind::Int,
        MatchKind::Ip,
    ] {
        let (short, _) = steps(kind, 100);
        let (long, _) = steps(kind, 20_000);
        // The list is 200 times as long, so the tree is eight levels deeper. A change copies at most four
        // paths.
        assert!(long <= short * 3, "{kind:?}: {short} steps became {long}");
        assert!(long < 500, "{kind:?}: {long} steps");
    }
    // Machines for many patterns are rebuilt rarely.
    for kind in [MatchKind::Sub, MatchKind::Reg] {
        let (_, average) = steps(kind, 2_000);
        assert!(average < 200, "{kind:?}: {average} steps on the average");
    }
}

/// A rule waits for the lock. An operator who changes a whole list must not hold it for all of that time.
#[test]
fn an_operator_who_changes_all_of_a_list_holds_up_a_rule_for_a_few_entries_at_most() {
    for (kind, _) in KINDS {
        let list = long(*kind, 2_000);
        let pairs = |from: usize| {
            (from..from + 2_000)
                .map(|number| (pattern(*kind, number).into_bytes().into(), Box::default()))
                .collect()
        };
        let (version, entries) = (list.prepare(), pairs(2_000));
        let most = held(|| list.add_all(Some(version), entries).unwrap());
        assert!(most < 100, "{kind:?}: {most} steps to add to a version");
        let most = held(|| list.commit(version).unwrap());
        assert!(most < 100, "{kind:?}: {most} steps to commit it");
        assert_eq!(
            list.entries(None).iter().next().map(|entry| entry.pattern().into()),
            Some(pattern(*kind, 2_000).into_bytes())
        );
        if !matches!(kind, MatchKind::Sub | MatchKind::Reg) {
            let entries = pairs(0);
            let most = held(|| list.add_all(None, entries).unwrap());
            assert!(most < 64 * 200, "{kind:?}: {most} steps to add to all");
        }
        let most = held(|| list.clear(None));
        assert!(most < 100, "{kind:?}: {most} steps to clear");
        list.set(pattern(*kind, 1).as_bytes(), b"").unwrap();
        assert_eq!(list.entries(None).len(), 1);
    }
}

/// An expression with look-around stays out of the common machine; the others share it.
#[test]
fn an_expression_that_looks_around_leaves_the_others_of_its_list_together() {
    let lines: Vec<String> = (0..300)
        .map(|number| match number {
            100 => "^/looks/(?!b)".to_owned(),
            200 => "^/none/(?!b)".to_owned(),
            _ => format!("^{}$", pattern(MatchKind::Reg, number)),
        })
        .collect();
    let list = Reference::new(b"list", false, lines.join("\n").as_bytes()).unwrap();
    let view = list.view(MatchKind::Reg, false).unwrap();
    let reader = Reader::new();
    let snapshot = list.load(&reader);
    let mut lane = Lane::new();
    for (text, expected) in [
        ("/nowhere", None),
        ("/looks/a", Some(101)),
        ("/looks/b", None),
        ("/some/way/7/to/it", Some(8)),
        ("/some/way/299/to/it", Some(300)),
    ] {
        let value = Value::Str(text.as_bytes());
        let steps = counted(|| {
            assert_eq!(snapshot.is_match(view, value, &mut lane.scratch()), expected.is_some(), "{text}")
        });
        assert!(steps < 50, "{text}: {steps} steps");
        let mut find = || snapshot.find(view, value, &mut lane.scratch()).map(Entry::id);
        let steps = counted(|| assert_eq!(find(), expected, "{text}"));
        assert!(steps < 50 || expected.is_some_and(|id| id != 101), "{text}: {steps} steps");
    }
}
