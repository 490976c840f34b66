//! Oddities of a peer, counted by kind.

/// What a peer does that it may do now and then, and that attacks are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Glitch {
    /// It broke a rule of one stream, which we reset.
    StreamError,
    /// It reset a stream before its message was complete.
    Reset,
    /// It opened more streams than it may, or was refused one.
    Refused,
    /// A header block came in an empty frame, or in more than a quarter of
    /// [`MAX_CONTINUATIONS`](crate::MAX_CONTINUATIONS).
    Continuation,
    /// A cheap frame when more than half of what [`CHEAP_BURST`](crate::CHEAP_BURST) allows was used.
    CheapFrame,
    /// A head was too large.
    LargeHead,
}

/// Kinds of glitches.
const KINDS: usize = 6;

/// How often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glitches {
    by_kind: [u32; KINDS],
}

impl Glitches {
    pub(crate) fn add(&mut self, kind: Glitch) {
        let count = &mut self.by_kind[kind as usize];
        *count = count.saturating_add(1);
    }

    /// All of them: `fc_glitches`, `bc_glitches`.
    pub fn total(&self) -> u32 {
        self.by_kind.iter().fold(0, |sum: u32, &count| sum.saturating_add(count))
    }

    /// Those of one kind.
    pub fn of(&self, kind: Glitch) -> u32 {
        self.by_kind[kind as usize]
    }
}
