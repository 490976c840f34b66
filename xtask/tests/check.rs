//! `xtask check` on small trees that break one rule each: its output and exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A workspace that breaks no rule, until a test writes to it.
struct Tree {
    folder: PathBuf,
    /// `xtask check` looks at its form, too.
    has_form: bool,
}

const LIB: &str = "#![doc = include_str!(\"../README.md\")]\n";

impl Tree {
    /// The rooms `pool` (unsafe allowed) and `stats` (unsafe refused), without dependencies.
    fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{test}"));
        let _ = fs::remove_dir_all(&folder); // of an earlier run
        let tree = Self { folder, has_form: false };
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\nlints.rust.unsafe_code = \
            \"deny\"\n[workspace.dependencies]\n\
                        manylane-pool = { path = \"crates/pool\" }\nmanylane-stats = { path = \
                        \"crates/stats\" }\n\
                        loom = \"0.7\" # exhaustive interleavings\n";
        tree.write("Cargo.toml", manifest);
        for room in ["pool", "stats"] {
            tree.write(&format!("crates/{room}/Cargo.toml"), &manifest_of(room, ""));
            tree.write(&format!("crates/{room}/README.md"), "# A room\n");
            tree.write(&format!("crates/{room}/src/lib.rs"), LIB);
        }
        tree
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
        self
    }

    /// Appends to a room's lib.rs, from line 2 on.
    fn code(&self, room: &str, text: &str) -> &Self {
        self.write(&format!("crates/{room}/src/lib.rs"), &format!("{LIB}{text}"))
    }

    /// The findings, one on each line, and whether the check passed.
    fn check(&self) -> (String, bool) {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["check", "--root"])
            .arg(&self.folder)
            .args((!self.has_form).then_some("--without-form"))
            .output()
            .expect("xtask starts");
        let said = String::from_utf8(output.stdout).expect("xtask speaks UTF-8");
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(wrong.is_empty(), "{wrong}");
        let (findings, summary) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
        assert!(summary.starts_with("xtask check: "), "{said}");
        (findings.to_owned(), output.status.success())
    }

    /// Asserts that exactly these lines are found.
    #[track_caller]
    fn finds(&self, expected: &[&str]) {
        let (findings, passed) = self.check();
        assert_eq!(findings.lines().collect::<Vec<_>>(), expected);
        assert_eq!(passed, expected.is_empty(), "the exit code tells whether something was found");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder); // a failed test leaves its tree behind for inspection
        }
    }
}

fn manifest_of(room: &str, dependencies: &str) -> String {
    format!(
        "[package]\nname = \"manylane-{room}\"\nversion = \"0.1.0\"\nedition = \
            \"2024\"\n\n[lints]\nworkspace = true\n\n\
         {dependencies}"
    )
}

#[test]
fn a_tree_that_keeps_the_rules_passes() {
    let tree = Tree::new("clean");
    tree.write(
        "crates/pool/Cargo.toml",
        &manifest_of("pool", "[dependencies]\nmanylane-stats.workspace = true\n"),
    );
    tree.code(
        "pool",
        "#![allow(unsafe_code)] // slots are reached by pointers\n\
         // SAFETY: the reason.\nunsafe impl Send for S {}\nstruct S;\n\
         /// # Safety\n/// What callers owe.\nunsafe fn f() {}\n\
         fn g() {\n    // SAFETY: the reason, above the statement that\n    // the block is part of.\n    \
         let _x =\n        unsafe { f() };\n}\n",
    );
    tree.finds(&[]);
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let tree = Tree::new("arrow");
    tree.write(
        "crates/stats/Cargo.toml",
        &manifest_of("stats", "[dependencies]\nmanylane-pool.workspace = true\n"),
    );
    tree.finds(&[
        "crates/stats/Cargo.toml:10:1: `stats` depends on `pool`, which stands above it; arrows point down \
                  only: move what both need into a room below `stats`",
    ]);
}

#[test]
fn an_arrow_for_tests_that_points_up_is_found_too() {
    let tree = Tree::new("dev-arrow");
    let dependency = "[target.'cfg(unix)'.dev-dependencies]\nmanylane-pool = { workspace = true }\n";
    tree.write("crates/stats/Cargo.toml", &manifest_of("stats", dependency));
    tree.finds(&[
        "crates/stats/Cargo.toml:10:1: `stats` depends on `pool`, which stands above it; arrows point down \
                  only: move what both need into a room below `stats`",
    ]);
}

