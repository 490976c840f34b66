//! The records of a name, as long as its answers hold.

use crate::message::{Item, MOST_RECORDS};
use std::time::Duration;

/// A record, with the time of its last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Data of the record.
    pub item: Item,
    /// Time of the last answer with it.
    pub last_answer: Duration,
}

/// All records of a name, in the order of the answers.
#[derive(Clone, Debug, Default)]
pub struct Records(Vec<Entry>);

/// Returns whether two items stand for the same thing: a server of a service may get another weight or
/// address.
fn same(one: &Item, other: &Item) -> bool {
    match (one, other) {
        (Item::Service(one), Item::Service(other)) => (&one.target, one.port) == (&other.target, other.port),
        (one, other) => one == other,
    }
}

impl Records {
    /// Merges an answer. A record that is not in it is dropped once no answer had it for `obsolete`. At most
    /// [`MOST_RECORDS`] are kept.
    pub(crate) fn merge(&mut self, items: Vec<Item>, now: Duration, obsolete: Duration) {
        let known: std::collections::HashMap<Key, usize> =
            self.0.iter().enumerate().map(|(at, entry)| (Key::of(&entry.item), at)).collect();
        let mut new = Vec::new();
        for item in items {
            match known.get(&Key::of(&item)) {
                Some(&at) => {
                    debug_assert!(same(&self.0[at].item, &item));
                    self.0[at] = Entry { item, last_answer: now };
                }
                None => new.push(Entry { item, last_answer: now }),
            }
        }
        self.0.retain(|entry| entry.last_answer == now || now < entry.last_answer + obsolete);
        self.0.extend(new);
        if self.0.len() > MOST_RECORDS {
            self.0.sort_by_key(|entry| std::cmp::Reverse(entry.last_answer)); // a stable sort
            self.0.truncate(MOST_RECORDS);
        }
    }

    /// Returns the number of bytes that they take, about.
    pub(crate) fn memory(&self) -> usize {
        const NAME: usize = 256; // longest target of a service
        self.0.len() * (size_of::<Entry>() + NAME)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the records.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves an address that was taken behind the others, so that they get their turns.
    pub fn took(&mut self, address: std::net::IpAddr) {
        if let Some(at) = self.0.iter().position(|entry| entry.item == Item::Address(address)) {
            let entry = self.0.remove(at);
            self.0.push(entry);
        }
    }
}

/// Identity of a record.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Address(std::net::IpAddr),
    Service(crate::Name, u16),
}

impl Key {
    fn of(item: &Item) -> Self {
        match item {
            Item::Address(address) => Self::Address(*address),
            Item::Service(service) => Self::Service(service.target.clone(), service.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Name, Service};

    fn addresses(last: &[u8]) -> Vec<Item> {
        last.iter().map(|last| Item::Address([192, 0, 2, *last].into())).collect()
    }

    fn shown(records: &Records) -> Vec<Item> {
        records.iter().map(|entry| entry.item.clone()).collect()
    }

    #[test]
    fn what_answers_leave_out_is_forgotten_after_its_time_and_not_before() {
        let second = Duration::from_secs;
        let mut records = Records::default();
        records.merge(addresses(&[1, 2]), second(0), second(3));
        records.merge(addresses(&[3, 2]), second(2), second(3));
        assert_eq!(shown(&records), addresses(&[1, 2, 3]));
        records.merge(addresses(&[3]), second(3), second(3));
        assert_eq!(shown(&records), addresses(&[2, 3]));
        records.merge(addresses(&[3]), second(4), Duration::ZERO);
        assert_eq!(shown(&records), addresses(&[3]));
    }

    #[test]
    fn a_server_of_a_service_is_known_by_name_and_port() {
        let of = |weight, port| {
            let target = Name::parse("a.test").unwrap();
            Item::Service(Service { target, port, weight, priority: 1, address: None })
        };
        let mut records = Records::default();
        records.merge(vec![of(1, 80), of(1, 81)], Duration::ZERO, Duration::ZERO);
        records.merge(vec![of(9, 80)], Duration::from_secs(1), Duration::ZERO);
        assert_eq!(shown(&records), [of(9, 80)]);
    }

    #[test]
    fn changing_answers_do_not_fill_the_memory() {
        let mut records = Records::default();
        for round in 0..20_u32 {
            let items =
                (0..1000).map(|n| Item::Address(std::net::Ipv4Addr::from(round * 1000 + n).into())).collect();
            records.merge(items, Duration::from_secs(round.into()), Duration::from_secs(1_000_000));
        }
        assert_eq!(records.iter().count(), MOST_RECORDS);
        assert!(
            records.iter().any(|entry| entry.item == Item::Address(std::net::Ipv4Addr::from(19_999).into()))
        );
    }
}
