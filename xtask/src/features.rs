//! Type-checks every feature of every crate alone.

use cargo_metadata::Metadata;
use std::process::Command;

/// Type-checks each crate with one feature at a time. `Ok(false)` if one does not compile; cargo has printed
/// the error.
pub(crate) fn check_each_alone(workspace: &Metadata) -> Result<bool, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut all_well = true;
    for package in &workspace.packages {
        for feature in package.features.keys().filter(|feature| *feature != "default") {
            println!("{} with `{feature}` alone", package.name);
            let status = Command::new(&cargo)
                .args(["check", "--quiet", "--lib", "--bins", "--tests", "--no-default-features"])
                .args(["--package", &package.name, "--features", feature])
                .current_dir(&workspace.workspace_root)
                .status()
                .map_err(|e| format!("cargo check cannot be started: {e}"))?;
            all_well &= status.success();
        }
    }
    Ok(all_well)
}
