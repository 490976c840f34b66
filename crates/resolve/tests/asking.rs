//! Which name servers are queried when, and the effect of their answers.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::{Message, a, id_of, srv};
use manylane_resolve::{
    AnswerOutcome, Entry, Families, HoldTimes, Id, Item, Kind, MOST_KEPT, Name, NameResults, NameUpdate,
    Query, Section, Settings, Status,
};
use std::time::Duration;

const NAME: &str = "www.example.test";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn section(servers: usize) -> Section {
    let holds = HoldTimes {
        nx: ms(5000),
        refused: ms(6000),
        timeout: ms(7000),
        other: ms(8000),
        valid: ms(3000),
        obsolete: ms(0),
    };
    let (resolve, retry) = (ms(10_000), ms(1000));
    Section::new(Settings { servers, holds, retries: 2, resolve, retry, ..Settings::USUAL })
}

fn want(section: &mut Section, kind: Kind) -> Id {
    section.want(Name::parse(NAME).unwrap(), kind, ms(0)).unwrap()
}

/// Returns the family that a query asks for.
fn kind(ask: &Query) -> Kind {
    let at = ask.bytes.len() - 11 - 3;
    match ask.bytes[at] {
        1 => Kind::A,
        28 => Kind::Aaaa,
        33 => Kind::Srv,
        other => panic!("{other}"),
    }
}

fn asks(section: &mut Section) -> Vec<Query> {
    std::iter::from_fn(|| section.poll_ask()).collect()
}

fn answer(
    section: &mut Section,
    now: u64,
    ask: &Query,
    message: impl FnOnce(Message) -> Message,
) -> AnswerOutcome {
    let message = message(Message::to(id_of(&ask.bytes), NAME, kind(ask), vec![]));
    section.handle_answer(ms(now), &ask.query, false, &message.bytes())
}

fn with(address: &'static str) -> impl FnOnce(Message) -> Message {
    move |message| Message { answers: vec![a(NAME, address)], ..message }
}

fn known(section: &Section, name: Id) -> Vec<String> {
    let shown = |entry: &Entry| match &entry.item {
        Item::Address(address) => address.to_string(),
        Item::Service(service) => format!("{}:{}", service.target, service.port),
    };
    section.records(name).unwrap().iter().map(shown).collect()
}

