//! Runs of scripts: the bytes that they send, and the results of answers, however they are cut.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use manylane_buf::Cluster;
use manylane_check::{
    CheckResult, Exchange, Expect, HttpRequest, MOST_BYTES, NextAction, NoExpressions, Pattern, Script,
    Status, StatusRanges, Step, Text, http, redis, tcp,
};
use manylane_expr::Regex;
use manylane_h1::Leniency;

fn give(run: &mut Exchange<'_>, bytes: &[u8]) {
    run.received(Some(Cluster::with(bytes).unwrap().into_segment()));
}

/// Plays a server that answers each send with the next of `answers`, in pieces of `piece` bytes, and closes
/// after the last. Returns the received bytes and the result.
fn play(script: &Script, serves: bool, answers: &[&[u8]], piece: usize) -> (Vec<u8>, CheckResult) {
    let (mut sent, mut answers) = (Vec::new(), answers.iter());
    let mut run = script.run(serves);
    let mut coming: Vec<u8> = Vec::new();
    loop {
        match run.ask(&mut NoExpressions) {
            NextAction::Connect { .. } => run.connected(),
            NextAction::Send(bytes) => {
                sent.extend_from_slice(&bytes);
                run.sent();
                coming = answers.next().map(|answer| answer.to_vec()).unwrap_or_default();
            }
            NextAction::Receive if coming.is_empty() => run.received(None),
            NextAction::Receive => {
                let now: Vec<u8> = coming.drain(..piece.min(coming.len())).collect();
                give(&mut run, &now);
            }
            NextAction::Done(result) => return (sent, result),
            NextAction::Pass(_) => unreachable!("no HTTP/2"),
        }
    }
}

/// Plays pieces of all sizes: the result must not depend on them.
fn result_of(script: &Script, serves: bool, answers: &[&[u8]]) -> CheckResult {
    let whole = play(script, serves, answers, usize::MAX).1;
    let longest = answers.iter().map(|answer| answer.len()).max().unwrap_or(0);
    for piece in 1..=longest {
        assert_eq!(play(script, serves, answers, piece).1, whole, "in pieces of {piece}");
    }
    whole
}

fn expect(pattern: Pattern, negated: bool) -> Step {
    Step::expect(Expect { negated, ..Expect::new(pattern, 2) })
}

fn bytes(text: &str) -> Pattern {
    Pattern::Bytes(text.as_bytes().into())
}

/// Returns the bytes that are sent for a request.
fn sent(request: HttpRequest) -> Vec<u8> {
    let script = http::script(vec![request.step()], false, Leniency::NONE);
    play(&script, true, &[b"HTTP/1.0 200 OK\r\n\r\n"], usize::MAX).0
}

fn get(steps: Vec<Step>) -> Script {
    let request = HttpRequest { method: (*b"GET").into(), ..HttpRequest::default() };
    let mut all = vec![request.step()];
    all.extend(steps);
    http::script(all, true, Leniency::NONE)
}

#[test]
fn statuses_are_judged_as_asked() {
    let usual = get(vec![]);
    let status =
        |text: &str| get(vec![expect(Pattern::Status(StatusRanges::read(text.as_bytes()).unwrap()), false)]);
    for (script, serves, answer, wanted, code, info) in [
        (&usual, true, "HTTP/1.0 200 OK\r\n\r\n", Status::L7Ok, Some(200), ""),
        (&usual, true, "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", Status::L7Ok, Some(302), ""),
        (
            &usual,
            true,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            Status::L7Ok,
            Some(204),
            "",
        ),
        (
            &usual,
            true,
            "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            Status::L7Sts,
            Some(101),
            "Switching",
        ),
        (&usual, true, "HTTP/1.0 503 Nope\r\n\r\n", Status::L7Sts, Some(503), "Nope"),
        (&usual, true, "HTTP/1.0 404 Gone\r\n\r\n", Status::L7OkC, Some(404), ""),
        (&usual, false, "HTTP/1.0 404 Gone\r\n\r\n", Status::L7Sts, Some(404), "Gone"),
        (&usual, true, "garbage\r\n\r\n", Status::SockErr, None, ""),
        (&usual, true, "", Status::SockErr, None, ""),
        (&usual, true, "HTTP/1.0 200 OK\r\nno colon\r\n\r\n", Status::SockErr, None, ""),
        (&status("200-299"), true, "HTTP/1.1 302 Found\r\n\r\n", Status::L7Sts, Some(302), "Found"),
        (&status("200,302"), true, "HTTP/1.1 302 Found\r\n\r\n", Status::L7Ok, Some(302), ""),
        (
            &get(vec![expect(Pattern::StatusRegex(Regex::new(b"^2", false).unwrap()), false)]),
            false,
            "HTTP/1.0 404 Nope\r\n\r\n",
            Status::L7Sts,
            Some(404),
            "Nope",
        ),
        (
            &get(vec![expect(Pattern::StatusRegex(Regex::new(b"^5", false).unwrap()), true)]),
            false,
            "HTTP/1.0 404 Nope\r\n\r\n",
            Status::L7Ok,
            Some(404),
            "",
        ),
    ] {
        let got = result_of(script, serves, &[answer.as_bytes()]);
        assert_eq!((got.status, got.code, &*got.info), (wanted, code, info), "{answer}");
    }
}