#[test]
fn the_simulators_tests_may_use_sync() {
    let tree = Tree::new("exception");
    for room in ["sim", "sync"] {
        tree.write(&format!("crates/{room}/README.md"), "# A room\n");
        tree.write(&format!("crates/{room}/src/lib.rs"), LIB);
    }
    tree.write(
        "crates/sync/Cargo.toml",
        &manifest_of("sync", "[dependencies]\nmanylane-sim = { path = \"../sim\" }\n"),
    );
    tree.write(
        "crates/sim/Cargo.toml",
        &manifest_of("sim", "[dev-dependencies]\nmanylane-sync = { path = \"../sync\" }\n"),
    );
    let (findings, _) = tree.check();
    assert!(!findings.contains("stands above it"), "{findings}");
}

#[test]
fn a_package_without_a_room_is_found() {
    let tree = Tree::new("no-room");
    tree.write("crates/attic/Cargo.toml", &manifest_of("attic", ""));
    tree.write("crates/attic/README.md", "# A room\n");
    tree.write("crates/attic/src/lib.rs", LIB);
    tree.finds(&[
        "crates/attic/Cargo.toml:1:1: package `manylane-attic` has no room; add it to the table in \
                  xtask/src/rooms.rs",
    ]);
}

#[test]
fn shared_memory_outside_the_sync_crate_is_found_in_every_spelling() {
    let tree = Tree::new("memory");
    tree.code(
        "stats",
        "use std::sync::{Arc, Mutex as Lock, atomic::{self, Ordering}};\n\
         use core::sync::atomic::*;\n\
         use ::parking_lot as fast;\n\
         use std::sync;\n\
         use std::sync::*;\n\
         static N: std::sync::atomic::AtomicU8 = ::std::sync::atomic::AtomicU8::new(0);\n\
         fn f() { assert!(std::sync::RwLock::new(1).is_poisoned()) }\n\
         macro_rules! m { () => { use std::{sync::{Condvar, Once}}; loom::sync::Arc::new(()) }; }\n",
    );
    let named = |place: &str, path: &str| {
        format!(
            "crates/stats/src/lib.rs:{place}: `{path}` is named outside of `sync`; take it from \
                manylane_sync, so that \
             the model checker and the simulator see it"
        )
    };
    let whole = |place: &str, path: &str| {
        format!(
            "crates/stats/src/lib.rs:{place}: `{path}` is imported whole, which hides what is used of it; \
                import the \
             items by name"
        )
    };
    let expected = [
        named("2:22", "std::sync::Mutex"),
        named("2:37", "std::sync::atomic"),
        named("2:52", "std::sync::atomic::Ordering"),
        named("3:17", "core::sync::atomic"),
        whole("4:7", "parking_lot"),
        whole("5:10", "std::sync"),
        whole("6:10", "std::sync"),
        named("7:11", "std::sync::atomic::AtomicU8"),
        named("7:43", "std::sync::atomic::AtomicU8::new"),
        named("8:18", "std::sync::RwLock::new"),
        named("9:43", "std::sync::Condvar"),
        named("9:60", "loom::sync::Arc::new"),
    ];
    tree.finds(&expected.each_ref().map(String::as_str));
}

#[test]
fn tests_and_benches_may_use_any_lock() {
    let tree = Tree::new("memory-tests");
    let uses = "use std::sync::Mutex;\n";
    tree.write("crates/stats/tests/stress.rs", uses).write("crates/stats/benches/b/main.rs", uses);
    tree.code(
        "stats",
        "#[cfg(not(test))]\nmod real {}\n#[cfg(test)]\nmod tests;\n\
         #[cfg(all(test, not(loom)))]\nmod inner { use std::sync::Mutex; }\n\
         #[test]\nfn t() { let _ = std::sync::Mutex::new(()); }\n",
    );
    tree.write("crates/stats/src/tests.rs", uses).write("crates/stats/src/tests/deeper.rs", uses);
    tree.finds(&[]);
}

