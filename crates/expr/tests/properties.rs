//! Properties for arbitrary input.

mod common;
use common::World;
use manylane_expr::*;
use proptest::prelude::*;

/// Pieces of hostile expressions.
fn piece() -> impl Strategy<Value = String> {
    let names: Vec<&str> = fetches().map(|row| row.name).chain(converters().map(|row| row.name)).collect();
    prop_oneof![
        4 => prop::sample::select(names).prop_map(str::to_owned),
        3 => prop::sample::select(vec!["(", ")", ",", "'", "\"", "\\", "[", "]", "%", "{", "}", " ", "!",
            "||", "-m", "-i", "--", "%["]).prop_map(str::to_owned),
        2 => "[a-z0-9./:_*+?-]{0,6}",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_text_compiles_or_is_refused_inside_of_it(pieces in prop::collection::vec(piece(), 0..10)) {
        let text = pieces.concat();
        let mut world = World::new();
        let compiled = world.compiling(|compiler| Expression::compile(text.as_bytes(),
            EvalPoints::EVERYWHERE, compiler));
        match compiled {
            Ok(expression) => {
                world.with(|env, scratch| {
                    let mut scratch = scratch.reborrow();
                    let value = expression.eval(env, &mut scratch);
                    // The result has the type of the signature.
                    if let (Ok(sample), kind) = (value, expression.gives()) {
                        let given = sample.value.kind();
                        let promised = match kind {
                            Type::Any | Type::Same => true,
                            Type::Addr => matches!(given, Type::Ipv4 | Type::Ipv6),
                            // A mask may change the address family.
                            kind => given == kind,
                        };
                        assert!(promised, "{text} gives {given}, not {kind}");
                    }
                });
            }
            Err(error) => {
                prop_assert!(error.at <= text.len(), "{} at {}", error.message, error.at);
                prop_assert!(!error.message.is_empty());
            }
        }
        let format = world.compiling(|compiler| Format::compile(text.as_bytes(), Use::Log, EvalPoints::LOG,
            compiler));
        match format {
            Ok(format) => {
                world.with(|env, scratch| format.eval(env, &mut scratch.reborrow()).map(<[u8]>::len));
            }
            Err(error) => prop_assert!(error.at <= text.len(), "{} at {}", error.message, error.at),
        }
    }

    #[test]
    fn any_words_are_a_condition_or_refused_inside_of_them(words in prop::collection::vec(piece(), 0..10)) {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let mut world = World::new();
        let compiled = world.compiling(|compiler| Condition::compile(false, &words,
            EvalPoints::EVERYWHERE, compiler));
        match compiled {
            Ok(condition) => {
                let truth = world.with(|env, scratch| condition.eval(env, &mut scratch.reborrow()));
                prop_assert_ne!(truth, Truth::Wait);
            }
            Err(error) => {
                prop_assert!(error.word <= words.len().saturating_sub(1));
                prop_assert!(error.at <= words.get(error.word).map_or(0, |word| word.len()), "{} at \
                    {}:{}", error.message, error.word, error.at);
            }
        }
    }

    #[test]
    fn encodings_come_back(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut world = World::new();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for pair in ["base64,b64dec", "ub64enc,ub64dec"] {
            let back = world.text(&format!("bin({digits}),{pair},hex"));
            prop_assert_eq!(back, Some(digits.to_uppercase()), "{}", pair);
        }
        // Converters of text use a binary sample up to its first NUL byte.
        let text: Vec<u8> = bytes.iter().copied().take_while(|byte| *byte != 0).collect();
        prop_assert_eq!(world.bytes(&format!("bin({digits}),url_enc,url_dec")), Some(text));
        prop_assert_eq!(world.text(&format!("bin({digits}),hex")), Some(digits.to_uppercase()));
    }

    /// Compares every kind of matching with its plain definition.
    #[test]
    fn indexes_answer_as_a_scan_of_the_list(
        patterns in prop::collection::vec("[abAB./]{1,4}", 1..8),
        text in "[abAB./]{0,10}",
        fold: bool,
    ) {
        let mut world = World::new();
        let lower = |text: &str| if fold { text.to_ascii_lowercase() } else { text.to_owned() };
        let sample = lower(&text);
        let between = |pattern: &str, set: &[char]| {
            let pattern = pattern.trim_matches(set);
            !pattern.is_empty() && (0..sample.len()).any(|at| {
                sample[at..].starts_with(pattern)
                    && (at == 0 || sample[..at].ends_with(set))
                    && (at + pattern.len() == sample.len() || sample[at + pattern.len()..].starts_with(set))
            })
        };
        for (kind, name) in MatchKind::ALL {
            let expected = patterns.iter().map(|pattern| lower(pattern)).any(|pattern| match kind {
                MatchKind::Str => sample == pattern,
                MatchKind::Beg => sample.starts_with(&pattern),
                MatchKind::End => sample.ends_with(&pattern),
                MatchKind::Sub => sample.contains(&pattern),
                MatchKind::Dir => between(&pattern, &['/', '?']),
                MatchKind::Dom => between(&pattern, &['/', '?', '.', ':']),
                _ => false,
            });
            use MatchKind::{Beg, Dir, Dom, End, Str, Sub};
            if !matches!(kind, Str | Beg | End | Sub | Dir | Dom) {
                continue;
            }
            let flag = if fold { "-i " } else { "" };
            let condition = format!("{{ str('{text}') -m {name} {flag}-- {} }}", patterns.join(" "));
            prop_assert_eq!(world.truth(&condition) == Truth::Pass, expected, "{}", condition);
        }
    }

    /// Compares a sequence of operations on variables with a map.
    #[test]
    fn variables_keep_what_was_set_last_within_their_limit(
        steps in prop::collection::vec((0usize..4, prop::option::of(prop::collection::vec(any::<u8>(),
            0..40))), 0..60),
    ) {
        let mut names = VariableNames::default();
        let ids: Vec<VariableId> =
            (0..4).map(|n| names.resolve(format!("txn.v{n}").as_bytes()).unwrap()).collect();
        let mut variables = Variables::with_limit(64);
        let mut model: Vec<Option<Vec<u8>>> = vec![None; 4];
        for (which, value) in steps {
            let others: usize = model.iter().enumerate().filter(|(n, _)| *n != which).filter_map(|(_,
                v)| v.as_ref()).map(Vec::len).sum();
            match &value {
                Some(bytes) => {
                    let fits = others + bytes.len() <= 64;
                    prop_assert_eq!(variables.set(ids[which], Value::Bin(bytes)), fits);
                    model[which] = fits.then(|| bytes.clone());
                }
                None => {
                    variables.unset(ids[which]);
                    model[which] = None;
                }
            }
            for (id, expected) in ids.iter().zip(&model) {
                prop_assert_eq!(variables.get(*id), expected.as_deref().map(Value::Bin));
            }
        }
    }
}

/// Returns `text` with what `regex` matches replaced, by the matches that its own engine finds one by one.
fn replaced(regex: &str, text: &str, template: &str, all: bool) -> String {
    let regex = regex_automata::meta::Regex::new(regex).expect("the pattern is valid");
    let (mut out, mut copied) = (String::new(), 0);
    for groups in regex.captures_iter(text).take(if all { usize::MAX } else { 1 }) {
        let group = |number| groups.get_group(number).map_or("", |span| &text[span.range()]);
        let whole = groups.get_match().expect("it matches");
        out += &text[copied..whole.start()];
        out += &template.replace("\\0", group(0)).replace("\\1", group(1)).replace("\\2", group(2));
        copied = whole.end();
    }
    out + &text[copied..]
}

proptest! {
    /// No piece of the expression matches nothing: HAProxy and the engine differ in where they go on behind
    /// an empty match.
    #[test]
    fn regsub_replaces_what_the_engine_matches(
        regex in prop::collection::vec(
            prop::sample::select(vec!["a", "b", "[ab]", "a+", "(b)", "(a|bc)", "b*a", "(c?)b", "(a|b)+?",
                "."]),
            1..4,
        ),
        text in "[abc]{0,24}",
        template in prop::collection::vec(prop::sample::select(vec!["x", "a", "\\0", "\\1", "\\2", "-"]),
            0..4),
        all in any::<bool>(),
    ) {
        let (regex, template) = (regex.concat(), template.concat());
        let flags = if all { ",g" } else { "" };
        let expression = format!("str({text}),regsub(\"{regex}\",\"{template}\"{flags})");
        let got = World::new().text(&expression);
        prop_assert_eq!(got, Some(replaced(&regex, &text, &template, all)), "{}", expression);
    }
}
