//! `cpu-map`: binds lanes to processors.

use super::cpu_choice::CpuSelection;
use super::groups::Groups;
use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::Statement;
use manylane_sched::Cpu;
use manylane_sync::Arc;

/// Most lanes.
const LANES: usize = 1024;
/// Most processors: as many as the system's sets can hold.
const PROCESSORS: usize = 1024;

/// Processors that each lane is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMap {
    /// Processors by lane, from 0; empty for lanes that run anywhere.
    lanes: Vec<Arc<[usize]>>,
    /// Number of lanes, if the configuration does not set it: one for each processor that `cpu-policy` and
    /// `cpu-set` leave.
    chosen: Option<usize>,
}

impl CpuMap {
    pub(super) fn new(lanes: Vec<Arc<[usize]>>, chosen: Option<usize>) -> Self {
        Self { lanes, chosen }
    }

    /// Returns the number of lanes that the processors were chosen for.
    pub fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    /// Returns the processors of a lane in order; `None` if the lane runs wherever the process may.
    pub fn of(&self, lane: usize) -> Option<&[usize]> {
        self.lanes.get(lane).map(|cpus| &cpus[..]).filter(|cpus| !cpus.is_empty())
    }

    /// Adds the words of a line. Later lines replace earlier ones.
    fn add(&mut self, words: &[Word], groups: &Groups) -> Result<(), (Pos, String)> {
        let [lanes, processors @ ..] = words else { return Ok(()) }; // the table counts them
        let wrong =
            |word: &Word, message: &str| Err((word.pos(), format!("{message}, found '{}'", word.shown())));
        let text = lanes.text().unwrap_or_default();
        let (auto, text) = match text.strip_prefix("auto:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (group, own) = match text.split_once('/') {
            Some((group, own)) => (group, Some(own)),
            None => (text, None),
        };
        let (Some(group), Some(mut own)) =
            (Numbers::read(group, 1, 64), Numbers::read(own.unwrap_or("all"), 1, LANES))
        else {
            return wrong(
                lanes,
                "expects a group and its lanes such as '1/1-4', with numbers from 1, ranges, 'odd', \
                    'even' or 'all'",
            );
        };
        let mut cpus = Numbers { list: Vec::new(), open: false };
        for word in processors {
            for part in word.text().unwrap_or_default().split(',') {
                let Some(more) = Numbers::of_processors(part) else {
                    return wrong(
                        word,
                        "expects processors: numbers from 0 to 1023, or ranges such as '0-3'",
                    );
                };
                cpus.list.extend(more.list);
                cpus.open |= more.open;
            }
        }
        cpus.list.sort_unstable();
        cpus.list.dedup();
        if auto {
            let most = cpus.list.len();
            own.cut(most);
            cpus.cut(own.list.len());
            if own.list.len() != cpus.list.len() {
                let message = format!(
                    "expects as many processors as lanes behind 'auto:', found {} and {}",
                    cpus.list.len(),
                    own.list.len(),
                );
                return Err((lanes.pos(), message));
            }
        }
        let several = groups.several();
        if auto && group.list.iter().filter(|number| **number <= several.len()).count() > 1 {
            return wrong(lanes, "names several groups: 'auto:' expects the lanes of one group");
        }
        // Groups and lanes that do not exist are ignored.
        let together: Arc<[usize]> = cpus.list[..].into();
        for number in group.list {
            let members = match several.get(number - 1) {
                None if several.is_empty() && number == 1 => None,
                None => continue,
                members => members,
            };
            for (n, lane) in own.list.iter().enumerate() {
                let lane = match members {
                    None => lane - 1,
                    Some(members) => match members.get(lane - 1) {
                        Some(lane) => *lane,
                        None => continue,
                    },
                };
                if self.lanes.len() <= lane {
                    self.lanes.resize(lane + 1, Arc::default());
                }
                self.lanes[lane] = if auto { [cpus.list[n]][..].into() } else { together.clone() };
            }
        }
        Ok(())
    }
}

/// A set of numbers.
pub(super) struct Numbers {
    /// The numbers in order.
    pub(super) list: Vec<usize>,
    /// The end was left open, so the set may be truncated.
    open: bool,
}