#[test]
fn code_that_a_test_build_shares_with_others_is_no_test() {
    let tree = Tree::new("memory-any");
    tree.code("stats", "#[cfg(any(test, unix))]\nuse std::sync::Condvar;\n");
    tree.finds(&[
        "crates/stats/src/lib.rs:3:16: `std::sync::Condvar` is named outside of `sync`; take it from \
                  manylane_sync, so that the model checker and the simulator see it",
    ]);
}

#[test]
fn a_lock_library_among_the_dependencies_is_found() {
    let tree = Tree::new("memory-manifest");
    let dependencies = "[dependencies]\nloom.workspace = true\n\n[dev-dependencies]\nloom.workspace = true\n";
    tree.write("crates/stats/Cargo.toml", &manifest_of("stats", dependencies));
    tree.finds(&["crates/stats/Cargo.toml:10:1: `stats` depends on `loom`, which only bench, tests, sync, \
        sim may; use \
                  manylane-sync"]);
}

#[test]
fn unsafe_in_the_wrong_room_is_found() {
    let tree = Tree::new("unsafe-room");
    tree.code(
        "stats",
        "#![allow(unsafe_code)] // a reason\n\
         // SAFETY: a reason.\nunsafe impl Send for S {}\nstruct S;\n\
         macro_rules! m { () => { unsafe { f() } }; }\n",
    );
    let (findings, passed) = tree.check();
    let rest = "allowed in bench, fuzz, io, sched, local-capi, local, buf, pool, list, sync, sim only";
    assert_eq!(
        findings,
        format!(
            "crates/stats/src/lib.rs:2:1: `unsafe_code` is let through here, but is {rest}; remove this\n\
             crates/stats/src/lib.rs:4:1: `unsafe` stands here, but is {rest}; find a safe way, or move it\n\
             crates/stats/src/lib.rs:6:26: `unsafe` stands here, but is {rest}; find a safe way, or move it"
        )
    );
    assert!(!passed);
}

#[test]
fn unsafe_without_a_reason_is_found() {
    let tree = Tree::new("unsafe-reason");
    tree.code(
        "pool",
        "#![allow(unsafe_code)]\n\
         unsafe impl Send for S {}\nstruct S;\n\
         unsafe fn f() {}\n\
         // SAFETY: of another statement.\nfn g() {}\n\
         fn h() {\n    unsafe { f() }\n}\n\
         macro_rules! m { () => { unsafe { f() } }; }\n",
    );
    let reason =
        "this `unsafe` gives no reason; write a `// SAFETY:` comment above it that names the invariant";
    tree.finds(&[
        "crates/pool/src/lib.rs:2:1: `unsafe_code` is let through without a reason; say it in a comment \
            behind this",
        &format!("crates/pool/src/lib.rs:3:1: {reason}"),
        &format!("crates/pool/src/lib.rs:9:5: {reason}"),
        &format!("crates/pool/src/lib.rs:11:26: {reason}"),
    ]);
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let tree = Tree::new("reason");
    let manifest = fs::read_to_string(tree.folder.join("Cargo.toml")).expect("just written");
    tree.write(
        "Cargo.toml",
        &format!("{manifest}regex = {{ version = \"1\", features = [\"unicode\"] }}\nitoa = \"1\" #\n"),
    );
    let reported = |line, name: &str| {
        format!(
            "Cargo.toml:{line}:1: dependency `{name}` has no reason; say behind it in a comment what it is \
                here for"
        )
    };
    tree.finds(&[&reported(9, "regex"), &reported(10, "itoa")]);
}

#[test]
fn a_version_of_its_own_is_found() {
    let tree = Tree::new("version");
    let dependencies = "[target.'cfg(loom)'.dev-dependencies]\nloom = \"0.7\"\n";
    tree.write("crates/pool/Cargo.toml", &manifest_of("pool", dependencies));
    tree.finds(&[
        "crates/pool/Cargo.toml:10:1: dependency `loom` has a version of its own; put it into the \
        workspace's \
                  Cargo.toml with its reason and write `loom.workspace = true` here",
    ]);
}

#[test]
fn a_library_without_lints_or_documentation_is_found() {
    let tree = Tree::new("library");
    tree.write("crates/pool/Cargo.toml", "[package]\nname = \"manylane-pool\"\nversion = \"0.1.0\"\n");
    tree.write("crates/pool/src/lib.rs", "//! Pools.\n");
    fs::remove_file(tree.folder.join("crates/pool/README.md")).expect("it was there");
    tree.finds(&[
        "crates/pool/Cargo.toml:1:1: the library has no README.md; write one: what it is, when not to use \
            it, its \
         protocol, costs, an example",
        "crates/pool/Cargo.toml:1:1: the workspace's lints are not in force; add `[lints]` with `workspace = \
            true`",
        "crates/pool/src/lib.rs:1:1: README.md is not the crate's documentation; begin the file with `#![doc \
            = \
         include_str!(\"../README.md\")]`",
    ]);
}

