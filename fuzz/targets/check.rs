//! Responses to health checks: the result of a check does not depend on how the response is cut, and fits in
//! a log line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_buf::Cluster;
use manylane_check::{
    CheckResult, Expect, HttpRequest, NextAction, NoExpressions, Pattern, Script, Status, StatusRanges, Step,
    Text, agent, http, ldap, mysql, pgsql, redis, smtp, tcp, tls,
};
use manylane_expr::Regex;
use std::sync::LazyLock;

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text.as_bytes(), false).expect("it is one");
    let bytes = |text: &str| Pattern::Bytes(text.as_bytes().into());
    let expect = |pattern, negated| Step::expect(Expect { negated, ..Expect::new(pattern, 2) });
    let after = |sent: Step, steps: Vec<Step>| std::iter::once(sent).chain(steps).collect::<Vec<_>>();
    let tcp = |steps| Script::new(after(Step::send(*b"?"), steps));
    let http = |method: &[u8], steps| {
        let request = HttpRequest { method: method.into(), ..HttpRequest::default() };
        http::script(after(request.step(), steps), true, manylane_h1::Leniency::NONE)
    };
    let field = Pattern::Field {
        name: Text::Begins(b"x-".into()),
        value: Some(Text::Has(b"a".into())),
        whole: false,
    };
    vec![
        agent::script(b""),
        redis::script(),
        mysql::script(None),
        mysql::script(Some((b"user", mysql::Login::Post41))),
        pgsql::script(b"user"),
        smtp::script(b"HELO", b"localhost"),
        ldap::script(),
        tls::script(),
        tcp(vec![expect(bytes("good"), false), expect(Pattern::Regex(regex("^go+d")), false)]),
        tcp(vec![expect(bytes("bad"), true), expect(Pattern::HexRegex(regex("^0[0-9]FF")), true)]),
        tcp(vec![expect(Pattern::Binary(tcp::from_hex(b"00ff").expect("it is")), false)]),
        http(b"GET", vec![]),
        http(b"HEAD", vec![expect(field, false)]),
        http(
            b"GET",
            vec![expect(Pattern::Status(StatusRanges::usual()), false), expect(bytes("good"), false)],
        ),
        http(b"GET", vec![expect(Pattern::Regex(regex("b[a-c]d")), true)]),
        Script::connect(),
    ]
});

/// Returns the result of a check after `said` arrived in pieces of `piece` bytes and the connection closed.
fn play(script: &Script, mut said: &[u8], piece: usize) -> CheckResult {
    let mut run = script.run(true);
    loop {
        match run.ask(&mut NoExpressions) {
            NextAction::Connect { .. } => run.connected(),
            NextAction::Send(_) => run.sent(),
            NextAction::Pass(_) => {} // the result is not reported
            NextAction::Receive if said.is_empty() => run.received(None),
            NextAction::Receive => {
                let (now, rest) = said.split_at(piece.min(said.len()));
                for part in now.chunks(4000) {
                    run.received(Some(Cluster::with(part).expect("memory").into_segment()));
                }
                said = rest;
            }
            NextAction::Done(result) => return result,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, piece, said @ ..] = data else { return };
    let script = &SCRIPTS[usize::from(*kind) % SCRIPTS.len()];
    let whole = play(script, said, usize::MAX);
    let cut = play(script, said, usize::from(*piece).max(1));
    // A check that sends several times may read the rest of one response as the next.
    let sends = script.steps().iter().filter(|step| matches!(step, Step::Send(_))).count();
    assert!(sends > 1 || whole == cut, "{whole:?} {cut:?}");
    let line = String::from_utf8_lossy(said);
    let heard = agent::AgentReply::read(&line);
    let _ = (heard.weight.map(|word| agent::weight(word, 256)), heard.maxconn.map(agent::maxconn));
    for result in [whole, cut, heard.result(None)] {
        assert!(
            result.info.len() <= 160 && result.info.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{result:?}"
        );
        assert!(
            result.status != Status::Ini
                && Status::by_name(result.status.name().as_bytes()) == Some(result.status)
        );
    }
});