#[test]
fn the_first_good_answer_counts_and_the_name_is_requested_again_in_its_time() {
    let mut section = section(2);
    let name = want(&mut section, Kind::A);
    section.handle_timeout(ms(0));
    let both = asks(&mut section);
    assert_eq!(both.iter().map(|ask| ask.query.server).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(answer(&mut section, 3, &both[0], |message| message.code(3)), AnswerOutcome::Over);
    assert_eq!(
        (section.poll_update(), section.status(name)),
        (None, Status::New),
        "the other one may know it"
    );
    assert_eq!(answer(&mut section, 5, &both[1], with("192.0.2.1")), AnswerOutcome::Over);
    assert_eq!(section.poll_update(), Some(NameUpdate { name, server: Some(1) }));
    assert_eq!((section.status(name), known(&section, name)), (Status::Valid, vec!["192.0.2.1".into()]));
    assert_eq!(section.next_timeout(), Some(ms(10_005)));
    assert!(section.is_fresh(name, ms(3004)) && !section.is_fresh(name, ms(3005)));
    // Later answers are ignored.
    assert_eq!(answer(&mut section, 6, &both[1], with("192.0.2.6")), AnswerOutcome::Over);
    assert_eq!((known(&section, name), section.counters()[1].outdated), (vec!["192.0.2.1".into()], 1));
    section.handle_timeout(ms(10_005));
    assert_eq!(asks(&mut section).len(), 2);
    assert_eq!(section.counters()[0].nx, 1);
}

#[test]
fn both_families_are_tried_and_then_as_often_as_the_file_says() {
    let mut section = section(1);
    let name = want(&mut section, Kind::Aaaa);
    let mut observed = Vec::new();
    let mut now = 0;
    while section.poll_update().is_none() {
        section.handle_timeout(ms(now));
        while let Some(ask) = section.poll_ask() {
            observed.push((now, kind(&ask)));
            answer(&mut section, now, &ask, |message| message.code(3));
        }
        now += 1000;
    }
    assert_eq!(observed, [(0, Kind::Aaaa), (0, Kind::A), (1000, Kind::Aaaa), (1000, Kind::A)]);
    assert_eq!(section.status(name), Status::Nx);
    assert_eq!(section.next_timeout(), Some(ms(11_000)));
}

#[test]
fn silence_is_tried_again_in_the_first_family_and_then_given_up() {
    let mut section = section(2);
    let name = want(&mut section, Kind::Aaaa);
    let mut observed = Vec::new();
    for now in [0, 1000, 2000] {
        section.handle_timeout(ms(now));
        observed.extend(asks(&mut section).iter().map(|ask| (now, ask.query.server, kind(ask))));
    }
    assert_eq!(
        observed,
        [(0, 0, Kind::Aaaa), (0, 1, Kind::Aaaa), (1000, 0, Kind::Aaaa), (1000, 1, Kind::Aaaa)]
    );
    assert_eq!(
        (section.poll_update(), section.status(name)),
        (Some(NameUpdate { name, server: None }), Status::Timeout)
    );
    assert_eq!(section.counters()[1].timeout, 2);
}

/// `resolve_retries` is the number of tries, as HAProxy counts them: with one, a silent name server is not
/// queried again.
#[test]
fn one_try_is_one_question_in_each_family() {
    for (retries, tries) in [(0, 1), (1, 1), (3, 3)] {
        for nx in [false, true] {
            let mut section =
                Section::new(Settings { servers: 1, retries, retry: ms(1000), ..Settings::USUAL });
            want(&mut section, Kind::Aaaa);
            let (mut observed, mut now) = (Vec::new(), 0);
            while section.poll_update().is_none() {
                section.handle_timeout(ms(now));
                while let Some(ask) = section.poll_ask() {
                    observed.push(kind(&ask));
                    if nx {
                        answer(&mut section, now, &ask, |message| message.code(3));
                    }
                }
                now += 1000;
            }
            let one = if nx { vec![Kind::Aaaa, Kind::A] } else { vec![Kind::Aaaa] };
            assert_eq!(observed, one.repeat(tries), "{retries} {nx}");
        }
    }
}

#[test]
fn a_section_goes_on_where_the_one_before_was() {
    let mut before = section(1);
    let name = want(&mut before, Kind::A);
    let rule = before.want(Name::parse("rule.test").unwrap(), Kind::A, ms(0)).unwrap();
    let lost = before.want(Name::parse("lost.test").unwrap(), Kind::A, ms(0)).unwrap();
    before.handle_timeout(ms(0));
    for (ask, of) in asks(&mut before).iter().zip([NAME, "rule.test"]) {
        let whole = Message::to(id_of(&ask.bytes), of, Kind::A, vec![a(of, "192.0.2.1")]);
        before.handle_answer(ms(5), &ask.query, false, &whole.bytes());
    }
    assert!(before.memo(lost).is_none(), "nothing is known of it");
    let past: NameResults = [name, rule].iter().filter_map(|id| before.memo(*id)).collect();
    assert_eq!(past.len(), 2);
    let counters = before.counters().to_vec();
    let settings = Settings { servers: 1, resolve: ms(10_000), ..Settings::USUAL };
    let mut after = Section::resume(settings, past, counters.clone());
    let name = want(&mut after, Kind::A);
    after.resumed(ms(20));
    assert_eq!((after.status(name), known(&after, name)), (Status::Valid, vec!["192.0.2.1".into()]));
    after.handle_timeout(ms(20));
    assert!(asks(&mut after).is_empty(), "it is not time yet");
    assert_eq!((after.next_timeout(), after.counters()), (Some(ms(10_005)), &counters[..]));
    // The result of a rule's query is known as long as it is good.
    let again = after.want(Name::parse("rule.test").unwrap(), Kind::A, ms(30)).unwrap();
    assert!(after.is_fresh(again, ms(30)));
    after.forget(again, ms(40_000));
    assert_eq!(after.poll_gone().map(|(name, _)| name.as_str().to_owned()).as_deref(), Some("rule.test"));
}

#[test]
fn one_that_is_silent_does_not_keep_the_other_family_from_being_requested() {
    let mut section = section(2);
    let name = want(&mut section, Kind::A);
    section.handle_timeout(ms(0));
    let both = asks(&mut section);
    answer(&mut section, 1, &both[0], |message| message); // no records of the kind
    section.handle_timeout(ms(1000));
    let both = asks(&mut section);
    assert_eq!(both.iter().map(kind).collect::<Vec<_>>(), [Kind::Aaaa, Kind::Aaaa]);
    answer(&mut section, 1001, &both[0], with("2001:db8::1"));
    assert_eq!((section.status(name), known(&section, name)), (Status::Valid, vec!["2001:db8::1".into()]));
}

/// R-G9: SRV queries that fail have no other family, and use all of their tries.
#[test]
fn services_have_one_family_and_the_same_tries() {
    let mut section = section(1);
    let name = want(&mut section, Kind::Srv);
    for now in [0, 1000] {
        section.handle_timeout(ms(now));
        let all = asks(&mut section);
        assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), [Kind::Srv], "{now}");
        assert_eq!(section.poll_update(), None);
        answer(&mut section, now, &all[0], |message| message.code(3));
    }
    assert_eq!(
        (section.poll_update(), section.status(name)),
        (Some(NameUpdate { name, server: None }), Status::Nx)
    );
    assert_eq!(section.next_timeout(), Some(ms(11_000)));
}