#[test]
fn a_folder_with_another_name_than_its_room_is_found() {
    let tree = Tree::new("folder");
    fs::rename(tree.folder.join("crates/pool"), tree.folder.join("crates/pools")).expect("it can be moved");
    tree.finds(&[
        "crates/pools/Cargo.toml:1:1: package `manylane-pool` is in a folder named `pools`; a room's folder \
                  has its short name: `pool`",
    ]);
}

#[test]
fn a_panic_on_a_path_that_traffic_can_reach_is_found() {
    let tree = Tree::new("unwrap");
    tree.code(
        "stats",
        "fn f(x: Option<u8>) -> u8 { x.unwrap() }\n\
         fn g(x: Option<u8>) { assert_eq!(x.unwrap(), 1, \"{}\", x.unwrap_or(0)) }\n\
         #[cfg(test)]\nmod tests { fn t() { Some(1).unwrap(); } }\n",
    );
    let rest = "`.unwrap()` outside of tests; handle the case, or write `.expect(..)` with the invariant \
        that rules it out";
    tree.finds(&[
        &format!("crates/stats/src/lib.rs:2:31: {rest}"),
        &format!("crates/stats/src/lib.rs:3:36: {rest}"),
    ]);
}

#[test]
fn unfinished_work_is_found() {
    let tree = Tree::new("unfinished");
    // Split, so that this file is not a finding.
    let (note, later) = (concat!("FIX", "ME"), concat!("TO", "DO"));
    tree.code(
        "stats",
        &format!(
            "fn f() {{ todo! () }} // {note}: more\n\
             #[test]\n#[ignore = \"slow\"]\nfn t() {{ let _ = {later}S; }}\n\
             proptest! {{ #[test] #[ignore = \"slow\"] fn p() {{ unimplemented! () }} }}\n\
             #[cfg_attr(miri, ignore)]\nfn u() {{}}\n"
        ),
    );
    tree.write("crates/stats/README.md", &format!("# A room\n\n{later} the rest\n"));
    let note_to_self =
        |word| format!("a note to self ({word}); finish it, or say in plain words what holds and why");
    let ignored = "an ignored test proves nothing; make it run, widen it by MANYLANE_LONG=1, or remove it";
    tree.finds(&[
        &format!("crates/stats/README.md:3:1: {}", note_to_self(later)),
        "crates/stats/src/lib.rs:2:10: `todo!` stands for work that is not done; do it",
        &format!("crates/stats/src/lib.rs:2:24: {}", note_to_self(note)),
        &format!("crates/stats/src/lib.rs:4:1: {ignored}"),
        &format!("crates/stats/src/lib.rs:6:21: {ignored}"),
        "crates/stats/src/lib.rs:6:49: `unimplemented!` stands for work that is not done; do it",
        &format!("crates/stats/src/lib.rs:7:18: {ignored}"),
    ]);
}

#[test]
fn names_that_were_given_up_are_found_in_types_variants_and_macros() {
    let tree = Tree::new("names");
    tree.code(
        "pool",
        "pub struct Seat;\npub struct CallSite;\npub enum Next { Rest }\n\
         macro_rules! m { () => { struct Told; } }\n\
         // A Place in prose.\npub const NAME: &str = \"Site\";\n\
         pub const SEND_PATIENCE: u8 = 1;\npub fn ring_the_bell() {}\npub fn their() {}\n\
         pub fn is_told() {}\npub fn unseen() {}\npub fn open_in_place() {}\npub fn displaced() {}\n\
         #[cfg(test)]\nmod tests {\n    #[test]\n    fn clients_are_told() { let told = 1; }\n    \
         #[test]\n    fn a_place_is_free() {}\n}\n",
    );
    let found = |at: &str, name: &str, instead: &str| {
        format!(
            "crates/pool/src/lib.rs:{at}: `{name}` is a name that was given up; call it what others do: \
             {instead}"
        )
    };
    let part = |at: &str, name: &str, instead: &str| {
        found(at, name, instead).replace("is a name", "contains a word")
    };
    tree.finds(&[
        &found("2:12", "Seat", "LaneGuard"),
        &found("4:17", "Rest", "IdleSession"),
        &found("5:33", "Told", "ServerVersion or Epoch"),
        &part("8:11", "SEND_PATIENCE", "timeout"),
        &part("9:8", "ring_the_bell", "notify"),
        &part("11:8", "is_told", "reported, sent or known"),
        &found("18:33", "told", "report, or what was reported"),
        &part("20:8", "a_place_is_free", "permit, position, slot, offset or address"),
    ]);
}

