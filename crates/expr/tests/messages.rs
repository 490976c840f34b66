//! Messages for mistakes in expressions, formats and conditions; `messages.txt` lists them.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::World;
use manylane_expr::*;

/// The message for `text`, with its position.
fn said(world: &mut World, kind: &str, text: &str) -> String {
    world.compiling(|compiler| match kind {
        "expression" => match Expression::compile(text.as_bytes(), EvalPoints::EVERYWHERE, compiler) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => format!("{}: {}", error.at, error.message),
        },
        "format" => match Format::compile(text.as_bytes(), Use::Log, EvalPoints::LOG, compiler) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => format!("{}: {}", error.at, error.message),
        },
        "condition" => {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            match Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler) {
                Ok(_) => "accepted".to_owned(),
                Err(error) => format!("{}:{}: {}", error.word, error.at, error.message),
            }
        }
        other => panic!("[{other}] is no part of messages.txt"),
    })
}

#[test]
fn each_mistake_is_reported_by_what_was_expected_and_what_was_found() {
    let mut world = World::new();
    world.names.files.insert(b"m.map".to_vec(), b"a x\n".to_vec());
    world.names.files.insert(b"nets".to_vec(), b"10.0.0.0/8\n".to_vec());
    let (mut kind, mut count, mut wrong) = ("", 0, Vec::new());
    for line in include_str!("messages.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            kind = name;
        } else if let Some((text, expected)) = line.split_once(" => ") {
            let said = said(&mut world, kind, text);
            if said != expected {
                wrong.push(format!("{text} => {said}"));
            }
            count += 1;
        }
    }
    assert!(count > 0 && wrong.is_empty(), "{count} lines, these are otherwise:\n{}", wrong.join("\n"));
}
