//! Configurations that would exhaust memory or descriptors: each is refused soon, with a sentence.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;

const DEFAULTS: &str = "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n";

/// Messages about a file with these lines, and the number of its listeners.
fn said(text: &str) -> (Vec<String>, usize) {
    let mut sources = Sources::new();
    sources.add("test.cfg", format!("{DEFAULTS}{text}")).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    let listeners = generation.frontends.iter().map(|frontend| frontend.listeners.len()).sum();
    let said = loaded.found.found().iter();
    (said.map(|one| format!("{:?}: {}", one.pos.map(|pos| pos.line), one.message)).collect(), listeners)
}

#[test]
fn ranges_of_ports_are_bounded_before_there_are_listeners() {
    let ranges = |n: usize| vec!["127.0.0.1:1-65535"; n].join(",");
    let (found, listeners) = said(&format!("frontend f\n bind {}\n", ranges(4)));
    assert_eq!((found.len(), listeners), (0, 4 * 65_535), "{found:?}");
    let lines = format!(" bind {}\n", ranges(200)).repeat(2);
    let (found, listeners) = said(&format!("frontend f\n{lines}"));
    assert_eq!(listeners, 4 * 65_535);
    let bound = "expected at most 262144 listeners, found more: a range of ports has one for each";
    assert_eq!(found, [format!("Some(7): 'bind' : {bound}"), format!("Some(8): 'bind' : {bound}")]);
}

#[test]
fn a_file_of_answers_is_in_memory_once_and_no_pipe() {
    let folder = std::env::temp_dir().join(format!("manylane-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = folder.join("page").display().to_string();
    std::fs::write(&page, format!("HTTP/1.0 503 no\r\n\r\n{}", "x".repeat((1 << 20) - 19))).unwrap();
    // Together a hundred copies would exceed the limit of all files.
    let rule = format!(" http-request return status 200 content-type a/b file {page} if {{ path /x }}\n");
    let file = format!(" errorfile 503 {page}\n");
    let (found, _) = said(&format!("listen l\n bind 127.0.0.1:1\n{}{file}", rule.repeat(100)));
    assert_eq!(found, Vec::<String>::new());
    let backends: String = (0..100).map(|n| format!("backend b{n}\n{file}")).collect();
    let (found, _) = said(&format!("listen l\n bind 127.0.0.1:1\n{backends}"));
    assert_eq!(found, Vec::<String>::new());
    // Formats made from files count for each rule.
    let rule = rule.replace(" file ", " lf-file ");
    let (found, _) = said(&format!("listen l\n bind 127.0.0.1:1\n{}", rule.repeat(70)));
    assert!(found[0].starts_with("Some(72): "), "the first after 64: {found:?}");
    assert!(
        found[0].ends_with("expected at most 67108864 bytes in all files of answers, found more"),
        "{found:?}"
    );
    assert_eq!(found.len(), 4, "of six that are alike: {found:?}");

    let pipe = folder.join("pipe").display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for line in [
        format!("errorfile 503 {pipe}"),
        format!("http-request return content-type a/b file {pipe}"),
        format!("http-request deny if {{ path -f {pipe} }}"),
        format!("http-request set-path %[path,map({pipe})]"),
    ] {
        let (found, _) = said(&format!("listen l\n bind 127.0.0.1:1\n {line}\n"));
        assert!(found.len() == 1 && found[0].contains("expected a file, found a pipe"), "{line}: {found:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_order_of_a_certificate_has_at_most_100_names() {
    let found = |names: usize| {
        let names: Vec<_> = (0..names).map(|n| format!("n{n}.test")).collect();
        let lines = format!(
            "acme x\n directory https://a.test/d\n challenge dns-01\ncrt-store\n load crt /none.pem acme x \
             domains {}\n",
            names.join(",")
        );
        said(&lines).0.into_iter().filter(|message| message.contains("'domains'")).collect::<Vec<_>>()
    };
    assert_eq!(found(100), Vec::<String>::new());
    assert_eq!(found(101), ["Some(10): 'domains' has at most 100 names, found 101"]);
}
