//! Every bound on what a configuration can make the reader do, with its reason. Whatever the input, reading
//! it ends in time and memory proportional to these.

/// Bytes of one file. Generated maps of thousands of servers stay below 2 MiB.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// Bytes of all files of a run, so that a folder of large files is bounded too.
pub const MAX_TOTAL_BYTES: usize = 32 << 20;
/// Files of a run, folders expanded.
pub const MAX_FILES: usize = 4096;
/// Bytes of one line as written, its end not counted. Long ACL lines of generators reach a few kilobytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// Bytes of all words of one line after variables were put in: a variable may be longer than the line that
/// names it.
pub const MAX_EXPANDED_BYTES: usize = 1 << 20;
/// Bytes that variables may add to a whole run. Without it, `setenv A "$A$A"` doubles with every line and
/// each later use costs [`MAX_EXPANDED_BYTES`].
pub const MAX_EXPANSION_TOTAL: usize = 128 << 20;
/// Bytes of one variable of the environment, as Linux bounds one string of `execve`.
pub const MAX_VARIABLE_BYTES: usize = 128 << 10;
/// Words of one line. HAProxy stops at 64; lists of addresses in ACLs are the reason for more.
pub const MAX_WORDS: usize = 512;
/// `.if` blocks inside each other.
pub const MAX_CONDITION_DEPTH: usize = 64;
/// Parentheses and `!` inside each other in one condition: the parser's stack.
pub const MAX_EXPRESSION_DEPTH: usize = 64;
/// Sections of a run. Each proxy has settings of its own, so an empty one takes kilobytes.
pub const MAX_SECTIONS: usize = 32_768;
/// Servers of a run, those of templates included: each has options of its own.
pub const MAX_SERVERS: usize = 100_000;
/// `bind` lines of a run, for the same reason.
pub const MAX_BINDS: usize = 100_000;
/// Listeners of a run, ranges of ports counted by port: all ports of four addresses. Each has options and
/// counters of its own.
pub const MAX_LISTENERS: usize = 262_144;
/// Lines that proxies take over from `defaults`, summed over all proxies: each has a copy.
pub const MAX_INHERITED: usize = 1_000_000;
/// Findings that are kept. A file of garbage has one a line; nobody reads the ten-thousandth.
pub const MAX_DIAGNOSTICS: usize = 1000;
/// Findings with the same words that are kept: one is shown, and where the next three are.
pub const MAX_ALIKE: usize = 4;
/// Columns of the source line that a message shows around its caret.
pub const MAX_CONTEXT_COLUMNS: usize = 120;
/// Milliseconds of the longest time a timer holds: HAProxy's 2^31 - 1, about 24.8 days.
pub const MAX_TIMER_MS: u64 = i32::MAX as u64;
