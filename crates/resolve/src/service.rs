//! Assignment of a service's servers to the servers of a template.

use crate::{Name, Service};
use std::collections::HashMap;

/// The server of a service, as name and port, that a server of a template stands for.
pub type ServiceMember = Option<(Name, u16)>;

/// A change of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentChange {
    /// The template's server at this position becomes free.
    Leave(usize),
    /// The server at this position now stands for this one.
    Take(usize, Service),
    /// The server at this position stands for the same one, whose weight and address may have changed.
    Stay(usize, Service),
}

/// Converts the weight of an SRV record, 0 to 65,535, to that of a server, 0 to 256; only 0 becomes 0.
pub fn weight(of_record: u16) -> u16 {
    of_record.div_ceil(256)
}

/// Assigns `services` to the servers of a template, whose current assignments are `taken`. Servers of the
/// service that are gone free their positions, those that stay keep them, and new ones take the first free
/// positions, as long as there are some.
pub fn members(taken: &[ServiceMember], services: &[Service]) -> Vec<AssignmentChange> {
    let wanted: HashMap<(&Name, u16), &Service> =
        services.iter().map(|service| ((&service.target, service.port), service)).collect();
    let mut moves = Vec::new();
    let mut assigned = std::collections::HashSet::new();
    let mut free = Vec::new();
    for (index, member) in taken.iter().enumerate() {
        match member {
            None => free.push(index),
            Some((name, port)) => match wanted.get(&(name, *port)) {
                Some(service) if assigned.insert((name, *port)) => {
                    moves.push(AssignmentChange::Stay(index, (*service).clone()))
                }
                _ => {
                    moves.push(AssignmentChange::Leave(index));
                    free.push(index);
                }
            },
        }
    }
    let mut free = free.into_iter();
    for service in services {
        if !assigned.insert((&service.target, service.port)) {
            continue;
        }
        let Some(position) = free.next() else { break };
        moves.push(AssignmentChange::Take(position, service.clone()));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_of_records_become_weights_of_servers() {
        for (record, own) in [(0, 0), (1, 1), (255, 1), (256, 1), (257, 2), (511, 2), (513, 3), (65_535, 256)]
        {
            assert_eq!(weight(record), own, "{record}");
        }
    }

    fn service(number: u8) -> Service {
        let target = Name::parse(&format!("s{}.test", number / 2)).unwrap();
        Service { target, port: 80 + u16::from(number % 2), weight: 0, priority: 0, address: None }
    }

    proptest! {
        #[test]
        fn each_service_has_one_slot_as_long_as_there_are_some(
            answers in prop::collection::vec(prop::collection::vec(0_u8..12, 0..12), 1..8),
            count in 0_usize..8,
        ) {
            let mut taken: Vec<ServiceMember> = vec![None; count];
            for answer in answers {
                let services: Vec<Service> = answer.iter().map(|&number| service(number)).collect();
                let before = taken.clone();
                for step in members(&taken, &services) {
                    match step {
                        AssignmentChange::Leave(index) => taken[index] = None,
                        AssignmentChange::Take(position, service) => {
                            prop_assert!(taken[position].is_none());
                            taken[position] = Some((service.target, service.port));
                        }
                        AssignmentChange::Stay(at, service) => {
                            prop_assert_eq!(&taken[at], &Some((service.target, service.port)))
                        }
                    }
                }
                let mut distinct = answer.clone();
                distinct.sort_unstable();
                distinct.dedup();
                let assigned: std::collections::HashSet<_> = taken.iter().flatten().collect();
                prop_assert_eq!(taken.iter().flatten().count(), assigned.len());
                prop_assert_eq!(assigned.len(), distinct.len().min(count));
                for (was, is) in before.iter().zip(&taken) {
                    let stays = was.as_ref().is_some_and(|was| services.iter().any(|one| (&one.target,
                        one.port) == (&was.0, was.1)));
                    prop_assert!(!stays || was == is);
                }
            }
        }
    }
}