impl Numbers {
    /// Parses `all`, `odd`, `even`, a number, or a range whose end may be left open.
    fn read(text: &str, first: usize, last: usize) -> Option<Self> {
        let by_two = |remainder: usize| (first..=last).filter(|n| n % 2 == remainder).collect();
        Some(match text {
            "all" => Self { list: (first..=last).collect(), open: true },
            "odd" => Self { list: by_two(1), open: true },
            "even" => Self { list: by_two(0), open: true },
            _ => return Self::range(text, first, last),
        })
    }

    pub(super) fn of_processors(text: &str) -> Option<Self> {
        Self::range(text, 0, PROCESSORS - 1)
    }

    fn range(text: &str, first: usize, last: usize) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|n| (first..=last).contains(n));
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let low = number(low)?;
        let high = if high.is_empty() { last } else { number(high)? };
        (low <= high).then(|| Self { list: (low..=high).collect(), open: text.ends_with('-') })
    }

    /// Truncates the set to `most` numbers, if its end was left open.
    fn cut(&mut self, most: usize) {
        if self.open {
            self.list.truncate(most);
        }
    }
}

/// Reads the lines about processors. `cpus` returns those that the process may use, and `lanes` is the
/// configured number of lanes.
pub(super) fn cpu_map(
    statements: &[Statement],
    groups: &Groups,
    lanes: Option<usize>,
    cpus: impl FnOnce() -> Vec<Cpu>,
    refuse: &mut Refuse<'_>,
) -> CpuMap {
    let mut map = CpuMap::default();
    let mut choice = CpuSelection::default();
    for statement in statements {
        let Statement { keyword, words, pos } = statement;
        let wrong = match *keyword {
            "cpu-map" => map.add(words, groups),
            "cpu-policy" => choice.policy(words),
            "cpu-set" => choice.rules(words),
            _ => {
                refuse.keyword(*pos, keyword, "use 'cpu-policy' or 'cpu-map' to bind lanes to processors");
                Ok(())
            }
        };
        if let Err((pos, message)) = wrong {
            refuse.found.alert(pos, format!("'{keyword}' {message}"));
        }
    }
    // A manual map wins over a policy, as in HAProxy.
    if map.lanes.is_empty() && choice != CpuSelection::default() {
        map = choice.of(cpus(), lanes);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_config::cond::Build;
    use manylane_config::lex::Environment;
    use manylane_config::load;
    use manylane_config::source::Sources;

    fn map(lines: &str) -> Result<CpuMap, String> {
        let mut sources = Sources::new();
        sources.add("test.cfg", format!("global\n{lines}")).unwrap();
        let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
        assert!(loaded.found.found().is_empty(), "{:?}", loaded.found.found());
        let statements = loaded.config.global.cpu_placement.clone();
        let mut refuse = Refuse::new(&mut loaded.found, &loaded.config, false);
        let groups = super::super::groups::groups(&loaded.config.global, &mut refuse);
        let map = cpu_map(&statements, &groups, None, Vec::new, &mut refuse);
        match loaded.found.found() {
            [] => Ok(map),
            found => Err(format!("{found:?}")),
        }
    }

    #[test]
    fn lanes_are_kept_to_the_processors_of_their_last_line() {
        let of = |lines: &str, lane: usize| map(lines).unwrap().of(lane).map(<[usize]>::to_vec);
        assert_eq!(of(" cpu-map 1/all 0-3\n", 900), Some(vec![0, 1, 2, 3]));
        assert_eq!(of(" cpu-map 1 0,2 5\n", 0), Some(vec![0, 2, 5]));
        assert_eq!(of(" cpu-map 1/2-3 4\n", 0), None);
        assert_eq!(of(" cpu-map 1/2-3 4\n", 2), Some(vec![4]));
        assert_eq!(of(" cpu-map 1/odd 1\n cpu-map 1/even 2\n", 1), Some(vec![2]));
        assert_eq!(of(" cpu-map all 1\n cpu-map 1/2 7\n", 1), Some(vec![7]));
        assert_eq!(of(" cpu-map 2/all 1\n", 0), None, "there is one group");
        assert_eq!(of("", 0), None);
    }

    #[test]
    fn lanes_are_numbered_in_their_group() {
        // Groups: lanes 1 and 4; 2 and 3; 5.
        let three = " nbthread 5\n thread-groups 3\n thread-group 2 2-3\n";
        let of = |lines: &str| {
            let map = map(&format!("{three}{lines}")).unwrap();
            (0..6).map(|lane| map.of(lane).map(<[usize]>::to_vec)).collect::<Vec<_>>()
        };
        let cpu = |n: usize| Some(vec![n]);
        assert_eq!(of(" cpu-map 1/all 7\n"), [cpu(7), None, None, cpu(7), None, None]);
        assert_eq!(of(" cpu-map 1-2/2 7\n"), [None, None, cpu(7), cpu(7), None, None]);
        assert_eq!(
            of(" cpu-map auto:2/1-2 4-5\n cpu-map 3/1 6\n"),
            [None, cpu(4), cpu(5), None, cpu(6), None]
        );
        assert_eq!(of(" cpu-map 4/1 6\n cpu-map 3/2 6\n"), [const { None }; 6]);
        let several = map(&format!("{three} cpu-map auto:all/1 0\n")).unwrap_err();
        assert!(several.contains("names several groups"), "{several}");
        for (lines, why) in [
            (" thread-groups 2\n", "expects 'nbthread', found none"),
            (" nbthread 4\n thread-group 1 1-2\n", "write 'thread-groups'"),
            (" nbthread 4\n thread-groups 2\n thread-group 3 1\n", "from 1 to 2"),
            (" nbthread 4\n thread-groups 2\n thread-group 1 3-5\n", "lanes from 1 to 4"),
            (
                " nbthread 4\n thread-groups 2\n thread-group 1 1-2\n thread-group 2 2-4\n",
                "to the groups 1 and 2",
            ),
        ] {
            let found = map(lines).unwrap_err();
            assert!(found.contains(why), "{lines}: {found}");
        }
    }

    #[test]
    fn auto_gives_one_processor_to_each_lane_in_order() {
        for lines in
            [" cpu-map auto:1/1-4 0-3\n", " cpu-map auto:1/1-4 0-1 2-3\n", " cpu-map auto:1/1-4 3 2 1 0\n"]
        {
            let map = map(lines).unwrap();
            let all: Vec<_> = (0..5).map(|lane| map.of(lane).map(<[usize]>::to_vec)).collect();
            assert_eq!(all, [Some(vec![0]), Some(vec![1]), Some(vec![2]), Some(vec![3]), None], "{lines}");
        }
        let even = map(" cpu-map auto:1/even 0-31\n").unwrap();
        assert_eq!(
            (even.of(0), even.of(1), even.of(63), even.of(65)),
            (None, Some(&[0][..]), Some(&[31][..]), None)
        );
        let open = map(" cpu-map auto:1/1- 2-\n").unwrap();
        assert_eq!((open.of(0), open.of(9)), (Some(&[2][..]), Some(&[11][..])));
        let fixed = map(" cpu-map auto:1/1-2 4-\n").unwrap();
        assert_eq!((fixed.of(1), fixed.of(2)), (Some(&[5][..]), None));
    }

    #[test]
    fn what_is_no_map_is_refused_with_a_reason() {
        for (lines, why) in [
            (" cpu-map auto:1/1-4 0\n", "behind 'auto:', found 1 and 4"),
            (" cpu-map auto:1/1 0-3\n", "behind 'auto:', found 4 and 1"),
            (" cpu-map 1/x 0\n", "'cpu-map' expects a group and its lanes"),
            (" cpu-map 1/4-2 0\n", "found '1/4-2'"),
            (" cpu-map 0 0\n", "found '0'"),
            (
                " cpu-map 1/1 3-1\n",
                "expects processors: numbers from 0 to 1023, or ranges such as '0-3', found '3-1'",
            ),
            (" cpu-map 1/1 1024\n", "found '1024'"),
            (" cpu-map 1/1 0,,1\n", "found '0,,1'"),
            (" cpu-policy best\n", "'cpu-policy' expects one of none, "),
            (
                " cpu-set drop-cluster 0\n",
                "expects rules by processors, nodes or threads, found 'drop-cluster'",
            ),
            (" cpu-set only-cpu\n", "behind 'only-cpu', found none"),
            (" cpu-set only-cpu x\n", "behind 'only-cpu', found 'x'"),
        ] {
            let found = map(lines).unwrap_err();
            assert!(found.contains(why), "{lines}: {found}");
        }
        assert_eq!(map(" cpu-policy none\n"), Ok(CpuMap::default()));
    }
}
