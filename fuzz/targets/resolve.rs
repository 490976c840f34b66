//! Responses of name servers: whatever they contain, a section stores a bounded part, respects its rate of
//! queries, finishes each name in time, and accepts only records for its question.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_resolve::{
    AssignmentChange, Item, Kind, MOST_RECORDS, Name, Section, ServiceMember, Settings, members,
};
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let [kind, tcp, rest @ ..] = data else { return };
    let kind = [Kind::A, Kind::Aaaa, Kind::Srv][usize::from(*kind) % 3];
    let mut section = Section::new(Settings { servers: 2, ..Settings::USUAL });
    let name = Name::parse("_http._tcp.example.test").expect("it is one");
    let id = section.want(name, kind, Duration::ZERO).expect("it is the first");
    let mut taken: Vec<ServiceMember> = vec![None; 3];
    let (mut now, mut queries) = (Duration::ZERO, 0);
    for _ in 0..8 {
        section.handle_timeout(now);
        while let Some(ask) = section.poll_ask() {
            queries += 1;
            // With the right ID and question, so that the rest is parsed; or unchanged.
            let mut bytes = rest.to_vec();
            if tcp & 2 == 0 && bytes.len() > 12 {
                bytes[..2].copy_from_slice(&ask.bytes[..2]);
                let question = ask.bytes.len() - 11;
                bytes.splice(12..12, ask.bytes[12..question].iter().copied());
                (bytes[2], bytes[4], bytes[5]) = (bytes[2] & 0x07 | 0x80, 0, 1);
            }
            section.handle_answer(now, &ask.query, tcp & 1 != 0, &bytes);
        }
        while let Some(update) = section.poll_update() {
            assert_eq!(update.name, id);
        }
        let records = section.records(id).expect("it is wanted");
        assert!(records.iter().count() <= MOST_RECORDS);
        let mut services = Vec::new();
        for entry in records.iter() {
            match (&entry.item, kind) {
                (Item::Address(_), Kind::A | Kind::Aaaa) => {}
                (Item::Service(service), Kind::Srv) => services.push(service.clone()),
                other => panic!("{other:?}"),
            }
        }
        for step in members(&taken, &services) {
            match step {
                AssignmentChange::Leave(index) => taken[index] = None,
                AssignmentChange::Take(index, service) => taken[index] = Some((service.target, service.port)),
                AssignmentChange::Stay(..) => {}
            }
        }
        now = section.next_timeout().expect("it is wanted");
    }
    assert!(queries <= 8 * 2 * 2, "{queries}");
});
