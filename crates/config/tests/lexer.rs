//! Splitting of lines: the manual's table of quoting, the rules where it says nothing, and positions.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::lex::{Budget, Environment, LexError, Scope, Word, split};
use manylane_config::limits;
use manylane_config::source::{Pos, Sources};

fn environment() -> Environment {
    let mut env = Environment::new();
    for (name, value) in
        [("A", "a value"), ("LIST", " x  y\tz "), ("EMPTY", ""), ("ONE", "1"), ("Q", "\"'#$A\\ ")]
    {
        env.set(name.as_bytes(), value.as_bytes()).unwrap();
    }
    env.set(b"BYTES", b"\xff\xfe").unwrap();
    env
}

fn words_in(env: &Environment, line: &[u8]) -> Result<Vec<Word>, LexError> {
    let file = Sources::new().add("edge.cfg", "").unwrap();
    let scope = Scope { environment: env, file: b"edge.cfg", line: 12, section: b"www" };
    split(line, Pos { file, line: 12, column: 1 }, &scope, &mut Budget::default())
}

fn words(line: &str) -> Vec<String> {
    let found = words_in(&environment(), line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e:?}"));
    found.iter().map(|word| String::from_utf8(word.bytes().to_vec()).unwrap()).collect()
}

fn refusal(line: &str) -> (u32, String) {
    let error = words_in(&environment(), line.as_bytes()).unwrap_err();
    (error.column, error.message)
}

#[test]
fn white_space_separates_and_a_hash_ends_the_line() {
    assert_eq!(words("  bind\t:80 \u{b}\u{c} name  x  # comment \" '"), ["bind", ":80", "name", "x"]);
    assert_eq!(words("global#this is the global section"), ["global"]);
    assert_eq!(words(""), Vec::<String>::new());
    assert_eq!(words("   # only a comment"), Vec::<String>::new());
    assert_eq!(words("daemon\r"), ["daemon"]);
}

/// Rows of the manual's table: character, unquoted forms, weakly quoted forms, strongly quoted form.
#[test]
fn every_special_character_can_be_written_in_every_way_of_the_manual() {
    for (character, forms) in [
        ("\t", &["\\\t", "\\x09", "\"\t\"", "\"\\\t\"", "\"\\x09\"", "'\t'"][..]),
        ("\n", &["\\n", "\\x0a", "\"\\n\"", "\"\\x0a\""]),
        ("\r", &["\\r", "\\x0d", "\"\\r\"", "\"\\x0d\""]),
        (" ", &["\\ ", "\\x20", "\" \"", "\"\\ \"", "\"\\x20\"", "' '"]),
        ("\"", &["\\\"", "\\x22", "\"\\\"\"", "\"\\x22\"", "'\"'"]),
        ("#", &["\\#", "\\x23", "\"#\"", "\"\\#\"", "\"\\x23\"", "'#'"]),
        ("$", &["$", "\\x24", "\"\\$\"", "\"\\x24\"", "'$'"]),
        ("'", &["\\'", "\\x27", "\"'\"", "\"\\'\"", "\"\\x27\""]),
        ("\\", &["\\\\", "\\x5c", "\"\\\\\"", "\"\\x5c\"", "'\\'"]),
    ] {
        for form in forms {
            assert_eq!(words(&format!("[{form}]")), [format!("[{character}]")], "{form:?}");
        }
    }
}

#[test]
fn quotes_join_with_what_touches_them() {
    for line in [
        r#"log-format %{+Q}o\ %t\ %s\ %{-Q}r"#,
        r#"log-format "%{+Q}o %t %s %{-Q}r""#,
        r#"log-format '%{+Q}o %t %s %{-Q}r'"#,
        r#"log-format "%{+Q}o %t"' %s %{-Q}r'"#,
        r#"log-format "%{+Q}o %t"' %s'\ %{-Q}r"#,
    ] {
        assert_eq!(words(line), ["log-format", "%{+Q}o %t %s %{-Q}r"], "{line}");
    }
}