#[test]
fn fields_functions_and_locals_with_words_of_many_meanings_are_found() {
    let tree = Tree::new("values");
    tree.code(
        "pool",
        "pub struct Pump { pub way: u8, pub ways: u8 }\npub fn watch() {}\n\
         pub fn free(place: usize) -> usize { let looks = place; looks }\n\
         pub enum Step { Take { place: usize } }\n\
         #[cfg(test)]\nmod tests {\n    fn free(place: usize) -> usize { place }\n}\n",
    );
    tree.code("stats", "#[cfg(test)]\npub fn news() {}\n");
    let found = |at: &str, name: &str, instead: &str| {
        format!("{at}: `{name}` has many meanings as the name of a value; say which: {instead}")
    };
    tree.finds(&[
        &found("crates/pool/src/lib.rs:2:23", "way", "direction, delivery or path"),
        &found("crates/pool/src/lib.rs:3:8", "watch", "timeouts, or what is waited for"),
        &found("crates/pool/src/lib.rs:4:13", "place", "index, slot, offset, position or address"),
        &found("crates/pool/src/lib.rs:4:42", "looks", "checks, reads or attempts"),
        &found("crates/pool/src/lib.rs:5:24", "place", "index, slot, offset, position or address"),
        &found("crates/stats/src/lib.rs:3:8", "news", "update, or what changed"),
    ]);
}

#[test]
fn a_folder_without_a_workspace_is_refused_with_a_remedy() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["check", "--root", env!("CARGO_TARGET_TMPDIR")])
        .output()
        .expect("xtask starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot be opened") && said.contains("give the workspace's folder with --root"),
        "{said}"
    );
}

