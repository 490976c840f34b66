//! Compares expressions with the installed haproxy.

mod common;
use common::World;
use manylane_expr::{Type, Use};

fn world() -> World {
    let mut world = World::with_fields();
    world.text("int(5),set-var(txn.i)");
    world.text("str(abc),set-var(txn.s)");
    world
}

/// Samples of `cases.txt`, except for those that depend on ports or threads.
#[test]
fn samples_are_those_of_the_installed_haproxy() {
    let mut world = world();
    let cases = include_str!("cases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let expressions: Vec<&str> =
        cases.filter_map(|line| line.split_once(" => ")).map(|case| case.0).collect();
    assert!(expressions.len() > 100);
    let mut wrong = Vec::new();
    for (start, part) in (0..).step_by(25).zip(expressions.chunks(25)) {
        let rules = part.iter().enumerate().map(|(n, expression)| {
            let n = start + n;
            format!(
                "    http-request set-var(txn.x{n}) '{expression}'\n    \
                 http-request set-header x-{n} x%[var(txn.x{n}),hex] if {{ var(txn.x{n}) -m found }}\n"
            )
        });
        let names: Vec<String> = (start..start + part.len()).map(|n| format!("x-{n}")).collect();
        let Some(answers) = common::haproxy::run(&rules.collect::<String>(), &names) else { return };
        for (expression, answer) in part.iter().zip(answers) {
            let theirs = match answer.split_first() {
                Some((b'x', digits)) => Some(String::from_utf8(digits.to_vec()).unwrap()),
                _ => None,
            };
            let compiled = world.compiled(expression);
            let ours = world.with(|env, scratch| {
                let mut scratch = scratch.reborrow();
                let bytes = compiled.eval_as(Type::Bin, env, &mut scratch).ok()?.bytes()?;
                Some(bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>())
            });
            if ours != theirs {
                wrong.push(format!("{expression}: ours {ours:?}, theirs {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Formats to set variables to.
const FORMATS: &[&str] = &[
    "a %% b",
    "%[path]",
    "a%[str(])]b",
    "%[int(5),add(1)]%[str(x)]",
    "%[var(txn.none)]",
    "%{+Q}[str(a b)]",
    "%{+Q}[var(txn.none)]",
    "%{+Q}o %[path] %{-Q}[path] %[str()]",
    "%{+E}[str(a]b)]",
    "%HM %HP %HPO %HQ %HU %HV %r",
    "%{+Q}r",
    "%f %ft %b %s",
    "%ci",
    "%{+X}ci",
    "%fi",
    "%rc %sq %bq %ST %B %U %ts %tsc",
    "%Tc %Tr %Tw",
    "%si %bi",
    "%hr%hs%hrl%hsl.",
    "%CC %CS",
    "%ID",
    "  two  spaces  ",
];

#[test]
fn formats_give_the_text_of_the_installed_haproxy() {
    let mut world = world();
    let names: Vec<String> = (0..FORMATS.len()).map(|n| format!("x-{n}")).collect();
    let rules: String = FORMATS
        .iter()
        .enumerate()
        .map(|(n, format)| {
            format!(
                "    http-request set-var-fmt(txn.f{n}) '{format}'\n    \
                 http-request set-header x-{n} x%[var(txn.f{n}),hex]\n"
            )
        })
        .collect();
    let Some(answers) = common::haproxy::run(&rules, &names) else { return };
    let mut wrong = Vec::new();
    for (format, answer) in FORMATS.iter().zip(answers) {
        let digits = answer.strip_prefix(b"x").unwrap_or_default();
        let theirs: Vec<u8> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let theirs = theirs.escape_ascii().to_string().replace("\\\"", "\"");
        let ours = world.format(format, Use::Text);
        if ours != theirs {
            wrong.push(format!("{format}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
