//! `cpu-policy` and `cpu-set`: choose processors by their topology, as the system reports it under
//! `/sys/devices/system`.
//!
//! `cpu-set` selects some of the processors that the process may use, and `cpu-policy` says how lanes are
//! spread over these. HAProxy's policies by cluster treat processors as one cluster if they share a cache and
//! are equally fast: few systems report other clusters. Rules of `cpu-set` by core and by cluster are
//! refused, because their numbering is documented nowhere.

use super::cpu_map::{CpuMap, Numbers};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_sched::Cpu;
use manylane_sync::Arc;

/// How lanes are spread over processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policy {
    /// Lanes run on any processor.
    #[default]
    None,
    /// Lanes run on the first NUMA node that has usable processors.
    FirstNode,
    /// Lanes run on the fast processors.
    Performance,
    /// Lanes run on the slow processors.
    Efficiency,
    /// Each lane runs on the processors of this many shared caches.
    Caches(usize),
    /// Like `Caches`, but processors of one cluster are also equally fast.
    Clusters(usize),
    /// Lanes run on one cluster: the slowest one, and the smallest of equally slow ones.
    Resource,
}

const POLICIES: &[(&str, Policy)] = &[
    ("none", Policy::None),
    ("first-usable-node", Policy::FirstNode),
    ("performance", Policy::Performance),
    ("efficiency", Policy::Efficiency),
    ("group-by-ccx", Policy::Caches(1)),
    ("group-by-2-ccx", Policy::Caches(2)),
    ("group-by-3-ccx", Policy::Caches(3)),
    ("group-by-4-ccx", Policy::Caches(4)),
    ("group-by-cluster", Policy::Clusters(1)),
    ("group-by-2-clusters", Policy::Clusters(2)),
    ("group-by-3-clusters", Policy::Clusters(3)),
    ("group-by-4-clusters", Policy::Clusters(4)),
    ("resource", Policy::Resource),
];

/// Kind of the numbers in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Processor,
    Node,
    Thread,
}

/// Choice of processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuSelection {
    policy: Policy,
    /// `threads-per-core 1`
    one_of_core: bool,
    /// Rules of `cpu-set` in order; true removes the processors with these numbers, false removes all others.
    rules: Vec<(Of, bool, Vec<usize>)>,
}

type Wrong = Result<(), (Pos, String)>;

impl CpuSelection {
    /// Reads the words of `cpu-policy`.
    pub(super) fn policy(&mut self, words: &[Word]) -> Wrong {
        let [name, more @ ..] = words else { return Ok(()) }; // the table counts them
        let wrong =
            |word: &Word, message: String| Err((word.pos(), format!("{message}, found '{}'", word.shown())));
        let known = POLICIES.iter().map(|(name, _)| *name);
        match POLICIES.iter().find(|(known, _)| *name == **known) {
            Some((_, policy)) => self.policy = *policy,
            None => {
                let known = known.collect::<Vec<_>>().join(", ");
                return wrong(name, format!("expects one of {known}"));
            }
        }
        match more {
            [] => Ok(()),
            [option] if *option == *"threads-per-core" => {
                Err((option.pos(), "expects auto or 1 behind 'threads-per-core', found none".into()))
            }
            [option, number, rest @ ..] if *option == *"threads-per-core" => {
                self.one_of_core = *number == *"1";
                match rest {
                    _ if !self.one_of_core && *number != *"auto" => {
                        wrong(number, "expects auto or 1 behind 'threads-per-core'".into())
                    }
                    [] => Ok(()),
                    [more, ..] => wrong(more, "expects one word behind 'threads-per-core'".into()),
                }
            }
            [option, ..] => wrong(option, "expects 'threads-per-core' behind the policy".into()),
        }
    }