#[test]
fn bodies_are_looked_through_to_their_end() {
    let good = get(vec![expect(bytes("good"), false)]);
    let no_bad = get(vec![expect(bytes("bad"), true)]);
    let regex = get(vec![expect(Pattern::Regex(Regex::new(b"g+d", false).unwrap()), false)]);
    for (script, answer, wanted, info) in [
        (&good, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nall good.", Status::L7Ok, ""),
        (
            &good,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n2\r\nod\r\n0\r\n\r\n",
            Status::L7Ok,
            "",
        ),
        (&good, "HTTP/1.1 500 No\r\n\r\ngood", Status::L7Ok, ""), // only the body is examined
        (&good, "HTTP/1.1 200 OK\r\n\r\nbax", Status::L7Rsp, "HTTP content check did not match"),
        (
            &good,
            "HTTP/1.1 200 OK\r\n\r\n",
            Status::L7Rsp,
            "HTTP content check could not find a response body",
        ),
        // Cut short: the received part is examined.
        (
            &good,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbax",
            Status::L7Rsp,
            "HTTP content check did not match",
        ),
        (&no_bad, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbax", Status::L7Ok, ""),
        (
            &no_bad,
            "HTTP/1.1 200 OK\r\n\r\n",
            Status::L7Rsp,
            "HTTP content check could not find a response body",
        ),
        (&no_bad, "HTTP/1.1 200 OK\r\n\r\nbad", Status::L7Rsp, "HTTP check matched unwanted content"),
        (&no_bad, "HTTP/1.1 200 OK\r\n\r\nfine", Status::L7Ok, ""),
        (&regex, "HTTP/1.1 200 OK\r\n\r\n..gggd", Status::L7Ok, ""),
    ] {
        let got = result_of(script, true, &[answer.as_bytes()]);
        assert_eq!((got.status, &*got.info), (wanted, info), "{answer}");
    }
}

#[test]
fn a_connection_that_breaks_behind_an_answer_ends_it() {
    for (script, answer, wanted) in [
        (get(vec![expect(bytes("good"), false)]), &b"HTTP/1.1 200 OK\r\n\r\nba"[..], Some(Status::L7Rsp)),
        (get(vec![expect(bytes("bad"), true)]), b"HTTP/1.1 200 OK\r\n\r\nba", Some(Status::L7Ok)),
        (get(vec![expect(bytes("bad"), true)]), b"HTTP/1.1 200 OK\r\n", None),
        (Script::new(vec![Step::send(*b"x"), expect(bytes("good"), false)]), b"go", Some(Status::L7Rsp)),
        (Script::new(vec![Step::send(*b"x"), expect(bytes("good"), false)]), b"", None),
        (redis::script(), b"-LOADING", Some(Status::L7Sts)),
    ] {
        let mut run = script.run(true);
        let mut said = false;
        let got = loop {
            match run.ask(&mut NoExpressions) {
                NextAction::Connect { .. } => run.connected(),
                NextAction::Send(_) => run.sent(),
                NextAction::Receive if !said && !answer.is_empty() => {
                    said = true;
                    give(&mut run, answer);
                }
                NextAction::Receive if run.cut() => {}
                NextAction::Receive => break None,
                NextAction::Done(result) => break Some(result.status),
                NextAction::Pass(_) => unreachable!("no HTTP/2"),
            }
        };
        assert_eq!(got, wanted, "{}", String::from_utf8_lossy(answer));
    }
}

#[test]
fn no_more_than_a_buffer_of_an_answer_is_examined() {
    let far = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; MOST_BYTES], b"good".to_vec()].concat();
    let script = get(vec![expect(bytes("good"), false)]);
    assert_eq!(play(&script, true, &[&far], 4096).1.status, Status::L7Rsp);
    let near = [vec![b'x'; MOST_BYTES], b"good".to_vec()].concat();
    let script = Script::new(vec![Step::send(*b"?"), expect(bytes("good"), false)]);
    assert_eq!(play(&script, true, &[&near], 4096).1.status, Status::L7Rsp);
}

