//! Checks that the commands `cargo test …` in CHANGELOG.md name profiles, packages, targets, tests and cases
//! that exist: one that selects nothing passes.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "CHANGELOG.md";

/// A command may leave out what stands in the one before it: `--test queues any_number`, `CASE=h2-`.
pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    if !page.exists() {
        return Ok(()); // a workspace of the tests
    }
    let text = super::read(&page)?;
    let (mut offset, mut packages) = (0, Vec::new());
    for (number, span) in text.split('`').enumerate() {
        let begin = offset;
        offset += span.len() + 1;
        if number % 2 == 1
            && let Err(why) = check_command(root, span, &mut packages)
        {
            findings.push(Finding::new(root, &page, Position::at(&text, begin), why));
        }
    }
    Ok(())
}

fn check_command<'t>(root: &Path, span: &'t str, packages: &mut Vec<&'t str>) -> Result<(), String> {
    let mut words = span.split_whitespace().peekable();
    while let Some(case) = words.next_if(|word| is_setting(word)) {
        if let Some(case) = case.strip_prefix("CASE=")
            && !has_case(root, case)
        {
            return Err(format!("no case's name has `{case}`: correct it"));
        }
    }
    match words.peek() {
        Some(&"cargo") => {
            if words.nth(1) != Some("test") {
                return Ok(());
            }
            packages.clear();
        }
        Some(&("--test" | "--lib")) if !packages.is_empty() => {}
        _ => return Ok(()),
    }
    let (mut target, mut filters) = (Target::All, Vec::new());
    while let Some(word) = words.next() {
        match word {
            "-p" => packages.extend(words.next()),
            "--test" => target = Target::Test(words.next().unwrap_or_default()),
            "--lib" | "--bin" => {
                target = Target::Sources;
                if word == "--bin" {
                    words.next();
                }
            }
            "--features" => drop(words.next()),
            "--profile" => {
                if let Some(profile) = words.next().filter(|profile| !has_profile(root, profile)) {
                    return Err(format!("Cargo.toml has no profile `{profile}`: correct it"));
                }
            }
            filter if !filter.starts_with('-') => filters.push(filter),
            _ => {}
        }
    }
    let mut names = Vec::new();
    for package in &*packages {
        let below = package.strip_prefix("manylane").map(|rest| match rest {
            "" => "crates/manylane".into(),
            "-tests" => "tests".into(),
            rest => format!("crates/{}", rest.trim_start_matches('-')),
        });
        let folder = below.map(|below| root.join(below)).filter(|folder| folder.is_dir());
        let Some(folder) = folder else { return Err(format!("there is no package `{package}`: correct it")) };
        let own = target.files(root, package, &folder);
        if own.is_empty() {
            return Err(format!("`{package}` has no target of this name: correct it"));
        }
        own.iter().for_each(|(file, module)| names.extend(tests_of(file, module)));
    }
    match filters.iter().find(|filter| !names.iter().any(|name| name.contains(**filter))) {
        Some(filter) => Err(format!("no test's name has `{filter}`: correct it")),
        None => Ok(()),
    }
}

/// True for a variable of the environment, `NAME=value`.
fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

fn has_profile(root: &Path, wanted: &str) -> bool {
    let own = || fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    matches!(wanted, "dev" | "release" | "test" | "bench") || own().contains(&format!("[profile.{wanted}]"))
}

fn has_case(root: &Path, wanted: &str) -> bool {
    let cases = fs::read_dir(root.join("tests/differential")).into_iter().flatten().flatten();
    cases.into_iter().any(|case| case.file_name().to_string_lossy().contains(wanted))
}

/// What a command runs of a package.
enum Target<'t> {
    All,
    Sources,
    Test(&'t str),
}

impl Target<'_> {
    /// The files of the target, each with its module.
    fn files(&self, root: &Path, package: &str, folder: &Path) -> Vec<(PathBuf, String)> {
        let (sources, tests) = (folder.join("src"), folder.join("tests"));
        match self {
            Self::All => modules(&sources).into_iter().chain(modules(&tests)).collect(),
            Self::Sources => modules(&sources),
            Self::Test("e2e") if package == "manylane-tests" => modules(&root.join("tests")),
            Self::Test(name) => {
                let file = tests.join(format!("{name}.rs"));
                let alone = file.is_file().then(|| (file, String::new()));
                alone.into_iter().chain(modules(&tests.join(name))).collect()
            }
        }
    }
}

/// The files below `folder`, each with its path as a module of `folder`.
fn modules(folder: &Path) -> Vec<(PathBuf, String)> {
    let module = |file: &Path| {
        let below = file.strip_prefix(folder).unwrap_or(file).with_extension("");
        below.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("::")
    };
    texts(folder, &["rs"]).map(|file| (file.clone(), module(&file))).collect()
}

/// The names of a file's functions, behind their module. Tests are among them, those of macros, too.
fn tests_of(file: &Path, module: &str) -> Vec<String> {
    let text = super::read(file).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
    let names = names.filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    names.map(|name| format!("{module}::{name}")).collect()
}
