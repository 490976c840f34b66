//! Checks and chores of the workspace: `cargo xtask check`, `cargo xtask each-feature`.

mod documents;
mod features;
mod finding;
mod form;
mod manifests;
mod results;
mod rooms;
mod sources;
mod toml;

use cargo_metadata::{Metadata, MetadataCommand};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Checks and chores of the workspace")]
struct Options {
    /// Folder of the workspace's Cargo.toml
    #[arg(long, global = true, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    root: PathBuf,
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Verify what the compiler does not: form, documents, arrows between rooms, circles of modules, the
    /// gateway to shared memory, unsafe, manifests
    Check {
        /// Leave the form out: most tests of the rest write less than rustfmt does
        #[arg(long, hide = true)]
        without_form: bool,
    },
    /// Make the page and the plots of what was measured from bench/results/*.toml
    Page,
    /// Wrap the prose of Markdown files where a line is too wide or a paragraph too long
    Wrap,
    /// Type-check every feature of every crate alone, so that none needs another without saying so
    EachFeature,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = load(&options.root).and_then(|workspace| match options.chore {
        Chore::Check { without_form } => check(&workspace, without_form),
        Chore::Page => results::write(workspace.workspace_root.as_std_path()),
        Chore::Wrap => documents::wrap(workspace.workspace_root.as_std_path()),
        Chore::EachFeature => features::check_each_alone(&workspace),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Loads the workspace's own packages. Dependencies are not resolved, so this needs no network.
fn load(root: &std::path::Path) -> Result<Metadata, String> {
    let manifest = root.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|e| {
        format!("{} cannot be opened ({e}): give the workspace's folder with --root", manifest.display())
    })?;
    MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()
        .map_err(|e| format!("cargo metadata failed: {e}"))
}

fn check(workspace: &Metadata, without_form: bool) -> Result<bool, String> {
    let mut findings = manifests::check(workspace)?;
    let files = sources::check(workspace, &mut findings)?;
    let root = workspace.workspace_root.as_std_path();
    if !without_form {
        form::check(root, &mut findings)?;
    }
    results::check(root, &mut findings)?;
    documents::check(root, &mut findings)?;
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let packages = workspace.packages.len();
    match findings.len() {
        0 => println!("xtask check: {packages} packages, {files} files, nothing found"),
        1 => println!("xtask check: {packages} packages, {files} files, 1 finding"),
        n => println!("xtask check: {packages} packages, {files} files, {n} findings"),
    }
    Ok(findings.is_empty())
}
