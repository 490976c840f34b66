//! Lock files outside of the workspace: nobody builds there every day, and a stale one stops whoever does.

use crate::finding::{Finding, Position};
use cargo_metadata::{Error, MetadataCommand};
use std::path::Path;

/// Folders with a lock file of their own.
const FOLDERS: &[&str] = &["fuzz"];

/// What cargo says of a lock file that it would have to change.
const STALE: &str = "--locked was passed";

/// Adds a finding for each that does not fit its manifest. Without network: where the packages are not on
/// this machine it cannot be told, which is said.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) {
    for folder in FOLDERS {
        let manifest = root.join(folder).join("Cargo.toml");
        let lock = manifest.with_extension("lock");
        if !manifest.exists() {
            continue; // a workspace of the tests
        }
        let options = ["--locked", "--offline"].map(str::to_owned);
        match MetadataCommand::new().manifest_path(manifest).other_options(options).exec() {
            Ok(_) => {}
            Err(Error::CargoMetadata { stderr }) if stderr.contains(STALE) => {
                let message = format!(
                    "it does not fit the manifests: run `cargo metadata --offline` in `{folder}` and commit \
                        it"
                );
                findings.push(Finding::new(root, &lock, Position::START, message));
            }
            Err(error) => eprintln!("xtask: {} was not checked: {error}", lock.display()),
        }
    }
}
