//! `thread-groups` and `thread-group`: names for sets of lanes. Lanes share next to nothing, so a group only
//! serves `bind ... thread`, `shards by-group` and `cpu-map` to select lanes.

use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::tree::Global;

/// Groups of lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Lanes of each group in order, from 0; empty if one group has all lanes.
    lanes: Vec<Vec<usize>>,
}

impl Groups {
    /// Returns the lanes of each group; empty if one group has all lanes.
    pub fn several(&self) -> &[Vec<usize>] {
        &self.lanes
    }
}

pub(super) fn groups(global: &Global, refuse: &mut Refuse<'_>) -> Groups {
    let one = Groups::default();
    let Some(set) = global.thread_groups.filter(|set| set.value > 1) else {
        if let Some(line) = global.thread_group.first() {
            let message = "'thread-group' expects several groups, found one, which has all lanes; write \
                'thread-groups'";
            refuse.found.alert(line.pos, message);
        }
        return one;
    };
    let Some(lanes) = global.nbthread else {
        let message = "'thread-groups' expects 'nbthread', found none: it shares out that many lanes";
        refuse.found.alert(set.pos, message);
        return one;
    };
    let most = global.thread_hard_limit.map_or(u32::MAX, |most| most.value);
    let (groups, lanes) = (set.value as usize, lanes.value.min(most) as usize);
    let mut all = vec![Vec::new(); groups];
    for line in &global.thread_group {
        // the table of keywords checked the number of words
        let [group, ranges @ ..] = &line.words[..] else { continue };
        let Some((number, _)) = range(group, groups).filter(|(low, high)| low == high) else {
            refuse.found.alert(
                group.pos(),
                format!(
                    "'thread-group' expects the number of a group from 1 to {groups}, found '{}'",
                    group.shown()
                ),
            );
            return one;
        };
        let own: &mut Vec<usize> = &mut all[number - 1];
        own.clear();
        for word in ranges {
            let Some((low, high)) = range(word, lanes) else {
                let message = format!(
                    "'thread-group' expects lanes from 1 to {lanes} such as '2' or '1-4', found '{}'",
                    word.shown()
                );
                refuse.found.alert(word.pos(), message);
                return one;
            };
            own.extend(low - 1..high);
        }
        own.sort_unstable();
        own.dedup();
    }
    match share_out(all, lanes) {
        Ok(lanes) => Groups { lanes },
        Err(why) => {
            refuse.found.alert(set.pos, format!("'thread-groups' : {why}"));
            one
        }
    }
}

/// Parses a number, or a range with a dash, from 1 to `last`.
fn range(word: &Word, last: usize) -> Option<(usize, usize)> {
    let text = word.text()?;
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|n| (1..=last).contains(n));
    Some((number(low)?, number(high)?)).filter(|(low, high)| low <= high)
}

/// Distributes the lanes that no line names as evenly as possible over the groups without a line.
fn share_out(mut groups: Vec<Vec<usize>>, lanes: usize) -> Result<Vec<Vec<usize>>, String> {
    let mut owner = vec![None; lanes];
    for (number, group) in groups.iter().enumerate() {
        for &lane in group {
            if let Some(other) = owner[lane].replace(number + 1) {
                return Err(format!(
                    "lane {} belongs to the groups {other} and {}: leave it in one",
                    lane + 1,
                    number + 1
                ));
            }
        }
    }
    let mut free = (0..lanes).filter(|&lane| owner[lane].is_none());
    let mut left = free.clone().count();
    let mut empty = groups.iter().filter(|group| group.is_empty()).count();
    if left < empty {
        return Err(format!(
            "expected a lane for each group without a 'thread-group' line, {empty} in all, found {left}"
        ));
    }
    for group in groups.iter_mut().filter(|group| group.is_empty()) {
        let share = left.div_ceil(empty);
        group.extend(free.by_ref().take(share));
        (left, empty) = (left - share, empty - 1);
    }
    match free.next() {
        None => Ok(groups),
        Some(lane) => Err(format!("lane {} belongs to no group: name it in one", lane + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_nobody_names_go_to_the_groups_that_name_none() {
        let lanes = |groups: &[&[usize]], lanes| {
            share_out(groups.iter().map(|group| group.to_vec()).collect(), lanes)
        };
        assert_eq!(lanes(&[&[], &[]], 5), Ok(vec![vec![0, 1, 2], vec![3, 4]]));
        assert_eq!(lanes(&[&[], &[1, 2], &[]], 5), Ok(vec![vec![0, 3], vec![1, 2], vec![4]]));
        assert_eq!(lanes(&[&[0], &[1]], 2), Ok(vec![vec![0], vec![1]]));
        assert_eq!(lanes(&[&[0], &[1]], 3), Err("lane 3 belongs to no group: name it in one".into()));
        assert_eq!(
            lanes(&[&[0, 1], &[1]], 2),
            Err("lane 2 belongs to the groups 1 and 2: leave it in one".into())
        );
        assert_eq!(
            lanes(&[&[], &[], &[]], 2),
            Err("expected a lane for each group without a 'thread-group' line, 3 in all, found 2".into())
        );
    }
}