#[test]
fn arguments_in_parentheses_pass_as_the_manual_says() {
    for (line, word) in [
        (r#"%[path,regsub("(foo|bar)",blah,g)]"#, "%[path,regsub((foo|bar),blah,g)]"),
        (r#"%[path,regsub(\"(foo|bar)\",blah,g)]"#, "%[path,regsub(\"(foo|bar)\",blah,g)]"),
        (r#"'%[path,regsub("(foo|bar)",blah,g)]'"#, "%[path,regsub(\"(foo|bar)\",blah,g)]"),
        (r#"str("\\'foo\\'")"#, r"str(\'foo\')"),
        (r#"str(\"\'foo\'\")"#, r#"str("'foo'")"#),
        (r#"str(\\\'foo\\\')"#, r"str(\'foo\')"),
    ] {
        assert_eq!(words(line), [word], "{line}");
    }
}

#[test]
fn backslashes_before_other_bytes_and_at_the_end_stay() {
    assert_eq!(words(r"a\qb \$x c\"), [r"a\qb", r"\$x", r"c\"]);
    assert_eq!(words("\"a\\qb\""), [r"a\qb"]);
    assert_eq!(words(r"'\x41\'"), [r"\x41\"]);
}

#[test]
fn variables_are_put_in_between_double_quotes_only() {
    assert_eq!(
        words(r#"$A ${A} '$A' "$A" "${A}" "x$A-y""#),
        ["$A", "${A}", "$A", "a value", "a value", "xa value-y"]
    );
    assert_eq!(words(r#""$NOPE" "<${NOPE}>" "$ONE$ONE" "$EMPTY""#), ["", "<>", "11", ""]);
    assert_eq!(words(r#""$Q""#), ["\"'#$A\\ "]);
}

#[test]
fn default_texts_replace_what_is_not_set() {
    assert_eq!(words(r#""${NOPE-127.0.0.1}:514""#), ["127.0.0.1:514"]);
    assert_eq!(
        words(r#""${EMPTY-x}" "${ONE-x}" "${NOPE-}" "${NOPE-a b-c$A"d}""#),
        ["", "1", "", "a b-c$A\"d"]
    );
}

#[test]
fn lists_become_words() {
    assert_eq!(words(r#"a "${LIST[*]}" b"#), ["a", "x", "y", "z", "b"]);
    assert_eq!(words(r#""<${ONE[*]}>""#), ["<1>"]);
    assert_eq!(words(r#""<${LIST[*]}>""#), ["<", "x", "y", "z", ">"]);
    assert_eq!(words(r#"a "${EMPTY[*]}" "${NOPE[*]}" b """#), ["a", "b", ""]);
    assert_eq!(words(r#""${NOPE[*]-p q}""#), ["p", "q"]);
}

#[test]
fn pseudo_variables_tell_the_position() {
    assert_eq!(words(r#""${.FILE}:${.LINE} in $.SECTION""#), ["edge.cfg:12 in www"]);
    let (column, message) = refusal(r#"x "${.LINES}""#);
    assert_eq!((column, message.as_str()), (6, "unknown pseudo-variable '.LINES'; did you mean '.LINE'?"));
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (line, column, part) in [
        (r#"a "b"#, 3, "unmatched quote"),
        ("a 'b", 3, "unmatched quote"),
        (r#""a\"#, 1, "unmatched quote"),
        (r#""a\""#, 1, "unmatched quote"),
        (r"a\xZZ", 2, "hexadecimal"),
        (r"a\x4", 2, "hexadecimal"),
        (r#""$""#, 3, "forbidden first character"),
        (r#""$1""#, 3, "forbidden first character"),
        (r#""${}""#, 4, "forbidden first character"),
        (r#"x "${A""#, 5, "'${' expects '}'"),
        (r#""${A[*}""#, 3, "'${' expects '}'"),
        (r#""${A-x""#, 3, "'${' expects '}'"),
        (r"a\x00b", 2, "NUL"),
        ("a\0b", 2, "NUL"),
        ("a\rb", 2, "carriage return"),
    ] {
        let (at, message) = refusal(line);
        assert_eq!(at, column, "{line:?}: {message}");
        assert!(message.contains(part), "{line:?}: {message}");
    }
}

#[test]
fn bytes_that_are_not_utf8_survive() {
    let found = words_in(&environment(), b"\xff\xc3 \"\xfe$BYTES\" \\xe9").unwrap();
    let bytes: Vec<_> = found.iter().map(Word::bytes).collect();
    assert_eq!(bytes, [&b"\xff\xc3"[..], b"\xfe\xff\xfe", b"\xe9"]);
}

#[test]
fn every_byte_of_a_word_knows_its_column() {
    let line = br#"  foo a\ b"c$ONE${A}"d"#;
    let found = words_in(&environment(), line).unwrap();
    assert_eq!(found[0].pos().column, 3);
    let word = &found[1];
    assert_eq!(word.bytes(), b"a bc1a valued");
    let columns: Vec<u32> = (0..=word.bytes().len()).map(|offset| word.pos_at(offset).column).collect();
    assert_eq!(columns, [7, 8, 10, 12, 13, 17, 17, 17, 17, 17, 17, 17, 22, 23]);
}

#[test]
fn joined_words_and_slices_keep_their_positions() {
    let found = words_in(&environment(), br#"x  "y z"  w"#).unwrap();
    let joined = Word::join(&found, found[0].pos());
    assert_eq!(joined.bytes(), b"x y z w");
    let columns: Vec<u32> = (0..7).map(|offset| joined.pos_at(offset).column).collect();
    assert_eq!(columns, [1, 3, 5, 6, 7, 10, 11]);
    let part = joined.slice(2..5);
    assert_eq!((part.bytes(), part.pos().column, part.pos_at(2).column), (&b"y z"[..], 5, 7));
}

#[test]
fn limits_on_lines_words_and_variables_hold() {
    assert!(refusal(&"x".repeat(limits::MAX_LINE_BYTES + 1)).1.contains("line too long"));
    assert_eq!(words(&"x ".repeat(limits::MAX_WORDS)).len(), limits::MAX_WORDS);
    assert!(refusal(&"x ".repeat(limits::MAX_WORDS + 1)).1.contains("too many words"));
    let mut env = Environment::new();
    env.set(b"BIG", &vec![b'x'; 100_000]).unwrap();
    let line = format!("\"{}\"", "$BIG".repeat(11));
    let error = words_in(&env, line.as_bytes()).unwrap_err();
    assert!(error.message.contains("bytes of variables in this line, found more"), "{error:?}");
    env.set(b"MANY", "x ".repeat(60_000).as_bytes()).unwrap();
    let error = words_in(&env, br#""${MANY[*]}""#).unwrap_err();
    assert!(error.message.contains("too many words"), "{error:?}");
}

#[test]
fn the_variables_of_a_run_have_a_budget() {
    let mut env = Environment::new();
    env.set(b"BIG", &vec![b'x'; 100_000]).unwrap();
    let file = Sources::new().add("x", "").unwrap();
    let scope = Scope { environment: &env, file: b"x", line: 1, section: b"" };
    let mut budget = Budget::default();
    let line = format!("\"{}\"", "$BIG".repeat(10));
    let runs = (0..10_000)
        .take_while(|_| split(line.as_bytes(), Pos { file, line: 1, column: 1 }, &scope, &mut budget).is_ok())
        .count();
    assert_eq!(runs, limits::MAX_EXPANSION_TOTAL / 1_000_000);
}
