//! Memory for log lines.

use manylane_plan::generation::{FrontendLog, Generation, Profile};

/// Buffer of a lane for log lines, as long as the longest line of all targets; each target truncates to its
/// own length. Separate from the lane's scratch memory, where the parts of a line are evaluated.
#[derive(Debug)]
pub struct Room {
    /// For the text of a line.
    pub text: Box<[u8]>,
    /// For its structured data (RFC 5424).
    pub structured: Box<[u8]>,
}

impl Room {
    pub(crate) fn new(generation: &Generation) -> Self {
        let longest = generation.logs.targets.iter().map(|target| target.length()).max().unwrap_or(0);
        let mut logs = generation.frontends.iter().filter_map(|frontend| frontend.log.as_ref());
        let of_profile = |profile: &Profile| profile.steps.iter().any(|line| line.structured.is_some());
        let has = |log: &FrontendLog| log.structured.is_some() || log.profiles.iter().any(of_profile);
        let structured = if logs.any(has) { longest } else { 0 };
        let room = |bytes| vec![0; bytes].into_boxed_slice();
        Self { text: room(longest), structured: room(structured) }
    }
}
