//! Bounds on what a configuration can make the reader do, each with its reason. For any input, time and
//! memory are at most proportional to these.

/// Size of one file in bytes. Generated maps of thousands of servers stay below 2 MiB.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// Total size of all files of a run in bytes. It bounds folders with many large files.
pub const MAX_TOTAL_BYTES: usize = 32 << 20;
/// Number of files in a run, those in folders included.
pub const MAX_FILES: usize = 4096;
/// Length of a line as written, in bytes without the line end. Generated ACL lines reach a few kilobytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// Bytes in all words of a line after expansion of variables. A variable can be longer than the line that
/// uses it.
pub const MAX_EXPANDED_BYTES: usize = 1 << 20;
/// Bytes that variables can add in a whole run. Without this bound, `setenv A "$A$A"` doubles with every
/// line, and each later use costs [`MAX_EXPANDED_BYTES`].
pub const MAX_EXPANSION_TOTAL: usize = 128 << 20;
/// Size of one environment variable in bytes: the limit of Linux for a string of `execve`.
pub const MAX_VARIABLE_BYTES: usize = 128 << 10;
/// Words of one line. HAProxy stops at 64; address lists in ACLs need more.
pub const MAX_WORDS: usize = 512;
/// Nesting depth of `.if` blocks.
pub const MAX_CONDITION_DEPTH: usize = 64;
/// Nesting depth of parentheses and `!` in a condition. It bounds the stack of the recursive parser.
pub const MAX_EXPRESSION_DEPTH: usize = 64;
/// Sections of a run. Each proxy has its own settings, so even an empty one takes kilobytes.
pub const MAX_SECTIONS: usize = 32_768;
/// Servers of a run, those of templates included. Each has its own options.
pub const MAX_SERVERS: usize = 100_000;
/// `bind` lines of a run. Each has its own options.
pub const MAX_BINDS: usize = 100_000;
/// Listeners of a run, one per port of a range: all ports of four addresses. Each has its own options and
/// counters.
pub const MAX_LISTENERS: usize = 262_144;
/// List items that proxies inherit from `defaults`, summed over all proxies. Each proxy has its own copy.
pub const MAX_INHERITED: usize = 1_000_000;
/// Findings to keep. A binary file can have one on each line.
pub const MAX_DIAGNOSTICS: usize = 1000;
/// Findings with the same text to keep. The report shows the first in full and the positions of the other
/// three.
pub const MAX_ALIKE: usize = 4;
/// Columns of the source line to show around the caret.
pub const MAX_CONTEXT_COLUMNS: usize = 120;
/// The longest timer in milliseconds: 2^31 - 1 as in HAProxy, about 24.8 days.
pub const MAX_TIMER_MS: u64 = i32::MAX as u64;
