//! Statements of sources: files, conditional blocks, messages, and changes of the environment between lines.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::diag::{Diagnostics, Severity};
use manylane_config::lex::Environment;
use manylane_config::read::{Item, Reader};
use manylane_config::source::Sources;
use manylane_config::{limits, load};

const BUILD: Build = Build { features: &["THREAD"], ..Build::bare() };

/// Statements as text, and findings as `severity line:column message`.
fn read(files: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut sources = Sources::new();
    for (index, text) in files.iter().enumerate() {
        sources.add(format!("{index}.cfg"), *text).unwrap();
    }
    let mut environment = Environment::new();
    environment.set(b"YES", b"1").unwrap();
    let mut found = Diagnostics::new(true);
    let mut reader = Reader::new(&sources, &BUILD, environment);
    let mut statements = Vec::new();
    while let Some(item) = reader.next(&mut found) {
        match item {
            Item::Statement(words) => {
                let texts: Vec<_> = words.iter().map(|word| word.shown().to_string()).collect();
                if let ["setenv", name, value] = texts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    reader.environment.set(name.as_bytes(), value.as_bytes()).unwrap();
                } else if let ["frontend", name] = texts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    reader.section = name.as_bytes().to_vec();
                }
                statements.push(texts.join(" "));
            }
            Item::EndOfFile(_) => statements.push("--".into()),
        }
    }
    let findings = found.found().iter().map(|finding| {
        let pos = finding.pos.unwrap();
        format!("{:?} {}:{} {}", finding.severity, pos.line, pos.column, finding.message)
    });
    (statements, findings.collect())
}

#[test]
fn what_a_line_switches_off_is_not_enabled_for_the_next() {
    let mut sources = Sources::new();
    let asks = |name: &str| format!(".if enabled({name})\n.notice \"{name} is on\"\n.endif\n");
    let both = format!("{}{}", asks("SPLICE"), asks("REUSEPORT"));
    sources.add("test.cfg", format!("{both}global\n noreuseport\n{both} nosplice\n{both}")).unwrap();
    let build = Build { enabled: &["SPLICE", "REUSEPORT"], ..Build::bare() };
    let found = load(&sources, &build, Environment::new(), false).found;
    let lines: Vec<u32> = found.found().iter().map(|finding| finding.pos.unwrap().line).collect();
    assert_eq!(lines, [2, 5, 10], "{:?}", found.found());
}

fn statements(text: &str) -> Vec<String> {
    let (statements, findings) = read(&[text]);
    assert_eq!(findings, Vec::<String>::new(), "{text}");
    statements
}

fn findings(text: &str) -> Vec<String> {
    read(&[text]).1
}

#[test]
fn the_branch_that_holds_first_is_read() {
    for (a, b, expected) in [("1", "1", "x"), ("0", "1", "y"), ("0", "0", "z"), ("1", "0", "x")] {
        let text = format!(".if {a}\nx\n.elif {b} # comment\ny\n.elif 0\nw\n.else\nz\n.endif\nend\n");
        assert_eq!(statements(&text), [expected, "end", "--"]);
    }
}

#[test]
fn nothing_is_evaluated_where_nothing_counts() {
    let text = ".if 0\n.if nonsense\n.elif\n.else\n.alert no\n.unknown\n.endif\nx\n.endif\n\
                .if 1\na\n.elif nonsense\n.else\nb\n.endif\n";
    assert_eq!(statements(text), ["a", "--"]);
}

#[test]
fn blocks_nest() {
    let text = ".if 1\n.if 0\na\n.else\n.if 1\nb\n.endif\nc\n.endif\nd\n.else\ne\n.endif\n";
    assert_eq!(statements(text), ["b", "c", "d", "--"]);
}

#[test]
fn conditions_are_split_like_lines_and_may_name_variables() {
    let text = ".if streq(\"$YES\",1) && feature(THREAD)\na\n.endif\n.if \"$NO\"\nb\n.endif\n.if \"$NO\" \
        1\nc\n.endif\n\
                .if streq(\"a b\",a\\ b)\nd\n.endif\n";
    assert_eq!(statements(text), ["a", "c", "d", "--"]);
}

