//! Evaluation uses no memory of the global allocator (rule 2 of the README).
#![cfg(not(any(loom, manylane_sim)))] // the simulator has its own allocator

mod common;
use common::{World, request};
use manylane_expr::*;

#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

/// Evaluates all cases, conditions with every kind of index, and the log formats: once to create the caches
/// of regular expressions, then without allocations.
#[test]
fn expressions_conditions_and_formats_take_nothing_from_the_global_allocator() {
    let mut world = World::new();
    world.request = Some(request(
        "GET",
        "/a/b?x=1&y=2",
        &[("host", "h"), ("a", "one, two"), ("n", "12"), ("p", "1.2.3.4"), ("cookie", "c=1; d=2")],
    ));
    world.names.files.insert(b"m".to_vec(), b"/a first\n/a/b second\n".to_vec());
    let cases = include_str!("cases.txt").lines().filter(|line| !line.starts_with('#'));
    let texts = cases.filter_map(|line| line.split_once(" => ")).map(|case| case.0);
    let more =
        ["path,map(m)", "path,map_beg(m)", "path,map_reg(m)", "path,map_sub(m)", "rand", "uuid", "date"];
    let expressions: Vec<Expression> = texts.chain(more).map(|text| world.compiled(text)).collect();
    let conditions: Vec<Condition> = [
        "{ path_beg -i /A /b }",
        "{ path_end b }",
        "{ path_dir a }",
        "{ url_dom b }",
        "{ path_sub a b }",
        "{ path_reg ^/a ^/b }",
        "{ hdr(a) -i TWO }",
        "{ src 127.0.0.0/8 }",
        "{ src_port gt 5 }",
        "{ path -f m }",
        "METH_GET !METH_POST or TRUE",
    ]
    .iter()
    .map(|text| {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let compiled =
            world.compiling(|compiler| Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler));
        compiled.expect("a good condition")
    })
    .collect();
    let formats: Vec<Format> = [HTTP_LOG, TCP_LOG, CLF_LOG, "%{+Q}[path] %[src,ipmask(8)]"]
        .iter()
        .map(|text| {
            let compiled = world.compiling(|compiler| {
                Format::compile(text.as_bytes(), Use::Log, EvalPoints::EVERYWHERE, compiler)
            });
            compiled.expect("a good format")
        })
        .collect();
    let round = |world: &mut World| {
        world.with(|env, scratch| {
            let mut some = 0;
            for expression in &expressions {
                some += usize::from(expression.eval_text(env, &mut scratch.reborrow()).is_some());
            }
            for condition in &conditions {
                some += usize::from(condition.holds(env, &mut scratch.reborrow()));
            }
            for format in &formats {
                some += usize::from(format.eval(env, &mut scratch.reborrow()).is_some());
            }
            some
        })
    };
    let first = round(&mut world);
    let second = round(&mut world);
    let third = assert_no_alloc::assert_no_alloc(|| round(&mut world));
    assert_eq!((first, second), (third, third));
    assert!(third > 150, "{third}");
}
