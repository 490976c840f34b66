//! Compares `json_query` with `serde_json` (item 32 of haproxy-today): it finds each value by its path, and
//! misreads no text.

mod common;
use common::World;
use manylane_expr::{EvalPoints, Expression, Value as Sample};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Result of the converter, with its type.
#[derive(Debug, PartialEq)]
enum Given {
    Bool(bool),
    Int(i64),
    Text(Vec<u8>),
}

fn query(text: &str, path: &str) -> Option<Given> {
    let mut world = World::new();
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let path = path.replace('\\', "\\\\").replace('"', "\\\"");
    let expression = format!("bin({hex}),json_query(\"{path}\")");
    let int = format!("bin({hex}),json_query(\"{path}\",int)");
    let ask = |world: &mut World, expression: &str| {
        let compiled = world
            .compiling(|compiler| {
                Expression::compile(expression.as_bytes(), EvalPoints::EVERYWHERE, compiler)
            })
            .unwrap_or_else(|error| panic!("{expression}: {}", error.message));
        world.with(|env, scratch| {
            let mut scratch = scratch.reborrow();
            Some(match compiled.eval(env, &mut scratch).ok()?.value {
                Sample::Bool(b) => Given::Bool(b),
                Sample::Int(n) => Given::Int(n),
                other => Given::Text(other.bytes().expect("text").to_vec()),
            })
        })
    };
    match (ask(&mut world, &expression), ask(&mut world, &int)) {
        (_, Some(Given::Int(n))) => Some(Given::Int(n)),
        (given, _) => given,
    }
}

/// Expected result for the value at the path.
fn expected(value: &Value) -> Option<Given> {
    match value {
        Value::Bool(b) => Some(Given::Bool(*b)),
        Value::String(text) => Some(Given::Text(text.clone().into_bytes())),
        Value::Number(number) => number.as_i64().filter(|n| n.abs() < 1 << 53).map(Given::Int),
        Value::Array(_) => Some(Given::Text(Vec::new())), // compared as JSON
        Value::Null | Value::Object(_) => None,
    }
}

fn check(text: &str, value: &Value, path: &str) -> Result<(), TestCaseError> {
    let given = query(text, path);
    match (value, given) {
        (Value::Array(_), Some(Given::Text(array))) => {
            // serde_json may change the last digit of a number, so parse both again.
            let again = serde_json::from_str::<Value>(&value.to_string()).expect("JSON");
            prop_assert_eq!(serde_json::from_slice::<Value>(&array).expect("JSON"), again);
        }
        // Other numbers are rounded to six digits.
        (Value::Number(number), Some(Given::Text(text))) => {
            let (given, there) = (
                String::from_utf8_lossy(&text).parse::<f64>().expect("a number"),
                number.as_f64().expect("one"),
            );
            prop_assert!((given - there).abs() <= there.abs() * 5.1e-6, "{given} {there}");
        }
        (Value::Number(number), Some(Given::Int(n))) => {
            prop_assert!((n as f64 - number.as_f64().expect("one").trunc()).abs() < 1.0);
        }
        (value, given) => prop_assert_eq!(given, expected(value), "{} in {}", path, text),
    }
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                let mut step = String::new();
                for c in name.chars() {
                    step.push_str(if matches!(c, '.' | '[' | '\\') { "\\" } else { "" });
                    step.push(c);
                }
                check(text, inner, &format!("{path}.{step}"))?;
            }
            prop_assert_eq!(query(text, &format!("{path}.no such member")), None);
        }
        Value::Array(elements) => {
            for (n, inner) in elements.iter().enumerate() {
                check(text, inner, &format!("{path}[{n}]"))?;
            }
            prop_assert_eq!(query(text, &format!("{path}[{}]", elements.len())), None);
        }
        _ => prop_assert_eq!(query(text, &format!("{path}.a")), None),
    }
    Ok(())
}

/// Text without NUL bytes, which end text in converters.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,4}",
        "[^\0]{1,6}",
        prop::sample::select(vec!["a.b", "\\", "\"", "[0]", "\u{1}\n", "\u{1f600}", "é"])
            .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn each_value_is_found_by_its_path(value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        check(&text.expect("JSON"), &value, "$")?;
    }

    /// An invalid text has no result, except for a value before the error.
    #[test]
    fn no_text_is_misread(value in value(), at in any::<prop::sample::Index>(), byte in 1_u8..0x7f) {
        let mut bent = serde_json::to_string(&value).expect("JSON").into_bytes();
        let at = at.index(bent.len());
        bent[at] = byte;
        let Ok(bent) = String::from_utf8(bent) else { return Ok(()) };
        let whole = query(&bent, "$");
        match serde_json::from_str::<Value>(&bent) {
            Ok(read @ (Value::Bool(_) | Value::String(_))) => prop_assert_eq!(whole, expected(&read)),
            Ok(_) => {}
            Err(error) if error.to_string().contains("out of range") => {}
            // The first value may be valid, with an error after it.
            Err(_) => {
                let mut values = serde_json::Deserializer::from_str(&bent).into_iter::<Value>();
                let first = values.next();
                // serde_json also needs a delimiter after words and numbers.
                let closed = bent.starts_with(['"', '[', '{']);
                let fine = whole.is_none() || matches!(first, Some(Ok(_))) || !closed;
                prop_assert!(fine, "{:?} of {}", whole, bent);
            }
        }
    }
}

#[test]
fn depth_is_bounded() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(query(&deep(100), "$").is_some());
    assert_eq!(query(&deep(1000), "$"), None);
    assert_eq!(query("{\"a\":\"cut", "$.a"), None);
    assert_eq!(query("{\"a\":\"\\ud800\"}", "$.a"), None);
    assert_eq!(query("{\"a\":\"\\ud83d\\ude00\"}", "$.a"), Some(Given::Text("\u{1f600}".into())));
}
