//! Services with fixed dialogues: their requests, and the results of their answers, however they are cut. The
//! expected results were recorded from HAProxy 3.2 for the same bytes, except where a line says otherwise.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use manylane_buf::Cluster;
use manylane_check::{CheckResult, NextAction, NoExpressions, Script, Status, ldap, mysql, pgsql, smtp, tls};
use proptest::prelude::*;

/// Plays a server that sends `hello`, answers each send with the next of `answers`, in pieces of `piece`
/// bytes, and closes after the last.
fn play(script: &Script, hello: &[u8], answers: &[&[u8]], piece: usize) -> (Vec<u8>, CheckResult) {
    let (mut sent, mut answers) = (Vec::new(), answers.iter());
    let mut run = script.run(true);
    let mut coming = hello.to_vec();
    loop {
        match run.ask(&mut NoExpressions) {
            NextAction::Connect { .. } => run.connected(),
            NextAction::Send(bytes) => {
                sent.extend_from_slice(&bytes);
                run.sent();
                coming.extend_from_slice(answers.next().copied().unwrap_or_default());
            }
            NextAction::Receive if coming.is_empty() => run.received(None),
            NextAction::Receive => {
                let now: Vec<u8> = coming.drain(..piece.min(coming.len())).collect();
                run.received(Some(Cluster::with(&now).unwrap().into_segment()));
            }
            NextAction::Done(result) => return (sent, result),
            NextAction::Pass(_) => unreachable!("no HTTP/2"),
        }
    }
}

/// Returns the result, which must not depend on the pieces.
fn result_of(script: &Script, hello: &[u8], answers: &[&[u8]]) -> (Status, Option<i64>, String) {
    let whole = play(script, hello, answers, usize::MAX).1;
    let longest = answers.iter().map(|answer| answer.len()).chain([hello.len()]).max().unwrap_or(0);
    for piece in 1..=longest {
        assert_eq!(play(script, hello, answers, piece).1, whole, "in pieces of {piece}");
    }
    (whole.status, whole.code, whole.info.into())
}

fn mysql_packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..3], &[sequence], body].concat()
}

#[test]
fn a_mysql_server_is_greeted_by_and_logged_in_to() {
    let greeting = mysql_packet(0, b"\x0a5.5.5-x\0\x01\0\0\0abcdefgh\0\xff\xf7\x08\x02\0\x0f\x80");
    let (granted, other_way) = (mysql_packet(2, b"\0\0\0\x02\0\0\0"), mysql_packet(2, b"\xfe\0"));
    let denied = mysql_packet(2, b"\xff\x15\x04#28000Access denied");
    let blocked = mysql_packet(0, b"\xff\x69\x04Host blocked");
    let (plain, login) = (mysql::script(None), mysql::script(Some((b"hap", mysql::Login::Post41))));
    let (ok, sts, rsp) = (Status::L7Ok, Status::L7Sts, Status::L7Rsp);
    type Case<'a> = (&'a Script, &'a [u8], &'a [u8], Status, Option<i64>, &'a str);
    let cases: &[Case<'_>] = &[
        (&plain, &greeting, b"", ok, Some(0), "5.5.5-x"),
        (&plain, &blocked, b"", sts, Some(1129), "Host blocked"),
        (&plain, b"\x05\0", b"", rsp, None, ""),
        (&plain, &greeting[..20], b"", rsp, None, ""),
        (&plain, b"", b"", rsp, None, "TCPCHK got an empty response at step 2"),
        (&plain, b"HTTP/1.0 400 Bad\r\n", b"", rsp, None, ""),
        (&plain, &mysql_packet(0, b""), b"", rsp, None, ""), // HAProxy reads past the packet
        (&plain, &mysql_packet(0, b"\xff"), b"", rsp, None, ""), // the same
        (&login, &greeting, &granted, ok, Some(0), "5.5.5-x"),
        (&login, &greeting, &other_way, ok, Some(0), "5.5.5-x"),
        (&login, &greeting, &denied, sts, Some(1045), "#28000Access denied"),
        (&login, &greeting, b"", rsp, None, ""),
        (&login, &blocked, b"", sts, Some(1129), "Host blocked"),
    ];
    for (script, hello, answer, status, code, info) in cases {
        assert_eq!(
            result_of(script, hello, &[answer]),
            (*status, *code, (*info).to_owned()),
            "{hello:?} {answer:?}"
        );
    }
    let (sent, _) = play(&login, &greeting, &[&granted], 7);
    assert_eq!((&sent[..4], &sent[36..]), (&b"%\0\0\x01"[..], &b"hap\0\0\x01\0\0\0\x01"[..]));
    let (sent, _) = play(&mysql::script(Some((b"hap", mysql::Login::Pre41))), &greeting, &[&granted], 7);
    assert_eq!(sent, b"\x0a\0\0\x01\0\x80\0\0\x01hap\0\0\x01\0\0\0\x01");
}

