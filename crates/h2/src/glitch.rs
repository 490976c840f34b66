//! Glitches: oddities of a peer, counted by kind.

/// Behaviour that is harmless once, and that attacks consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Glitch {
    /// The peer broke a rule of one stream, which this side reset.
    StreamError,
    /// The peer reset a stream before its message was complete.
    Reset,
    /// The peer opened more streams than allowed.
    Refused,
    /// A header block came with an empty frame, or in more than a quarter of
    /// [`MAX_CONTINUATIONS`](crate::MAX_CONTINUATIONS) frames.
    Continuation,
    /// A cheap frame came after more than half of [`CHEAP_BURST`](crate::CHEAP_BURST) was used up.
    CheapFrame,
    /// A head was too large.
    LargeHead,
}

/// Number of kinds of glitches.
const KINDS: usize = 6;

/// Number of glitches of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glitches {
    by_kind: [u32; KINDS],
}

impl Glitches {
    pub(crate) fn add(&mut self, kind: Glitch) {
        let count = &mut self.by_kind[kind as usize];
        *count = count.saturating_add(1);
    }

    /// Returns the number of glitches of all kinds: `fc_glitches`, `bc_glitches`.
    pub fn total(&self) -> u32 {
        self.by_kind.iter().fold(0, |sum: u32, &count| sum.saturating_add(count))
    }

    /// Returns the number of glitches of one kind.
    pub fn of(&self, kind: Glitch) -> u32 {
        self.by_kind[kind as usize]
    }
}
