//! `h1-case-adjust` and `h1-case-adjust-file`: spelling of field names for clients and servers that depend on
//! it.

use super::files;
use super::refuse::Refuse;
use manylane_config::source::Pos;
use manylane_config::tree::Global;
use manylane_http::CaseTable;
use std::path::Path;

/// Most bytes of a file of spellings.
const LONGEST: u64 = 1 << 20;

/// Returns the table of spellings; `None` if no name is changed.
pub(super) fn spellings(global: &Global, refuse: &mut Refuse<'_>) -> Option<CaseTable> {
    let mut table = CaseTable::default();
    let mut any = false;
    let mut add = |from: &[u8], to: &[u8], pos: Pos, suffix: &str, refuse: &mut Refuse<'_>| {
        any = true;
        if let Err(why) = table.insert(from, to) {
            let from = String::from_utf8_lossy(from);
            refuse.found.alert(pos, format!("'h1-case-adjust' : '{}'{suffix}: {why}", from.escape_debug()));
        }
    };
    for (from, to) in &global.h1_case_adjust {
        add(from.bytes(), to.bytes(), from.pos(), "", refuse);
    }
    if let Some(set) = &global.h1_case_adjust_file {
        match read(&refuse.path(&set.value)) {
            Err(error) => {
                let message =
                    format!("'h1-case-adjust-file' : '{}' cannot be read: {error}", set.value.shown());
                refuse.found.alert(set.value.pos(), message);
            }
            Ok(bytes) => {
                for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
                    let line = if line.starts_with(b"#") { b"" } else { line };
                    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                    let suffix = format!(" in line {}", number + 1);
                    match (words.next(), words.next(), words.next()) {
                        (None, ..) => {}
                        (Some(from), Some(to), None) => add(from, to, set.value.pos(), &suffix, refuse),
                        _ => {
                            let found =
                                line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
                            let message =
                                format!("'h1-case-adjust-file' expects two names{suffix}, found {found}");
                            refuse.found.alert(set.value.pos(), message);
                        }
                    }
                }
            }
        }
    }
    any.then_some(table)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = files::open(path)?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