#[test]
fn a_postgresql_server_would_hear_a_password_or_says_what_is_wrong() {
    let script = pgsql::script(b"hap");
    let (rsp, sts) = (Status::L7Rsp, Status::L7Sts);
    let good = (Status::L7Ok, Some(0), "PostgreSQL server is ok");
    let unknown = (sts, Some(0), "PostgreSQL unknown error");
    type Case = (&'static [u8], (Status, Option<i64>, &'static str));
    let cases: &[Case] = &[
        (b"R\0\0\0\x08\0\0\0\0", good),
        (b"R\0\0\0\x0c\0\0\0\x05abcd", good),
        (b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0", good),
        (b"E\0\0\0\x30SFATAL\0C28000\0Mno such role\0\0", (rsp, None, "FATAL")),
        (b"E\0\0", (rsp, None, "")),
        (b"HTTP/1.0 400 Bad", unknown),
        (b"R\0\0", unknown),
        (b"R\0\0\0\x08\0\0\0\x01", unknown),
        (b"", (sts, Some(0), "PostgreSQL unknown error")),
    ];
    for (answer, (status, code, info)) in cases {
        assert_eq!(result_of(&script, b"", &[answer]), (*status, *code, (*info).to_owned()), "{answer:?}");
    }
    assert_eq!(play(&script, b"", &[b""], 1).0, b"\0\0\0\x12\0\x03\0\0user\0hap\0\0");
}

#[test]
fn a_mail_server_greets_is_greeted_and_left() {
    let script = smtp::script(b"EHLO", b"mydomain.org");
    let (ok, sts, rsp) = (Status::L7Ok, Status::L7Sts, Status::L7Rsp);
    let ready: &[u8] = b"220 mail ready\r\n";
    type Case<'a> = (&'a [u8], &'a [&'a [u8]], Status, Option<i64>, &'a str);
    let cases: &[Case<'_>] = &[
        (ready, &[b"250 mail\r\n", b"221 bye\r\n"], ok, Some(221), "bye"),
        (ready, &[b"250-mail\r\n250-SIZE\r\n250 OK\r\n", b"221 bye\r\n"], ok, Some(221), "bye"),
        (b"220\r\n", &[b"250\r\n", b"221\r\n"], ok, Some(221), ""),
        (b"554 no service\r\n", &[], sts, Some(554), "no service"),
        (b"SSH-2.0-x\r\n", &[], rsp, None, "SSH-2.0-x"),
        (b"220-mail\r\n220 ready\r\n", &[], rsp, None, "220-mail"),
        (b"22", &[], rsp, None, "22"),
        (b"", &[], rsp, None, ""),
        (ready, &[b""], sts, Some(0), ""),
        (ready, &[b"250 x\r\n", b""], sts, Some(0), ""),
        (ready, &[b"250 a\r\n", b"500 stay\r\n"], sts, Some(500), "stay"),
        // HAProxy waits for more until its timeout.
        (ready, &[b"500 what\r\n"], sts, Some(500), "what"),
        (ready, &[b"250-a\r\n500 b\r\n"], sts, Some(500), "b"),
        (ready, &[b"250-a\r\n"], sts, Some(0), ""),
    ];
    for (hello, answers, status, code, info) in cases {
        assert_eq!(
            result_of(&script, hello, answers),
            (*status, *code, (*info).to_owned()),
            "{hello:?} {answers:?}"
        );
    }
    assert_eq!(play(&script, ready, &[b"250 a\r\n", b"221 b\r\n"], 3).0, b"EHLO mydomain.org\r\nQUIT\r\n");
}