    /// Reads the rules of `cpu-set`, each with its numbers.
    pub(super) fn rules(&mut self, words: &[Word]) -> Wrong {
        let mut words = words.iter();
        while let Some(rule) = words.next() {
            let (drops, of) = match rule.bytes() {
                b"reset" => {
                    // nothing narrows the set before the first rule, so this is the initial state
                    self.rules.clear();
                    continue;
                }
                b"drop-cpu" => (true, Of::Processor),
                b"only-cpu" => (false, Of::Processor),
                b"drop-node" => (true, Of::Node),
                b"only-node" => (false, Of::Node),
                b"drop-thread" => (true, Of::Thread),
                b"only-thread" => (false, Of::Thread),
                b"drop-core" | b"only-core" | b"drop-cluster" | b"only-cluster" => {
                    let message = format!(
                        "expects rules by processors, nodes or threads, found '{}', which is not built",
                        rule.shown()
                    );
                    return Err((rule.pos(), message));
                }
                _ => {
                    let message = format!(
                        "expects reset, drop-cpu, only-cpu, drop-node, only-node, drop-thread or \
                            only-thread, found '{}'",
                        rule.shown()
                    );
                    return Err((rule.pos(), message));
                }
            };
            let Some(word) = words.next() else {
                return Err((
                    rule.pos(),
                    format!(
                        "expects numbers or ranges such as '0-3,8' behind '{}', found none",
                        rule.shown()
                    ),
                ));
            };
            let mut numbers = Vec::new();
            for part in word.text().unwrap_or_default().split(',') {
                let Some(more) = Numbers::of_processors(part) else {
                    return Err((
                        word.pos(),
                        format!(
                            "expects numbers or ranges such as '0-3,8' behind '{}', found '{}'",
                            rule.shown(),
                            word.shown()
                        ),
                    ));
                };
                numbers.extend(more.list);
            }
            self.rules.push((of, drops, numbers));
        }
        Ok(())
    }