#[test]
fn this_workspace_has_a_row_for_each_of_its_packages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["check", "--root"])
        .arg(root)
        .output()
        .expect("xtask starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("has no room"), "{said}");
    assert!(said.contains("xtask check: "), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_in_bad_form_or_out_of_rustfmts_sight_is_found() {
    let mut tree = Tree::new("form");
    tree.has_form = true;
    tree.write("rustfmt.toml", "");
    tree.code("pool", "\nmod form;\n").write("crates/pool/src/form.rs", "fn f() {}\n").finds(&[]);
    tree.write("crates/pool/src/form.rs", "fn f() {}\n\nfn g( ) {}\n");
    tree.finds(&["crates/pool/src/form.rs:1:1: rustfmt would change this: run `cargo fmt --all`"]);
    let comment = "fn f(a: bool, b: bool) -> bool {\n    a\n        // why\n        && b\n}\n";
    tree.write("crates/pool/src/form.rs", comment);
    tree.finds(&[
        "crates/pool/src/form.rs:2:1: rustfmt gives up on this: move the comment out of the expression",
    ]);
    let wide = format!("const TEXT: &str = \"{}\";\n", "words ".repeat(16));
    tree.write("crates/pool/src/form.rs", &wide);
    tree.finds(&["crates/pool/src/form.rs:1:111: the line has more than 110 columns: break it"]);
    let row = format!("/// | {} |\nfn f() {{}}\n", "cell ".repeat(21).trim_end());
    tree.write("crates/pool/src/form.rs", &row);
    tree.finds(&["crates/pool/src/form.rs:1:111: the line has more than 110 columns: break it"]);
    let beside = |blanks: &str| format!("// {blanks}{}\nfn f() {{}}\n", "x".repeat(200));
    tree.write("crates/pool/src/form.rs", &beside(&"words ".repeat(7))).finds(&[]);
    tree.write("crates/pool/src/form.rs", &beside(&"words ".repeat(8)));
    tree.finds(&["crates/pool/src/form.rs:1:111: the line has more than 110 columns: break it"]);
    tree.write("crates/pool/src/form.rs", "fn f() {}\n");
    tree.write("scripts/chore", &format!("# {}\n", "words ".repeat(19)));
    tree.finds(&["scripts/chore:1:111: the line has more than 110 columns: break it"]);
    tree.write("scripts/chore", "# short\n");
    let skip = "#[rustfmt::skip]\nconst TABLE: [u8; 4] = [\n    1, 2,\n    3, 4,\n];\n";
    tree.write("crates/pool/src/form.rs", &format!("/// A square.\n// Two in each line.\n{skip}")).finds(&[]);
    tree.write("crates/pool/src/form.rs", &format!("/// A square.\n{skip}"));
    tree.finds(&[
        "crates/pool/src/form.rs:2:1: `#[rustfmt::skip]` without a reason; remove it, or say why in \
        a `//` comment above",
    ]);
    tree.write("crates/pool/src/form.rs", "fn f() {}\n");
    let hiding = "\nmacro_rules! all {\n    ($m:item) => {\n        $m\n    };\n}\n\nall! { mod hidden; }\n";
    tree.code("stats", hiding).write("crates/stats/src/hidden.rs", "fn f() {}\n");
    let unseen = "rustfmt does not see this file: declare its module outside of macros";
    tree.finds(&[&format!("crates/stats/src/hidden.rs:1:1: {unseen}")]);
}

#[test]
fn documents_that_are_too_wide_or_too_long_are_found_and_wrapped() {
    let tree = Tree::new("documents");
    let wide = format!("{} end", "word ".repeat(22).trim_end());
    let long = "line\n".repeat(7);
    let table = format!("| {} |\n", "cell ".repeat(30).trim_end());
    let code = format!("```sh\n{wide}\n```\n");
    tree.write("docs/page.md", &format!("# A page\n\n{wide}\n\n{long}\n{table}\n{code}"));
    tree.write("README.md", &format!("# Us\n\n{table}{}", "\n".repeat(98)));
    tree.finds(&[
        "README.md:3:111: the line has more than 110 columns: shorten its cells",
        "README.md:101:1: the page has 101 lines, of at most 100: move what only some readers want",
        "docs/page.md:3:111: the line has more than 110 columns: run `cargo xtask wrap`",
        "docs/page.md:5:1: a paragraph of 7 lines, of at most 6: make it a list, a table or several \
            paragraphs",
    ]);
    tree.write("README.md", "# Us\n");
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["wrap", "--root"]).arg(&tree.folder).output();
    assert!(output.expect("xtask starts").status.success());
    tree.finds(&[]);
    let wrapped = fs::read_to_string(tree.folder.join("docs/page.md")).expect("it is there");
    assert!(wrapped.ends_with(&format!("\n{table}\n{code}")), "{wrapped}");
    assert!(wrapped.contains("word\nend\n\nline line line"), "{wrapped}");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let tree = Tree::new("links");
    tree.write("docs/other.md", "# Other\n\n## Do, it `now`\n\n## Twice\n\n## Twice\n");
    let good = "[a](other.md) [b](other.md#do-it-now) [c](other.md#twice-1) [d](https://example.org/x) \
        `[e](none.md)`";
    tree.write("docs/page.md", &format!("# A page\n\n{good}\n[f](#a-page) [g](../crates/pool)\n")).finds(&[]);
    tree.write("docs/page.md", "# A page\n\n[a](none.md)\n[b](other.md#twice-2)\n<img src=\"none.svg\">\n");
    tree.finds(&[
        "docs/page.md:3:1: `none.md` is not there: correct the link",
        "docs/page.md:4:1: no heading gives `other.md#twice-2` its anchor: correct the link",
        "docs/page.md:5:1: `none.svg` is not there: correct the link",
    ]);
}

#[test]
fn a_map_that_differs_from_the_plan_is_found() {
    let tree = Tree::new("map");
    let map =
        |pool: &str| format!("# Map\n\n| room | | |\n|---|---|---|\n{pool}| `crates/stats/` | | counts |\n");
    tree.write("ARCHITECTURE.md", &map("| `crates/pool/` | U | objects |\n")).finds(&[]);
    let missing = "ARCHITECTURE.md:1:1: the map has no row `| `crates/pool/` | U |` as rooms.rs says: add \
        it, or correct one";
    tree.write("ARCHITECTURE.md", &map("| `crates/pool/` | | objects |\n")).finds(&[missing]);
    tree.write("ARCHITECTURE.md", &map("")).finds(&[missing]);
    let turned = format!("{}| `crates/pool/` | U | objects |\n", map(""));
    tree.write("ARCHITECTURE.md", &turned);
    tree.finds(&[
        "ARCHITECTURE.md:5:1: the row `| `crates/stats/` | |` stands above one that rooms.rs has above \
        it: move it",
    ]);
}

#[test]
fn counts_of_tests_in_prose_are_found() {
    let tree = Tree::new("counts");
    tree.write("docs/page.md", "# A page\n\nIt is shown by 26\ntests, of 256 cases a property.\n");
    tree.finds(&["docs/page.md:3:16: a count of tests (26 tests): leave it to what the tests print"]);
}

#[test]
fn requirements_that_are_cited_and_not_listed_are_found() {
    let tree = Tree::new("requirements");
    let [listed, other] = ["Y1", "Y12"].map(|number| format!("R-{number}")); // split, so as not to cite them
    tree.write("docs/requirements.md", &format!("# R\n\n- **{listed}**: it is.\n"));
    tree.code("pool", &format!("// {listed}, {other}; not PEE{other}, R-Y, R-xx.\n"));
    tree.finds(&[&format!(
        "crates/pool/src/lib.rs:2:10: {other} has no line in docs/requirements.md: add it, or correct the \
            number"
    )]);
}

#[test]
fn tests_that_security_md_names_and_nobody_has_are_found() {
    let tree = Tree::new("security");
    tree.code("pool", "#[test]\nfn it_is_bounded_however_it_comes() {}\n");
    tree.write("crates/pool/tests/a.rs", "#[test]\nfn it_drips() {}\n");
    tree.write("tests/a.case", "");
    let page = "# Security\n\n- **a**: `tune.size`, `LIMIT`. The test: pool `it_is_bounded`, `it_drips`;\n  \
                `tests/a.case`.\n\
                - **b**: 1. The test: pool\n  `it_is_bound`, `it_was_bounded`; `tests/b.rs`.\n\
                - **c**: 2. The test: `it_drips`; stats `it_drips`.\n";
    tree.write("SECURITY.md", page);
    tree.finds(&[
        "SECURITY.md:6:19: crates/pool has no test `it_was_bounded…`: correct it, or write one",
        "SECURITY.md:6:37: there is no file `tests/b.rs`: correct its name",
        "SECURITY.md:7:24: the row names no file and no crate of `it_drips`: name it before the test",
        "SECURITY.md:7:42: crates/stats has no test `it_drips…`: correct it, or write one",
    ]);
}

#[test]
fn constants_that_security_md_names_and_nobody_has_are_found() {
    let tree = Tree::new("constants");
    let code = "const LIMIT: usize = 1; // MOST\npub(crate) const fn f() {}\n\
                pub struct Head;\n#[test]\nfn it_is_bounded() {}\n";
    tree.code("pool", code);
    tree.write("crates/pool/tests/a.rs", "const MOST: u8 = 1;\n");
    let page = "# Security\n\n- **`RLIMIT_AS`**: 1. Constant: `LIMIT`, `MOST`,\n  `Head` (pool), keyword \
                (`maxconn`), `LIMIT` (stats). The\n  test: pool `it_is_bounded`.\n\
                - **b**: 2. Constant: `LIMIT`. The test: pool `it_is_bounded`.\n\
                - **c**: 3. Constant: none. The test: pool `it_is_bounded`. `SIGQUIT` (signal)\n";
    tree.write("SECURITY.md", page);
    tree.finds(&[
        "SECURITY.md:3:43: crates/pool has no constant `MOST`: correct it",
        "SECURITY.md:4:40: crates/stats has no constant `LIMIT`: correct it",
        "SECURITY.md:6:24: the row names no crate of `LIMIT`: name it in brackets behind it",
    ]);
}

#[test]
fn commands_of_the_changelog_that_run_nothing_are_found() {
    let tree = Tree::new("commands");
    tree.code("pool", "#[test]\nfn it_is_bounded_however_it_comes() {}\n");
    tree.write("crates/pool/tests/a.rs", "#[test]\nfn it_drips() {}\n");
    tree.write("tests/differential/h2-stream.case", "");
    let page = "# Changes\n\n- `X=1 cargo test -p manylane-pool --lib is_bounded`, `--test a drips`;\n  \
                `CASE=h2- cargo test --profile release -p manylane-pool -- lib::it it_drips`; `--version`.\n\
                - `cargo test -p manylane-pool --lib it_drips`, `--test b`, `CASE=h3`.\n\
                - `cargo test -p manylane-gone`; `cargo test -p manylane-pool\n  --test a drips \
                was_bounded`.\n- `cargo test --profile gone -p manylane-pool`\n";
    tree.write("CHANGELOG.md", page);
    tree.finds(&[
        "CHANGELOG.md:5:4: no test's name has `it_drips`: correct it",
        "CHANGELOG.md:5:50: `manylane-pool` has no target of this name: correct it",
        "CHANGELOG.md:5:62: no case's name has `h3`: correct it",
        "CHANGELOG.md:6:4: there is no package `manylane-gone`: correct it",
        "CHANGELOG.md:6:35: no test's name has `was_bounded`: correct it",
        "CHANGELOG.md:8:4: Cargo.toml has no profile `gone`: correct it",
    ]);
}

#[test]
fn a_page_of_figures_is_made_from_data_and_stale_ones_are_found() {
    let tree = Tree::new("results");
    let data = "title = \"Us\"\n[[table]]\ntitle = \"Times\"\ncolumns = [\"row\", \"ours\"]\nrows = [[\"a\", \
        \"1.5\"]]\n\
                [table.plot]\nfile = \"p.svg\"\ntitle = \"T\"\nbars = [\"ours\"]\nnames = [\"Ours\"]\nrows = \
                [\"a\"]\nlabels = [\"A\"]\n";
    let stale = "it is not what the figures in bench say: run `cargo xtask page`";
    tree.write("bench/README.md", "# B\n")
        .write("bench/tried/x.md", "# X\n")
        .write("bench/results/1.toml", data);
    let both = [format!("bench/results/p.svg:1:1: {stale}"), format!("bench/results.md:1:1: {stale}")];
    tree.finds(&[&both[0], &both[1]]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["page", "--root"]).arg(&tree.folder).output();
    assert!(output.expect("xtask starts").status.success());
    tree.finds(&[]);
    let page = fs::read_to_string(tree.folder.join("bench/results.md")).expect("it is there");
    assert!(
        page.ends_with("### Times\n\n![T](results/p.svg)\n\n| row | ours |\n|---|---|\n| a | 1.5 |\n"),
        "{page}"
    );
    tree.write("bench/results/1.toml", &data.replace("1.5", "1.6"));
    tree.finds(&[&both[0], &both[1]]);
}

#[test]
fn modules_that_import_each_other_in_a_circle_are_found() {
    let tree = Tree::new("circle");
    tree.code("stats", "mod a;\nmod b;\nmod c;\nmod d;\npub use b::B;\nuse d::D;\n");
    tree.write("crates/stats/src/a/mod.rs", "mod below;\n")
        .write("crates/stats/src/a/below.rs", "fn f() -> crate::B { loop {} }\n")
        .write("crates/stats/src/b.rs", "use super::{a, c::C as Other, d::{self, D}};\npub struct B;\n")
        .write("crates/stats/src/c.rs", "fn f() { assert!(crate::a::f()) }\n")
        .write(
            "crates/stats/src/d.rs",
            "#[cfg(test)]\nmod tests { use crate::{a, b}; }\n#[cfg(test)]\nuse crate::c;\n",
        );
    tree.finds(&["crates/stats/src/a/below.rs:1:18: modules of `manylane-stats` import each other in a \
        circle: a -> b -> a; move what they share into a module below both, or name all modules of the \
        circle (a, b, c) with the reason in xtask/src/sources/known_circles.rs"]);
    // One of the arrows fewer leaves the circle through `c`.
    tree.write("crates/stats/src/b.rs", "use super::{c::C as Other, d};\npub struct B;\n");
    let (findings, _) = tree.check();
    assert!(findings.contains("circle: a -> b -> c -> a;"), "{findings}");
    tree.write("crates/stats/src/c.rs", "fn f() {}\n");
    tree.finds(&[]);
}
