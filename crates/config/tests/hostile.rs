//! Hostile input: no panic, bounded work, and findings with valid positions.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::{Build, evaluate};
use manylane_config::diag::Diagnostics;
use manylane_config::lex::Environment;
use manylane_config::limits;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_config::table::{KeywordContext, Shape, Status, Table};
use proptest::prelude::*;

fn environment() -> Environment {
    let mut environment = Environment::new();
    environment.set(b"V", b"a b").unwrap();
    environment
}

/// Reads a text and renders all findings.
fn read(text: &[u8]) -> (Diagnostics, String) {
    let mut sources = Sources::new();
    sources.add("hostile.cfg", text).unwrap();
    let build = Build::bare();
    let loaded = load(&sources, &build, environment(), true);
    for finding in loaded.found.found() {
        if let Some(pos) = finding.pos {
            let (line, _) = sources.line(pos.file, pos.line).expect("a finding is at a line");
            assert!(pos.column >= 1 && pos.column as usize <= line.len() + 1, "{finding:?}");
        }
    }
    let shown = loaded.found.render(&sources, 1);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    (loaded.found, shown)
}

#[test]
fn every_keyword_takes_nothing_too_much_and_nonsense_without_a_panic() {
    let arguments = [
        "",
        " x",
        " 99999999999999999999 -1",
        " a b c d e f g h",
        " 1 1 1 1",
        " if",
        " \"\" \\xff\\xfe , ( :",
    ];
    let header = |context: KeywordContext| match context {
        KeywordContext::Global | KeywordContext::Traces => context.name().to_owned(),
        _ => format!("{} name", context.name()),
    };
    for row in Table::get().rows() {
        for section in row.contexts.iter().take(2) {
            for argument in arguments {
                let prefixes: &[&str] = if argument.len() < 3 { &["", "no ", "default "] } else { &[""] };
                for prefix in prefixes {
                    let line = match section {
                        KeywordContext::Top => format!("{prefix}{}{argument}\n", row.name),
                        KeywordContext::BindOption => {
                            format!("frontend f\n bind :80 {}{argument}\n", row.name)
                        }
                        KeywordContext::ServerOption => format!(
                            "backend b\n server s 1.1.1.1 {}{argument}\n default-server {0}{argument}\n",
                            row.name
                        ),
                        _ => format!("{}\n {prefix}{}{argument}\n", header(section), row.name),
                    };
                    read(line.as_bytes());
                }
            }
        }
    }
}

/// A keyword refuses an extra argument or keeps it; it never ignores one.
#[test]
fn flags_and_typed_keywords_refuse_an_argument_too_many() {
    for row in Table::get().rows() {
        if matches!(row.shape, Shape::Own(..)) || matches!(row.status, Status::Refused(_)) {
            continue;
        }
        let Some(context) = row
            .contexts
            .iter()
            .find(|section| *section < KeywordContext::BindOption && *section != KeywordContext::Defaults)
        else {
            continue;
        };
        let words = " 1".repeat(8);
        let text =
            format!("{} name\n {}{words}\n", context.name(), row.name).replace("global name", "global");
        let (found, shown) = read(text.as_bytes());
        assert!(found.errors() > 0, "{}: {shown}", row.name);
    }
}

#[test]
fn refused_keywords_are_named_with_their_reason() {
    for row in Table::get().rows() {
        let Some(reason) = row.status.reason() else { continue };
        // Keywords without effect check their arguments first.
        if matches!((&row.status, &row.shape), (Status::Idle(_), Shape::Flag | Shape::Args(_))) {
            continue;
        }
        let Some(context) = row
            .contexts
            .iter()
            .find(|section| *section < KeywordContext::Peers && *section != KeywordContext::Defaults)
        else {
            continue;
        };
        let header = if context == KeywordContext::Global {
            "global".to_owned()
        } else {
            format!("{} name", context.name())
        };
        let (_, shown) = read(format!("{header}\n {} x y z\n", row.name).as_bytes());
        assert!(
            shown.contains(&format!("'{}'", row.name)) && shown.contains(reason),
            "{}: {shown}",
            row.name
        );
    }
}