    /// Returns the processors of each of `lanes` lanes, or of one lane for each remaining processor.
    pub(super) fn of(&self, mut all: Vec<Cpu>, lanes: Option<usize>) -> CpuMap {
        for (of, drops, numbers) in &self.rules {
            let number = |cpu: &Cpu| match of {
                Of::Processor => cpu.cpu,
                Of::Node => cpu.node,
                Of::Thread => cpu.thread,
            };
            all.retain(|cpu| numbers.contains(&number(cpu)) != *drops);
        }
        if self.one_of_core {
            all.retain(|cpu| cpu.thread == 0);
        }
        let fastest = all.iter().map(|cpu| cpu.capacity).max().unwrap_or(0);
        // If the system reports only frequencies, those of equal processors may differ a little.
        let is_fast = |cpu: &Cpu| cpu.capacity * 5 >= fastest * 4;
        match self.policy {
            Policy::None | Policy::Caches(_) | Policy::Clusters(_) | Policy::Resource => {}
            Policy::FirstNode => {
                let first = all.iter().map(|cpu| cpu.node).min();
                all.retain(|cpu| Some(cpu.node) == first);
            }
            Policy::Performance => all.retain(is_fast),
            Policy::Efficiency if all.iter().any(|cpu| !is_fast(cpu)) => all.retain(|cpu| !is_fast(cpu)),
            Policy::Efficiency => {} // all are equally fast
        }
        if all.is_empty() {
            return CpuMap::default(); // no processor is left: the rules are ignored
        }
        let (each, by_speed) = match self.policy {
            Policy::Caches(each) => (each, false),
            Policy::Clusters(each) => (each, true),
            Policy::Resource => (1, true),
            _ => (usize::MAX, false),
        };
        let group = |cpu: &Cpu| (cpu.node, cpu.cache, by_speed && !is_fast(cpu));
        all.sort_by_key(|cpu| (group(cpu), cpu.cpu));
        let mut alike: Vec<&[Cpu]> = all.chunk_by(|a, b| group(a) == group(b)).collect();
        if self.policy == Policy::Resource {
            let cost = |group: &&[Cpu]| (is_fast(&group[0]), group.len());
            alike = alike.into_iter().min_by_key(cost).into_iter().collect();
        }
        let groups = alike.chunks(each.min(alike.len()));
        let mut of_groups: Vec<Arc<[usize]>> = Vec::new();
        for group in groups {
            let cpus: Arc<[usize]> = group.iter().copied().flatten().map(|cpu| cpu.cpu).collect();
            of_groups.extend((0..cpus.len()).map(|_| cpus.clone()));
        }
        // With fewer lanes than processors each group gets its share; with more, the assignment starts over.
        let count = lanes.unwrap_or(of_groups.len());
        let own = (0..count).map(|lane| match count <= of_groups.len() {
            true => of_groups[lane * of_groups.len() / count].clone(),
            false => of_groups[lane % of_groups.len()].clone(),
        });
        CpuMap::new(own.collect(), Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_config::lex::Word;
    use manylane_config::source::Sources;

    /// A machine with two nodes, each with two caches of two cores with two threads; the second node is slow.
    fn machine() -> Vec<Cpu> {
        let cpu = |cpu: usize| Cpu {
            cpu,
            node: cpu / 8,
            cache: cpu / 4 * 4,
            thread: cpu % 2,
            capacity: if cpu < 8 { 1024 } else { 500 },
        };
        (0..16).map(cpu).collect()
    }

    fn words(text: &str) -> Vec<Word> {
        let file = Sources::new().add("x", "").unwrap();
        text.split(' ').map(|word| Word::plain(word.as_bytes(), Pos { file, line: 1, column: 1 })).collect()
    }

    fn map(policy: &str, set: &str, lanes: Option<usize>) -> Vec<Vec<usize>> {
        let mut choice = CpuSelection::default();
        choice.policy(&words(policy)).unwrap();
        if !set.is_empty() {
            choice.rules(&words(set)).unwrap();
        }
        let map = choice.of(machine(), lanes);
        (0..).map_while(|lane| map.of(lane).map(<[usize]>::to_vec)).collect()
    }

    fn all(range: std::ops::Range<usize>) -> Vec<usize> {
        range.collect()
    }

    #[test]
    fn policies_choose_processors_and_one_lane_for_each() {
        assert_eq!(map("first-usable-node", "", None), vec![all(0..8); 8]);
        assert_eq!(map("performance", "", None), vec![all(0..8); 8]);
        assert_eq!(map("efficiency", "", None), vec![all(8..16); 8]);
        let four = |n: usize| vec![all(4 * n..4 * n + 4); 4];
        assert_eq!(map("group-by-ccx", "", None), [four(0), four(1), four(2), four(3)].concat());
        assert_eq!(map("group-by-2-ccx", "", None), [vec![all(0..8); 8], vec![all(8..16); 8]].concat());
        assert_eq!(
            map("group-by-2-clusters", "", None),
            map("group-by-2-ccx", "", None),
            "each cache is of one kind"
        );
        assert_eq!(map("group-by-cluster threads-per-core auto", "", None), map("group-by-ccx", "", None));
        assert_eq!(map("performance threads-per-core 1", "", None), vec![vec![0, 2, 4, 6]; 4]);
        assert_eq!(map("resource", "", None), vec![all(8..12); 4], "the first of the slow ones");
        assert_eq!(map("resource", "drop-cpu 13", None), vec![vec![12, 14, 15]; 3], "the smallest of them");
        assert_eq!(map("resource", "only-node 0", None), vec![all(0..4); 4], "all are alike");
        assert_eq!(
            map("group-by-ccx", "", Some(2)),
            [all(0..4), all(8..12)],
            "few lanes are spread over all"
        );
        assert_eq!(map("group-by-ccx", "only-cpu 0-1", Some(3)), [vec![0, 1], vec![0, 1], vec![0, 1]]);
    }

    #[test]
    fn a_cache_of_fast_and_slow_ones_has_two_clusters() {
        let mixed = machine().into_iter().map(|cpu| Cpu { cache: 0, node: 0, ..cpu }).collect();
        let mut choice = CpuSelection::default();
        choice.policy(&words("group-by-cluster")).unwrap();
        let map = choice.of(mixed, None);
        let lanes: Vec<_> = (0..).map_while(|lane| map.of(lane).map(<[usize]>::to_vec)).collect();
        assert_eq!(lanes, [vec![all(0..8); 8], vec![all(8..16); 8]].concat());
    }

    #[test]
    fn what_is_no_policy_is_refused_with_its_position() {
        for (text, column, said) in [
            ("fastest", 1, "expects one of none, first-usable-node"),
            ("none threads-per-core", 1, "expects auto or 1 behind 'threads-per-core', found none"),
            ("none threads-per-core 2", 1, "expects auto or 1 behind 'threads-per-core', found '2'"),
            ("none threads-per-core 1 x", 1, "expects one word behind 'threads-per-core', found 'x'"),
            ("none cores", 1, "expects 'threads-per-core' behind the policy, found 'cores'"),
        ] {
            let (pos, message) = CpuSelection::default().policy(&words(text)).unwrap_err();
            assert!(pos.column == column && message.starts_with(said), "{text}: {message}");
        }
    }

    #[test]
    fn sets_leave_some_processors() {
        assert_eq!(map("none", "only-node 1 drop-cpu 12-", None), vec![all(8..12); 4]);
        assert_eq!(map("none", "only-thread 0 only-cpu 0-3,5", None), vec![vec![0, 2]; 2]);
        assert_eq!(
            map("none", "only-cpu 1 reset drop-node 0 drop-thread 1", None),
            vec![vec![8, 10, 12, 14]; 4]
        );
        assert_eq!(map("first-usable-node", "drop-node 0", None), vec![all(8..16); 8]);
        assert_eq!(map("efficiency", "only-node 0", None), vec![all(0..8); 8], "all are alike");
        assert!(map("none", "drop-cpu 0-", None).is_empty());
    }
}
