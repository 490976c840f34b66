//! Classes of tasks, and the share of a round of each (R-F3, R-F4).

/// Priority class of a task among those of its lane. A task may change its class while it runs
/// ([`Here::set_class`](crate::Here::set_class)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Short tasks for which others wait: acknowledgements, wake-ups of I/O. About half of a busy round.
    Urgent = 0,
    /// Requests. The only class with nice values. A good third of a busy round.
    Normal = 1,
    /// Bulk data without hurry. An eighth of a busy round.
    Bulk = 2,
    /// Tasks that take hundreds of microseconds at a time, such as TLS handshakes: one task a round, 2 % of a
    /// full round, and up to eight if many wait.
    Heavy = 3,
}

impl Class {
    /// All classes, in the order in which a round serves them.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::Normal, Self::Bulk, Self::Heavy];

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self::ALL[(bits & 3) as usize]
    }
}

/// Default number of tasks that run between two checks of the poller (R-F4: 40 instead of 200 gained 18 % of
/// requests/s at 16 threads).
pub const RUNQUEUE_DEPTH: u32 = 40;

/// Weight of each class in a round while others have work, too, in the proportion 50 : 37 : 12 : 1.
const WEIGHTS: [u32; 3] = [64, 48, 16];

/// Number of queued heavy tasks for each additional heavy task in a round, if nothing else is queued. A check
/// of the poller costs a microsecond, a heavy task hundreds, so shorter queues gain nothing from more.
pub(crate) const HEAVY_LONG: u32 = 128;
/// The same number while other classes have work.
pub(crate) const HEAVY_LONG_BUSY: u32 = 1024;
/// Maximum number of heavy tasks in one round; bounds the time between checks of the poller.
pub(crate) const HEAVY_MOST: u32 = 8;

/// Returns how many heavy tasks this round may run while `queued` wait. More than one only if the queue grows
/// faster than one task a round: otherwise the lane would for ever do handshakes whose clients have given up
/// meanwhile.
pub(crate) fn heavy_share(queued: u32, alone: bool, low_latency: bool) -> u32 {
    if low_latency || queued == 0 {
        return queued.min(1);
    }
    let step = if alone { HEAVY_LONG } else { HEAVY_LONG_BUSY };
    (1 + queued / step).min(HEAVY_MOST)
}

/// Returns the share of each of the first three classes in a pass over `left` tasks; `lengths` shows which
/// have work.
pub(crate) fn shares(left: u32, lengths: [u32; 3]) -> [u32; 3] {
    // The common case: no division.
    match lengths {
        [_, 0, 0] => return [left, 0, 0],
        [0, _, 0] => return [0, left, 0],
        [0, 0, _] => return [0, 0, left],
        _ => {}
    }
    let weight = |class: usize| if lengths[class] > 0 { u64::from(WEIGHTS[class]) } else { 0 };
    let total: u64 = (0..3).map(weight).sum();
    // Rounded up, so that a short round runs every class with work. No share exceeds the sum.
    std::array::from_fn(|class| (u64::from(left) * weight(class)).div_ceil(total.max(1)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_share_a_round_by_weight_and_an_empty_one_leaves_its_part_to_the_others() {
        assert_eq!(shares(40, [9, 9, 9]), [20, 15, 5]);
        assert_eq!(shares(40, [0, 9, 9]), [0, 30, 10]);
        assert_eq!(shares(40, [0, 9, 0]), [0, 40, 0]);
        assert_eq!(shares(1, [9, 9, 9]), [1, 1, 1]);
        assert_eq!(shares(u32::MAX, [9, 9, 9]), [1 << 31, 3 << 29, 1 << 29]);
    }

    /// R-F3
    #[test]
    fn one_heavy_task_a_round_and_a_bounded_few_more_when_the_queue_is_long() {
        assert_eq!([0, 1, 127].map(|n| heavy_share(n, true, false)), [0, 1, 1]);
        assert_eq!([128, 300, 1 << 20].map(|n| heavy_share(n, true, false)), [2, 3, HEAVY_MOST]);
        assert_eq!([1023, 1024, 1 << 20].map(|n| heavy_share(n, false, false)), [1, 2, HEAVY_MOST]);
        assert_eq!([0, 1, 1 << 20].map(|n| heavy_share(n, true, true)), [0, 1, 1]);
    }
}