/// The answer of a server that sends single bytes is examined this many times, and then only for each KiB.
#[test]
fn an_answer_that_drips_is_examined_a_bounded_number_of_times() {
    const LOOKS: usize = 256;
    let script = Script::new(vec![Step::send(*b"?"), expect(bytes("good"), false)]);
    // Two of them come before any byte.
    for (before, found_at) in [(LOOKS - 6, LOOKS - 2), (LOOKS - 5, LOOKS - 2 + 1024)] {
        let mut run = script.run(true);
        while !matches!(run.ask(&mut NoExpressions), NextAction::Receive) {
            run.sent();
        }
        let answer = [vec![b'x'; before], b"good".to_vec(), vec![b'x'; 2048]].concat();
        let mut given = 0;
        while matches!(run.ask(&mut NoExpressions), NextAction::Receive) {
            give(&mut run, &answer[given..=given]);
            given += 1;
        }
        assert_eq!(given, found_at, "behind {before} bytes");
    }
}

#[test]
fn requests_are_written_as_asked() {
    assert_eq!(sent(HttpRequest::default()), b"OPTIONS / HTTP/1.0\r\n\r\n");
    let mut request =
        HttpRequest { method: (*b"POST").into(), uri: (*b"/b?x").into(), ..HttpRequest::default() };
    request.set_version(b"HTTP/1.1").unwrap();
    request.add(b"Host", b"example.com").unwrap();
    request.add(b"Content-Length", b"99").unwrap(); // the check has its own
    request.body = (*b"hello").into();
    assert_eq!(
        sent(request),
        b"POST /b?x HTTP/1.1\r\nhost: example.com\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"
    );
    let mut old = HttpRequest::default();
    for wrong in [&b"1.1"[..], b"HTTP/3", b"HTTP/2.1", b"HTTP/1.1 x", b"HTTP/1.1\r\nHost: x"] {
        assert!(old.set_version(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
    }
    assert_eq!(
        old.set_version(b"HTTP/1.1\r\nAuthorization: Basic c2VjcmV0").unwrap_err(),
        "expected a version such as HTTP/1.1, found 'HTTP/1.1' and more; use 'http-check send hdr <name> \
         <value>' for header fields"
    );
    assert!(old.add(b"a", b"b\r\nc").is_err());
}

#[test]
fn tcp_steps_run_in_order_and_say_where_they_failed() {
    let step = |pattern, negated, number, comment: Option<&str>| {
        Step::expect(Expect { negated, comment: comment.map(Into::into), ..Expect::new(pattern, number) })
    };
    let talk = Script::new(vec![
        Step::send(*b"HELO\r\n"),
        step(bytes("250"), false, 2, None),
        Step::send(*b"QUIT\r\n"),
        step(bytes("221"), false, 4, Some("bye")),
    ]);
    let (sent, good) = play(&talk, true, &[b"250 ok\r\n", b"221 bye\r\n"], usize::MAX);
    assert_eq!((&sent[..], good.status), (&b"HELO\r\nQUIT\r\n"[..], Status::L7Ok));
    for (answers, info) in [
        (&[&b"500 no\r\n"[..]][..], "TCPCHK did not match content '250' at step 2"),
        (&[b"250\r\n", b"500\r\n"], "TCPCHK did not match content '221' at step 4 comment: bye"),
        (&[b"250\r\n", b""], "TCPCHK got an empty response at step 4 comment: bye"),
    ] {
        let got = result_of(&talk, true, answers);
        assert_eq!((got.status, &*got.info), (Status::L7Rsp, info));
    }
    let never = Script::new(vec![Step::send(*b"?"), step(bytes("bad"), true, 2, None)]);
    assert_eq!(
        result_of(&never, true, &[b"so bad"]).info,
        "TCPCHK matched unwanted content 'bad' at step 2".into()
    );
    assert_eq!(result_of(&never, true, &[b"fine"]).status, Status::L7Ok);
    assert_eq!(result_of(&never, true, &[b""]).status, Status::L7Ok);
    let tell = Script::new(vec![Step::send(*b"hello")]);
    assert_eq!(
        play(&tell, true, &[], 1).1,
        CheckResult { code: Some(0), ..CheckResult::new(Status::L7Ok, "(tcp-check)") }
    );
    let mut run = talk.run(true);
    run.ask(&mut NoExpressions);
    run.connected();
    run.ask(&mut NoExpressions);
    run.sent();
    assert_eq!(
        run.timed_out(),
        CheckResult::new(Status::L7Tout, " at step 2 of tcp-check (expect string '250')")
    );
    assert_eq!(
        run.broke("Connection reset by peer"),
        CheckResult::new(
            Status::SockErr,
            "Connection reset by peer at step 2 of tcp-check (expect string '250')"
        )
    );
    assert_eq!(talk.run(true).timed_out().status, Status::L4Tout);
    assert_eq!(talk.run(true).broke("Connection refused").status, Status::L4Con);
}

/// Only checks that do nothing but connect share a socket, so `only_connects` must be false for a script that
/// sends, expects, connects twice or closes normally.
#[test]
fn a_script_that_only_connects_says_so() {
    assert!(Script::connect().only_connects());
    assert!(Script::new(Vec::new()).only_connects());
    for more in [Step::send(*b"PING"), Step::connect(), expect(bytes("x"), false)] {
        assert!(!Script::new(vec![Step::connect(), more]).only_connects());
    }
    assert!(!Script::new(vec![Step::polite()]).only_connects());
    assert!(!get(Vec::new()).only_connects());
}

#[test]
fn redis_answers_a_ping() {
    let script = redis::script();
    assert_eq!(
        play(&script, true, &[b"+PONG\r\n"], usize::MAX),
        (
            b"*1\r\n$4\r\nPING\r\n".to_vec(),
            CheckResult { code: Some(0), ..CheckResult::new(Status::L7Ok, "Redis server is ok") }
        )
    );
    assert_eq!(result_of(&script, true, &[b"+PONG\r\n"]).status, Status::L7Ok);
    let refused = result_of(&script, true, &[b"-NOAUTH Authentication required.\r\n"]);
    assert_eq!(
        (refused.status, refused.code, &*refused.info),
        (Status::L7Sts, Some(0), "-NOAUTH Authentication required.")
    );
    assert_eq!(result_of(&script, true, &[b"HTTP/1.0 400 Bad\r\n"]).status, Status::L7Sts);
    for (answer, info) in [(&b"+PO"[..], "+PO"), (b"", "")] {
        let got = result_of(&script, true, &[answer]);
        assert_eq!((got.status, got.code, &*got.info), (Status::L7Sts, Some(0), info));
    }
}

#[test]
fn a_step_says_how_much_it_looks_at_and_what_it_comes_to() {
    let step = |expect| Script::new(vec![Step::send(*b"?"), Step::expect(expect)]);
    let least = step(Expect { least: Some(4), ..Expect::new(bytes("good"), 2) });
    assert_eq!(result_of(&least, true, &[b"good"]).status, Status::L7Ok);
    // The check does not wait for more.
    let mut run = least.run(true);
    run.connected();
    run.sent();
    give(&mut run, b"a g");
    assert!(matches!(run.ask(&mut NoExpressions), NextAction::Receive));
    give(&mut run, b"o");
    assert!(matches!(
        run.ask(&mut NoExpressions),
        NextAction::Done(CheckResult { status: Status::L7Rsp, .. })
    ));
    let other = step(Expect {
        error: Some(Status::L7Sts),
        timeout: Some(Status::L6Tout),
        ..Expect::new(bytes("good"), 2)
    });
    let got = result_of(&other, true, &[b"bad"]);
    assert_eq!(
        (got.status, got.code, &*got.info),
        (Status::L7Sts, Some(0), "TCPCHK did not match content 'good' at step 2")
    );
    let mut run = other.run(true);
    run.connected();
    run.sent();
    assert_eq!(run.timed_out().status, Status::L6Tout);
    let hex = step(Expect::new(Pattern::HexRegex(Regex::new(b"^0[AB]FF$", false).unwrap()), 2));
    assert_eq!(result_of(&hex, true, &[b"\x0b\xff"]).status, Status::L7Ok);
    assert_eq!(result_of(&hex, true, &[b"\x0c\xff"]).status, Status::L7Rsp);
}

#[test]
fn what_is_reported_is_what_the_step_says() {
    let step = |expect| Script::new(vec![Step::expect(expect)]);
    let good = || Expect { comment: Some("cc".into()), ..Expect::new(bytes("good"), 1) };
    let play = |script: &Script, answer: &[u8]| {
        let mut run = script.run(true);
        run.connected();
        run.ask(&mut NoExpressions);
        if !answer.is_empty() {
            give(&mut run, answer);
        }
        run.received(None);
        let NextAction::Done(result) = run.ask(&mut NoExpressions) else { panic!("it is over") };
        (result.status, result.code, result.info.into_string())
    };
    let reported = |status, code, info: &str| (status, code, info.to_owned());
    assert_eq!(play(&step(good()), b"good"), reported(Status::L7Ok, Some(0), "(tcp-check)"));
    let great = step(Expect { on_success: Some("great".into()), ok: Some(Status::L7OkC), ..good() });
    assert_eq!(play(&great, b"good"), reported(Status::L7OkC, Some(0), "great"));
    let four = step(Expect { ok: Some(Status::L4Ok), ..good() });
    assert_eq!(play(&four, b"good"), reported(Status::L4Ok, None, "(tcp-check)"));
    let oops = step(Expect { on_error: Some("oops".into()), error: Some(Status::L6Rsp), ..good() });
    assert_eq!(play(&oops, b"bad"), reported(Status::L6Rsp, None, "oops comment: cc"));
}

#[test]
fn header_fields_are_looked_for_by_name_and_value() {
    let answer = b"HTTP/1.1 200 Fine\r\nContent-Length: 4\r\nX-A: one, two\r\nx-a: three\r\n\r\nbody";
    let is = |text: &str| Text::Is(text.as_bytes().into());
    let (found, missing) = ((Status::L7Ok, Some(200), ""), (Status::L7Sts, Some(200), "Fine"));
    for (name, value, whole, wanted) in [
        (is("x-a"), None, false, found),
        (is("x-b"), None, false, missing),
        (is("x-a"), Some(is("two")), false, found),
        (is("x-a"), Some(is("Two")), false, missing),
        (is("x-a"), Some(is("two")), true, missing),
        (is("x-a"), Some(is("one, two")), true, found),
        (Text::Begins((*b"x-").into()), Some(Text::Has((*b"hre").into())), false, found),
        (Text::Matches(Regex::new(b"^X", true).unwrap()), Some(Text::Ends((*b"ee").into())), true, found),
    ] {
        let shown = format!("{name:?} {value:?}");
        let script = get(vec![expect(Pattern::Field { name, value, whole }, false)]);
        let got = result_of(&script, false, &[answer]);
        assert_eq!((got.status, got.code, &*got.info), wanted, "{shown}");
    }
    let never = get(vec![expect(Pattern::Field { name: is("x-a"), value: None, whole: true }, true)]);
    assert_eq!(result_of(&never, false, &[answer]).status, Status::L7Sts);
    let step = Expect {
        error: Some(Status::L7Rsp),
        on_error: Some("oops".into()),
        ..Expect::new(Pattern::Status(StatusRanges::read(b"201").unwrap()), 2)
    };
    let got = result_of(&get(vec![Step::expect(step)]), false, &[answer]);
    assert_eq!((got.status, got.code, &*got.info), (Status::L7Rsp, None, "oops"));
}

#[test]
fn what_a_file_may_say_wrongly_is_refused() {
    for wrong in [&b""[..], b"99", b"1000", b"300-200", b"200,", b"2xx"] {
        assert!(StatusRanges::read(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
    }
    assert_eq!(&*tcp::from_hex(b"0aFf").unwrap(), [0x0a, 0xff]);
    for wrong in [&b""[..], b"0", b"0g"] {
        assert!(tcp::from_hex(wrong).is_err());
    }
}

/// `option accept-unsafe-violations-in-http-response` and `option http-strict-framing` apply to checks, too.
#[test]
fn an_answer_that_bends_the_rules_passes_where_it_may() {
    let answer: &[&[u8]] = &[b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"];
    let script = |lenient| http::script(vec![HttpRequest::default().step()], false, lenient);
    let strict = format!("{:?}", result_of(&script(Leniency::NONE), true, answer));
    let whole: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"];
    for lenient in [Leniency::USUAL, Leniency::ALL] {
        let lenient = format!("{:?}", result_of(&script(lenient), true, answer));
        assert_eq!(lenient, format!("{:?}", result_of(&script(Leniency::NONE), true, whole)));
        assert_ne!(lenient, strict);
    }
}
