//! `manylane-bench`: see the crate's README.

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    manylane_bench::cli::main()
}

#[cfg(loom)]
fn main() {}