#[test]
fn a_file_of_garbage_is_bounded() {
    let (found, shown) = read(format!("backend b\n{}", "garbage\n".repeat(200_000)).as_bytes());
    assert_eq!(found.errors(), 200_000);
    assert!(found.found().len() <= limits::MAX_DIAGNOSTICS + 1);
    assert!(shown.contains(" more of the same: hostile.cfg:"), "{shown}");
}

#[test]
fn doubling_variables_end() {
    let text = format!("global\n setenv A xxxxxxxxxxxxxxxx\n{}", " setenv A \"$A$A\"\n".repeat(64));
    let (found, shown) = read(text.as_bytes());
    assert!(found.errors() > 0 && shown.contains("too long for a variable"), "{shown}");
}

#[test]
fn templates_cannot_fill_the_memory() {
    let text = format!("backend b\n{}", " server-template s 1-60000 127.0.0.1:80\n".repeat(50));
    let (found, shown) = read(text.as_bytes());
    assert!(shown.contains("at most 100000 servers"), "{shown}");
    assert!(found.errors() >= 49);
}

#[test]
fn sections_and_what_they_take_over_are_bounded() {
    let (found, _) = read("backend a\n".repeat(limits::MAX_SECTIONS + 1).as_bytes());
    // All sections except the first have a duplicate name, and the last exceeds the limit.
    assert_eq!(found.errors(), limits::MAX_SECTIONS);
    let lines = " http-error status 503\n".repeat(2000);
    let (_, shown) = read(format!("defaults\n{lines}{}", "backend b\n".repeat(600)).as_bytes());
    assert!(shown.contains("lines come from 'defaults' sections, found more"), "{shown}");
}

/// Words of configurations, so that random lines get past the keyword.
fn word() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = Table::get().rows().iter().map(|row| row.name).collect();
    prop_oneof![
        4 => proptest::sample::select(names).prop_map(str::to_owned),
        2 => proptest::sample::select(vec![
            "global", "defaults", "frontend", "backend", "listen", "userlist", "resolvers", "ring", "from",
                "if", "unless", "no", "default",
            "name", "other", "127.0.0.1:80", ":80-90", "unix@/x", "fd@3", "1", "0", "-1", "5s", "16k", "{",
                "}", "src", "on", "off", "len",
            "header", "except", "%[src]", "\"$V\"", "\"${V[*]}\"", "'a \
                b'", "\\", "\"", "'", "#", ".if", ".elif", ".else", ".endif", "1 &&",
            "streq(a,b)", ".notice", "s1", "1-5", "hdr(x)", "random(", "ring@name", "stdout", "local0",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
        1 => any::<String>(),
    ]
}

/// `PROPTEST_CASES`, or `usual`.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn any_bytes_are_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&text);
    }

    #[test]
    fn any_lines_of_known_words_are_read_without_a_panic(
        lines in proptest::collection::vec(proptest::collection::vec(word(), 0..7), 0..30)
    ) {
        let text: String = lines.iter().map(|words| words.join(" ") + "\n").collect();
        read(text.as_bytes());
    }

    #[test]
    fn any_condition_is_read_without_a_panic(text in "[01!&|() a-z,\"'\\\\_.]{0,40}") {
        if let Err(error) = evaluate(text.as_bytes(), &environment(), &Build::bare()) {
            prop_assert!(error.at <= text.len());
        }
    }

    /// Text in single quotes, with its own quotes escaped outside of them, is unchanged.
    #[test]
    fn quoted_text_comes_back(text in "[ -~\t]{0,60}") {
        let quoted = format!("'{}'", text.replace('\'', "'\\''"));
        let mut sources = Sources::new();
        sources.add("q.cfg", format!("global\n description {quoted}\n")).unwrap();
        let build = Build::bare();
        let loaded = load(&sources, &build, Environment::new(), false);
        prop_assert_eq!(loaded.config.global.description.map(|set| set.value.bytes().to_vec()),
            Some(text.into_bytes()));
    }

    /// A file that is cut at any byte is read to its end.
    #[test]
    fn a_file_cut_anywhere_is_read(cut in 0usize..2000) {
        let text = include_bytes!("whole.cfg");
        read(&text[..cut.min(text.len())]);
    }
}
