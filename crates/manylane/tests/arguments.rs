//! The command line alone. Cargo builds the program for this test; the end-to-end tests of `make test` start
//! that one.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::process::{Command, Stdio};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn conditions_versions_and_help_need_no_file() {
    let code = |words: &[&str]| command().args(words).output().unwrap().status.code();
    // These are accepted as by HAProxy's next version (items 4 and 5 of haproxy-today).
    for holds in [
        "version_atleast(3.5) && version_before(3.6) && feature(THREAD)",
        "version_atleast(v3.5-dev3) && version_atleast() && !version_before() && !fips_mode()",
        "feature(PCRE2)",
        "feature(OPENSSL) && ssllib_name_startswith(AWS-LC) && !openssl_version_atleast(1.0.0)",
    ] {
        assert_eq!(code(&["-cc", holds]), Some(0), "{holds}");
    }
    for not in ["version_before(v3.5-dev3)", "fips_mode()", "feature(QUIC)"] {
        assert_eq!(code(&["-cc", not]), Some(1), "{not}");
    }
    let signs = manylane_io::options::has_signatures();
    assert_eq!(code(&["-cc", "feature(HAVE_WORKING_TCP_MD5SIG)"]), Some(i32::from(!signs)));
    assert_eq!(code(&["-cc", "nonsense("]), Some(2));
    for (option, name) in [("-dS", "SPLICE"), ("-dR", "REUSEPORT"), ("-de", "EPOLL")] {
        let requested = format!("enabled({name})");
        let usual = code(&["-cc", &requested]);
        // The tests may run with the other driver.
        assert!(usual == Some(0) || name == "EPOLL", "{name}");
        assert_eq!(code(&[option, "-cc", &requested]), Some(1), "{option}");
        let shown = command().args([option, "-vv"]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        let enabled = shown.lines().find(|line| line.starts_with("Enabled at run time")).unwrap();
        assert!(enabled.contains("GETADDRINFO") && !enabled.contains(name), "{enabled}");
    }
    let shown = |option: &str| String::from_utf8(command().arg(option).output().unwrap().stdout).unwrap();
    assert!(shown("-v").starts_with("Manylane ") && shown("-vv").starts_with(shown("-v").trim_end()));
    assert_eq!(shown("--version"), shown("-v"));
    for name in [
        &["timeout", "client"][..],
        &["httplog"],
        &["http-request", "deny"],
        &["path_beg"],
        &["-sf"],
        &["-W"],
    ] {
        let words = [&["--help"][..], name].concat();
        assert_eq!(code(&words), Some(0), "{words:?}");
    }
    assert_eq!(code(&["--help", "nothing-of-that-name"]), Some(1));
    assert_eq!(code(&[]), Some(1));
    let refused = command().arg("-N").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr)
            .contains("'-N' is an option of HAProxy that this program refuses")
    );
}

/// Whoever waits for the file, or sends a signal to the process in it, finds none that never served.
#[test]
fn a_start_that_fails_leaves_the_pidfile_as_it_was() {
    let folder = std::env::temp_dir().join(format!("manylane-pidfile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (config, pidfile) = (folder.join("cfg"), folder.join("pid"));
    let socket = folder.join("socket");
    let text = format!(
        "global\n chroot /nonexistent/folder\nlisten l\n bind {}\n timeout client 1s\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let starts = || {
        let said = command().arg("-f").arg(&config).arg("-p").arg(&pidfile).output().unwrap();
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stderr).contains("chroot"), "{said:?}");
    };
    starts();
    assert!(!pidfile.exists());
    std::fs::write(&pidfile, "4711\n").unwrap();
    starts();
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap(), "4711\n");
    std::fs::remove_dir_all(&folder).unwrap();
}
