//! C programs against the header and the shared library, compiled with the system's `cc`.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo has put the shared library: in the folder of this test, or the one above.
fn library_folder() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors()
        .find(|folder| folder.join("libmanylane_local_c.so").is_file())
        .expect("cargo builds the shared library beside the tests")
        .to_path_buf()
}

/// Compiles `sources` into a program called as the first of them, with the header `before` in front of each.
fn compile(sources: &[&str], before: Option<&str>) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = library_folder();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(sources[0]);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-I"])
        .arg(here.join("include"));
    if let Some(header) = before {
        compiler.arg("-include").arg(here.join("include").join(header));
    }
    let compiled = compiler
        .args(sources.iter().map(|source| here.join("tests/c").join(format!("{source}.c"))))
        .arg("-L")
        .arg(&library)
        .args(["-lmanylane_local_c", "-o"])
        .arg(&program)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

fn run(program: &Path, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn every_function_of_the_header_does_what_its_namesake_does() {
    run(&compile(&["all"], None), &[]);
}

#[test]
fn the_loop_of_unix1_runs_from_c() {
    let printed = run(&compile(&["unix1"], None), &["100000"]);
    println!("unix1 from C: {printed}");
    assert!(printed.ends_with(" ns\n"), "{printed}");
}

/// The test case calls `socketpair`, `write` and `read`; the header maps these names to this library.
#[test]
fn a_test_case_in_the_form_of_will_it_scale_runs_on_these_sockets() {
    let program = compile(&["testcase_unix1", "scale"], Some("posix_names.h"));
    for threads in ["1", "2", "4"] {
        let printed = run(&program, &[threads, "20000"]);
        assert!(printed.ends_with(&format!("{threads} threads have each done 20000\n")), "{printed}");
    }
}