#[test]
fn an_ldap_server_answers_a_bind() {
    let script = ldap::script();
    let (ok, sts, rsp) = (Status::L7Ok, Status::L7Sts, Status::L7Rsp);
    let rfc = "See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9";
    let other = "Not LDAPv3 protocol";
    let cases: &[(&[u8], Status, Option<i64>, &str)] = &[
        (b"0\x0c\x02\x01\x01a\x07\x0a\x01\0\x04\0\x04\0", ok, Some(0), "Success"),
        (b"0\x84\0\0\0\x10\x02\x01\x01a\x84\0\0\0\x07\x0a\x01\0\x04\0\x04\0", ok, Some(0), "Success"),
        (b"0\x0c\x02\x01\x01a\x07\x0a\x01\x35\x04\0\x04\0", sts, Some(53), rfc),
        (b"0\x12\x02\x01\x01a\x0d\x0a\x01\x31\x04\0\x04\x06sorry!", sts, Some(49), rfc),
        (b"0\x0c\x02\x01\x02a\x07\x0a\x01\0\x04\0\x04\0", rsp, None, other), // of another message
        (b"0\x0c\x02\x01\x01b\x07\x0a\x01\0\x04\0\x04\0", rsp, None, other), // of another operation
        (b"0\x0c\x02\x01\x01a\x87\x0a\x01\0\x04\0\x04\0", rsp, None, other),
        (b"0\x80\x02\x01\x01a\x07\x0a\x01\0\x04\0\x04\0", rsp, None, other),
        (b"HTTP/1.0 400 Bad Request\r\n", rsp, None, other),
        (b"0\x0c\x02\x01\x01a\x07\x0a", rsp, None, ""),
        (b"0\xff", rsp, None, other),
        (b"", rsp, None, "Not LDAPv3 protocol"),
    ];
    for (answer, status, code, info) in cases {
        assert_eq!(result_of(&script, b"", &[answer]), (*status, *code, (*info).to_owned()), "{answer:?}");
    }
    assert_eq!(play(&script, b"", &[b""], 1).0, b"0\x0c\x02\x01\x01`\x07\x02\x01\x03\x04\0\x80\0");
}

#[test]
fn tls_is_an_alert_or_a_handshake() {
    let script = tls::script();
    let cases: &[(&[u8], Status, &str)] = &[
        (b"\x16\x03\0\0\x4a\x02", Status::L6Ok, ""),
        (b"\x15\x03\0\0\x02\x02\x28", Status::L6Ok, ""),
        (b"\x16\x03", Status::L6Ok, ""),
        (b"HTTP/1.0 400\r\n", Status::L6Rsp, ""),
        (b"", Status::L6Rsp, "TCPCHK got an empty response at step 2"),
    ];
    for (answer, status, info) in cases {
        assert_eq!(result_of(&script, b"", &[answer]), (*status, None, (*info).to_owned()), "{answer:?}");
    }
    // The lengths in a record are right: that of the hello, and that of its ciphers.
    let (sent, _) = play(&script, b"", &[b""], 1);
    assert_eq!(
        (&sent[..3], u16::from_be_bytes([sent[3], sent[4]])),
        (&b"\x16\x03\0"[..], sent.len() as u16 - 5)
    );
    assert_eq!((sent[5], usize::from(sent[8])), (1, sent.len() - 9));
    assert_eq!(&sent[44..48], [0, 78, 0, 1]);
    let mut run = script.run(true);
    run.connected();
    run.sent();
    assert_eq!(run.timed_out(), CheckResult::new(Status::L6Tout, ""));
}

proptest! {
    #[test]
    fn whatever_a_service_answers_ends_in_a_verdict_that_no_cut_changes(
        kind in 0usize..6, answer in proptest::collection::vec(any::<u8>(), 0..64), piece in 1usize..8
    ) {
        let script = match kind {
            0 => mysql::script(None),
            1 => mysql::script(Some((b"u", mysql::Login::Post41))),
            2 => pgsql::script(b"u"),
            3 => smtp::script(b"HELO", b"localhost"),
            4 => ldap::script(),
            _ => tls::script(),
        };
        let whole = play(&script, b"", &[&answer], usize::MAX).1;
        prop_assert_eq!(play(&script, b"", &[&answer], piece).1, whole);
    }
}
