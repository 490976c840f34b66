//! Classes of tasks, and what each gets of a round (R-F3, R-F4).

/// How a task competes with the others of its lane. A task may change its class while it runs
/// ([`Here::set_class`](crate::Here::set_class)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Little work that others wait for: acknowledgements, wake-ups of I/O. About half of a busy round.
    Urgent = 0,
    /// Requests. The only class where nice values count. A good third.
    Normal = 1,
    /// Much data, no hurry. An eighth.
    Bulk = 2,
    /// Hundreds of microseconds at a time, as TLS handshakes: one task a round, 2 % of a full one.
    Heavy = 3,
}

impl Class {
    /// All of them, in the order in which a round serves them.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::Normal, Self::Bulk, Self::Heavy];

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self::ALL[(bits & 3) as usize]
    }
}

/// Tasks that run between two looks at the poller, by default (R-F4: 40 v. 200 was worth 18 % of requests/s
/// at 16 threads).
pub const RUNQUEUE_DEPTH: u32 = 40;

/// What a class gets of a round while others have work too. The figures are in the proportion of 50 : 37 : 12
/// : 1.
const WEIGHTS: [u32; 3] = [64, 48, 16];

/// From this many queued heavy tasks on, a round runs more than one of them if nothing else is queued: one
/// more for each of so many. A look at the poller costs a microsecond, a heavy task hundreds, so below there
/// is nothing to gain.
pub(crate) const HEAVY_LONG: u32 = 128;
/// The same while other classes have work.
pub(crate) const HEAVY_LONG_BUSY: u32 = 1024;
/// Heavy tasks in one round, however many are queued: bounds the time without a look at the poller.
pub(crate) const HEAVY_MOST: u32 = 8;

/// Heavy tasks that this round may run, when `queued` are waiting. More than one only where the queue grows
/// faster than one a round takes from it: handshakes whose clients gave up meanwhile would be done in vain
/// for ever.
pub(crate) fn heavy_share(queued: u32, alone: bool, low_latency: bool) -> u32 {
    if low_latency || queued == 0 {
        return queued.min(1);
    }
    let step = if alone { HEAVY_LONG } else { HEAVY_LONG_BUSY };
    (1 + queued / step).min(HEAVY_MOST)
}

/// What each of the first three classes may run in a pass over `left` tasks; the lengths tell which have
/// work.
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
    // Rounded up, so that no class with work is left out of a short round. None is more than all.
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