#[test]
fn records_hold_after_errors_for_as_long_as_their_kind_says() {
    for (code, status, hold) in [(3, Status::Nx, 5000), (5, Status::Refused, 6000), (2, Status::Other, 8000)]
    {
        let mut section = section(1);
        let name = want(&mut section, Kind::Srv);
        section.handle_timeout(ms(0));
        let first = asks(&mut section).remove(0);
        let records = |message| Message { answers: vec![srv(NAME, 1, 80, "a.test")], ..message };
        answer(&mut section, 0, &first, records);
        section.poll_update().unwrap();
        section.hurry(name, ms(2999)); // fresh: no query
        assert_eq!(section.next_timeout(), Some(ms(10_000)));
        section.hurry(name, ms(3000));
        let mut now = 3000;
        while section.poll_update().is_none() {
            section.handle_timeout(ms(now));
            for ask in asks(&mut section) {
                answer(&mut section, now, &ask, |message| message.code(code));
            }
            now += 500;
        }
        assert_eq!(section.status(name), status);
        assert_eq!(known(&section, name), ["a.test:80"], "it was known at 0, and it is 4000");
        assert!(!section.is_lost(name, ms(hold - 1)) && section.is_lost(name, ms(hold)), "{status:?}");
        section.hurry(name, ms(hold));
        while section.poll_update().is_none() {
            section.handle_timeout(ms(hold + now));
            for ask in asks(&mut section) {
                answer(&mut section, hold + now, &ask, |message| message.code(code));
            }
            now += 500;
        }
        assert!(known(&section, name).is_empty(), "{status:?}");
    }
}

#[test]
fn an_answer_that_is_cut_is_requested_over_tcp_and_lies_are_waited_past() {
    let mut section = section(1);
    let name = want(&mut section, Kind::A);
    section.handle_timeout(ms(0));
    let ask = asks(&mut section).remove(0);
    let now = ms(1);
    assert_eq!(section.handle_answer(now, &ask.query, false, b"garbage"), AnswerOutcome::Not);
    assert_eq!(
        section.handle_answer(now, &ask.query, false, &ask.bytes),
        AnswerOutcome::Not,
        "its own question is no answer"
    );
    assert_eq!(
        answer(&mut section, 1, &ask, |message| Message { id: message.id ^ 1, ..message }),
        AnswerOutcome::Not
    );
    let other = |message: Message| Message { question: ("other.test".into(), 1, 1), ..message };
    assert_eq!(answer(&mut section, 1, &ask, other), AnswerOutcome::Not);
    assert_eq!(
        answer(&mut section, 1, &ask, |message| Message { flags: 0x8380, ..message }),
        AnswerOutcome::Truncated
    );
    assert_eq!((section.poll_update(), section.poll_ask().is_none()), (None, true));
    let whole = Message::to(id_of(&ask.bytes), NAME, Kind::A, vec![a(NAME, "192.0.2.1")]);
    assert_eq!(section.handle_answer(now, &ask.query, true, &whole.bytes()), AnswerOutcome::Over);
    assert_eq!(section.poll_update(), Some(NameUpdate { name, server: Some(0) }));
    let counters = section.counters()[0];
    assert_eq!((counters.invalid, counters.outdated, counters.truncated, counters.valid), (3, 1, 1, 1));
}

#[test]
fn a_name_is_requested_once_for_all_and_no_more_when_nobody_wants_it() {
    let mut section = section(1);
    let name = want(&mut section, Kind::A);
    assert_eq!(want(&mut section, Kind::A), name);
    let other = want(&mut section, Kind::Aaaa);
    assert_ne!(other, name);
    section.handle_timeout(ms(0));
    let all = asks(&mut section);
    assert_eq!(all.len(), 2);
    section.forget(name, ms(0));
    assert!(section.records(name).is_some());
    section.forget(name, ms(0));
    section.forget(other, ms(0));
    assert_eq!((section.records(name).is_none(), section.next_timeout()), (true, None));
    // A late answer belongs to no query, even if another user has its position.
    let again = want(&mut section, Kind::A);
    section.handle_timeout(ms(1));
    for ask in &all {
        assert_eq!(answer(&mut section, 2, ask, with("192.0.2.6")), AnswerOutcome::Over);
    }
    assert!(known(&section, again).is_empty());
}

