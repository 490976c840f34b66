//! Checks manifests: arrows, reasons, shared versions, shared lints, and the README as documentation.

use crate::finding::{Finding, Position};
use crate::rooms::{self, Memory, ROOMS, Room};
use crate::sources::memory;
use crate::toml::Manifest;
use cargo_metadata::{DependencyKind, Metadata, Package};
use std::fs;
use std::path::Path;

pub(crate) fn check(workspace: &Metadata) -> Result<Vec<Finding>, String> {
    let root = workspace.workspace_root.as_std_path();
    let mut findings = Vec::new();
    reasons(root, &mut findings)?;
    for package in &workspace.packages {
        let file = package.manifest_path.as_std_path();
        let manifest = Manifest::read(file)?;
        let mut find = |position, message| findings.push(Finding::new(root, file, position, message));
        match rooms::of(&package.name) {
            Some(room) => {
                placed(package, room, &mut find);
                arrows(package, room, &manifest, &mut find);
            }
            None => find(
                Position::START,
                format!("package `{}` has no room; add it to the table in xtask/src/rooms.rs", package.name),
            ),
        }
        shared_settings(&manifest, &mut find);
        if package.targets.iter().any(|target| target.is_lib()) {
            documented(root, file, &mut findings)?;
        }
    }
    Ok(findings)
}

/// Each dependency in the workspace's manifest must give its reason, except rooms (by path).
fn reasons(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let file = root.join("Cargo.toml");
    let manifest = Manifest::read(&file)?;
    let table = manifest.root().get("workspace").and_then(|workspace| workspace.get("dependencies"));
    for entry in manifest.entries(table) {
        let reason = entry.comment.map_or("", |comment| comment.trim_matches(['#', ' ']));
        if entry.item.get("path").is_none() && reason.is_empty() {
            let message = format!(
                "dependency `{}` has no reason; say behind it in a comment what it is here for",
                entry.name
            );
            findings.push(Finding::new(root, &file, entry.position, message));
        }
    }
    Ok(())
}

/// A room's folder must have the room's name.
fn placed(package: &Package, room: &Room, find: &mut impl FnMut(Position, String)) {
    let folder = package.manifest_path.parent().and_then(|folder| folder.file_name());
    if folder != Some(room.name) {
        let message = format!(
            "package `{}` is in a folder named `{}`; a room's folder has its short name: `{}`",
            package.name,
            folder.unwrap_or_default(),
            room.name
        );
        find(Position::START, message);
    }
}

/// Rooms may depend only on rooms below them, and only the gateway on crates with locks and atomics.
fn arrows(package: &Package, room: &Room, manifest: &Manifest, find: &mut impl FnMut(Position, String)) {
    let entries = manifest.dependencies();
    for dependency in &package.dependencies {
        let entry = entries.iter().find(|entry| entry.name == dependency.name);
        let position = entry.map_or(Position::START, |entry| entry.position);
        if let Some(to) = rooms::of(&dependency.name) {
            if let Some(refusal) = rooms::refusal(room, to, dependency.kind) {
                find(position, refusal);
            }
        } else if room.memory == Memory::ThroughSync
            && dependency.kind != DependencyKind::Development
            && memory::is_sync(&dependency.name)
        {
            let gateways: Vec<_> =
                ROOMS.iter().filter(|r| r.memory == Memory::Direct).map(|r| r.name).collect();
            let message = format!(
                "`{}` depends on `{}`, which only {} may; use manylane-sync",
                room.name,
                dependency.name,
                gateways.join(", ")
            );
            find(position, message);
        }
    }
}

/// Versions and lints must be those of the workspace.
fn shared_settings(manifest: &Manifest, find: &mut impl FnMut(Position, String)) {
    for entry in manifest.dependencies() {
        if !Manifest::is_true(Some(entry.item), "workspace") {
            let message = format!(
                "dependency `{}` has a version of its own; put it into the workspace's Cargo.toml with its \
                    reason \
                 and write `{}.workspace = true` here",
                entry.name, entry.name
            );
            find(entry.position, message);
        }
    }
    if !Manifest::is_true(manifest.root().get("lints"), "workspace") {
        let message = "the workspace's lints are not in force; add `[lints]` with `workspace = true`";
        find(Position::START, message.to_owned());
    }
}

/// A library's README must be its documentation, so that there is one copy.
fn documented(root: &Path, manifest: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let folder = manifest.parent().unwrap_or(root);
    let readme = folder.join("README.md");
    if !readme.is_file() {
        let message = "the library has no README.md; write one: what it is, when not to use it, its \
            protocol, \
                       costs, an example";
        findings.push(Finding::new(root, manifest, Position::START, message.to_owned()));
    }
    let lib = folder.join("src/lib.rs");
    let text = fs::read_to_string(&lib).map_err(|e| format!("{} cannot be read: {e}", lib.display()))?;
    let file = syn::parse_file(&text).map_err(|e| format!("{}: {e}", lib.display()))?;
    let included = file.attrs.iter().any(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return false };
        let syn::Expr::Macro(value) = &pair.value else { return false };
        pair.path.is_ident("doc")
            && value.mac.path.is_ident("include_str")
            && value.mac.parse_body::<syn::LitStr>().is_ok_and(|path| path.value() == "../README.md")
    });
    if !included {
        let message = "README.md is not the crate's documentation; begin the file with \
                       `#![doc = include_str!(\"../README.md\")]`";
        findings.push(Finding::new(root, &lib, Position::START, message.to_owned()));
    }
    Ok(())
}
