//! The language of rules. The part before a NUL byte is compiled as an expression, as a format and, split
//! into words, as a condition; the part after it is a map that they may use. The results are evaluated on a
//! small request.
#![no_main]

mod world;

use manylane_expr::*;
use manylane_http::{Head, Version};
use world::{Fuzzed, with};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, file) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let names = Fuzzed(file);
    let (mut variables, mut references) = (VariableNames::default(), References::default());
    let mut compiler = Compiler::new(&names, &mut variables, &mut references);

    let expression = Expression::compile(text, EvalPoints::EVERYWHERE, &mut compiler);
    let format = Format::compile(text, Use::Log, EvalPoints::EVERYWHERE, &mut compiler);
    let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let condition = Condition::compile(false, &words, EvalPoints::EVERYWHERE, &mut compiler);
    for error in [expression.as_ref().err(), format.as_ref().err()].into_iter().flatten() {
        assert!(error.at <= text.len(), "{error:?}");
    }
    if let Err(error) = &condition {
        assert!(error.at <= words.get(error.word).map_or(0, |word| word.len()), "{error:?}");
    }

    let mut head = Head::request(b"GET", b"/a/b?x=1&y=%20", Version::HTTP_11).expect("a small request");
    for (name, value) in
        [("host", "h:80"), ("a", "b, c"), ("cookie", "c=1; d=2"), ("authorization", "Basic YTpi")]
    {
        head.add_field(name.as_bytes(), value.as_bytes()).expect("a small field");
    }
    with(Some(&head), &StreamInfo::default(), &variables, |env, scratch| {
        if let Ok(expression) = &expression {
            let _ = expression.eval(env, &mut scratch.reborrow());
        }
        if let Ok(format) = &format {
            let _ = format.eval(env, &mut scratch.reborrow());
        }
        if let Ok(condition) = &condition {
            assert_ne!(condition.eval(env, scratch), Truth::Wait);
        }
    });
    manylane_sync::qsbr::reclaim();
});