#[test]
fn what_a_rule_requested_is_known_for_who_asks_next_and_not_requested_meanwhile() {
    let mut section = section(1);
    let name = want(&mut section, Kind::A);
    section.handle_timeout(ms(0));
    let first = asks(&mut section).remove(0);
    answer(&mut section, 5, &first, with("192.0.2.1"));
    section.poll_update().unwrap();
    section.forget(name, ms(6));
    assert_eq!(section.next_timeout(), Some(ms(3005)));
    let again = section.want(Name::parse(NAME).unwrap(), Kind::A, ms(3000)).unwrap();
    assert!(section.is_fresh(again, ms(3000)));
    assert_eq!(known(&section, again), ["192.0.2.1"]);
    section.forget(again, ms(3001));
    section.handle_timeout(ms(3005));
    assert_eq!((asks(&mut section).len(), section.next_timeout()), (0, None));
}

#[test]
fn numbers_of_queries_are_not_in_a_row() {
    let mut section = section(1);
    let mut all = std::collections::HashSet::new();
    for n in 0..100 {
        section.want(Name::parse(&format!("n{n}.test")).unwrap(), Kind::A, ms(0)).unwrap();
    }
    section.handle_timeout(ms(0));
    let ids: Vec<u16> = asks(&mut section).iter().map(|ask| id_of(&ask.bytes)).collect();
    let steps = ids.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    all.extend(steps);
    assert!(all.len() > 80, "{ids:?}"); // a few steps are equal by chance; a counter would have one
}

#[test]
fn timeouts_of_zero_do_not_ask_without_end() {
    let mut section = Section::new(Settings { servers: 1, resolve: ms(0), retry: ms(0), ..Settings::USUAL });
    want(&mut section, Kind::A);
    section.handle_timeout(ms(0));
    assert_eq!(asks(&mut section).len(), 1);
    assert!(section.next_timeout() > Some(ms(0)));
}

/// `dns-accept-family`: one family is never asked for, whatever a user prefers.
#[test]
fn a_family_that_is_not_accepted_is_not_requested() {
    let families = Families { ipv4: true, ipv6: false };
    let settings = Settings { servers: 1, retries: 2, retry: ms(1000), families, ..Settings::USUAL };
    let mut section = Section::new(settings);
    let name = want(&mut section, Kind::Aaaa);
    for now in [0, 1000] {
        section.handle_timeout(ms(now));
        let all = asks(&mut section);
        assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), [Kind::A], "{now}");
        answer(&mut section, now, &all[0], |message| message); // no records of the kind
    }
    assert_eq!(section.status(name), Status::Other);
    section.accept_ipv6(true);
    section.handle_timeout(ms(2000));
    let all = asks(&mut section);
    assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), [Kind::Aaaa]);
    answer(&mut section, 2000, &all[0], with("2001:db8::1"));
    assert_eq!(known(&section, name), ["2001:db8::1"]);
}

/// Clients choose names (`do-resolve`): the results of some are kept for the next client, not those of all.
#[test]
fn as_many_results_without_a_user_are_kept_as_the_bound_says() {
    let mut section = section(1);
    let text = |n: usize| format!("n{n}.example.test");
    let wanted = |section: &mut Section, n, now| {
        section.want(Name::parse(&text(n)).unwrap(), Kind::A, ms(now)).unwrap()
    };
    let names: Vec<_> = (0..=MOST_KEPT)
        .map(|n| {
            let name = wanted(&mut section, n, 0);
            section.handle_timeout(ms(0));
            for ask in asks(&mut section) {
                let answers = vec![a(&text(n), "192.0.2.1")];
                let message = Message::to(id_of(&ask.bytes), &text(n), kind(&ask), answers);
                section.handle_answer(ms(0), &ask.query, false, &message.bytes());
            }
            assert_eq!(known(&section, name), ["192.0.2.1"]);
            name
        })
        .collect();
    names.into_iter().for_each(|name| section.forget(name, ms(0)));
    let kept = (0..=MOST_KEPT).filter(|&n| {
        let name = wanted(&mut section, n, 1);
        !known(&section, name).is_empty()
    });
    assert_eq!(kept.count(), MOST_KEPT);
}
