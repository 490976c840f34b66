//! Configuration files: any bytes are read; messages point into the file and are printable. The part after a
//! NUL byte is a condition.
#![no_main]

use manylane_config::cond::{Build, evaluate};
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, condition) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut environment = Environment::new();
    environment.set(b"V", b"a b").expect("a name and a value");
    let build = Build::bare();
    if let Err(error) = evaluate(condition, &environment, &build) {
        assert!(error.at <= condition.len());
    }
    let mut sources = Sources::new();
    sources.add("fuzz.cfg", text).expect("shorter than the limits");
    let loaded = load(&sources, &build, environment, true);
    for finding in loaded.found.found() {
        if let Some(pos) = finding.pos {
            let (line, _) = sources.line(pos.file, pos.line).expect("a finding is at a line");
            assert!(pos.column >= 1 && pos.column as usize <= line.len() + 1, "{finding:?}");
        }
    }
    let shown = loaded.found.render(&sources, 1);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
});