#[test]
fn later_lines_see_what_earlier_ones_set() {
    let text = "\"$X\" none\nsetenv X 5\nx \"$X\"\n.if defined(X)\ny\n.endif\nfrontend www\nat \
        \"${.FILE}:${.LINE}:${.SECTION}\"\n";
    let (statements, findings) = read(&[text]);
    assert_eq!(statements, ["setenv X 5", "x 5", "y", "frontend www", "at 0.cfg:8:www", "--"]);
    assert_eq!(findings, ["Diag 1:1 a line expects a keyword, found an empty word: the line is ignored"]);
}

#[test]
fn a_section_and_its_blocks_end_with_the_file() {
    let (statements, findings) = read(&["frontend www\n.if 1\na\n", "at <\"${.SECTION}\">\n"]);
    assert_eq!(statements, ["frontend www", "a", "--", "at <>", "--"]);
    assert_eq!(findings, ["Alert 2:1 '.if' expects an '.endif' below it in the same file, found none"]);
}

#[test]
fn messages_have_their_level_and_one_argument() {
    let text = ".diag \"a b\"\n.notice $x\n.warning w\n.alert\n.notice a b\n";
    assert_eq!(
        findings(text),
        [
            "Diag 1:1 'a b'",
            "Notice 2:1 '$x'",
            "Warning 3:1 'w'",
            "Alert 4:1 ''",
            "Alert 5:11 '.notice' expects one message, found 'b' behind it: put it into quotes",
        ]
    );
    let mut quiet = Diagnostics::new(false);
    quiet.push(Severity::Diag, None, "x");
    assert_eq!(quiet.found().len(), 0);
}

#[test]
fn misplaced_directives_are_errors() {
    for (text, expected) in [
        (".endif\n", "Alert 1:1 '.endif' expects an '.if' above it, found none"),
        ("  .else\n", "Alert 1:3 '.else' expects an '.if' above it, found none"),
        (".elif 1\n", "Alert 1:1 '.elif' expects an '.if' above it, found none"),
        (
            ".if 1\n.else\n.else\n.endif\n",
            "Alert 3:1 '.else' expects no '.else' above it, found one in the same '.if'",
        ),
        (
            ".if 1\n.else\n.elif 1\n.endif\n",
            "Alert 3:1 '.elif' expects no '.else' above it, found one in the same '.if'",
        ),
        (".if 1\n.endif foo\n", "Alert 2:8 '.endif' expects no argument, found 'foo'"),
        (".fi\n", "Alert 1:1 unknown directive '.fi'; did you mean '.if'?"),
        (
            ".if 1 &&  foo\n.endif\n",
            "Alert 1:11 a condition expects a number or a predicate such as defined(NAME), found 'foo' in \
                '.if'",
        ),
    ] {
        assert_eq!(findings(text), [expected], "{text}");
    }
}

#[test]
fn all_lines_with_errors_are_reported_in_one_run() {
    let text = "a \"b\nok\nc 'd\n.foo\ne \\xQ\n";
    assert_eq!(read(&[text]).0, ["ok", "--"]);
    let found = findings(text);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].starts_with("Alert 1:3") && found[3].starts_with("Alert 5:3"), "{found:?}");
}

#[test]
fn quotes_must_match_where_nothing_counts_too() {
    let unmatched = "Alert 2:4 unmatched quote: expected another one in the same line, found none";
    assert_eq!(findings(".if 0\n a \"\n.endif\n"), [unmatched]);
}

#[test]
fn a_truncated_file_and_a_byte_order_mark_are_errors() {
    let (statements, found) = read(&["a\nb"]);
    assert_eq!(statements, ["a", "b", "--"]);
    assert_eq!(
        found,
        ["Alert 2:2 the last line expects a line feed at its end, found none: was the file cut?"]
    );
    let (statements, found) = read(&["\u{feff}global\n"]);
    assert_eq!(statements, ["global", "--"]);
    assert_eq!(found, ["Alert 1:1 the file expects no byte order mark, found one: save it without"]);
    assert_eq!(read(&["", "x\n"]), (vec!["--".into(), "x".into(), "--".into()], vec![]));
}

#[test]
fn blocks_inside_each_other_are_bounded() {
    let nested = |n: usize| format!("{}x\n{}end\n", ".if 1\n".repeat(n), ".endif\n".repeat(n));
    assert_eq!(statements(&nested(limits::MAX_CONDITION_DEPTH)), ["x", "end", "--"]);
    let (statements, found) = read(&[&nested(limits::MAX_CONDITION_DEPTH + 3)]);
    assert_eq!(statements, ["end", "--"]);
    assert_eq!(found.len(), 1, "{found:?}");
}
