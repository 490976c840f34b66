//! Alerts by mail (`email-alert`): what a mail server gets from Manylane and from HAProxy.

use crate::common;

use common::watch::{Played, Syslog, both};
use common::{Manylane, TIMEOUT, origin};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};

/// What a mail server heard on one connection: commands, and the mail with its lines joined by `|`.
type Heard = Vec<String>;

/// A mail server, which answers receivers with `answer`.
fn mail_server(answer: &'static str) -> (SocketAddr, Receiver<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if serve(stream, answer, &send).is_none() {
                return;
            }
        }
    });
    (address, heard)
}

/// `None` if nobody takes what was heard.
fn serve(mut stream: TcpStream, answer: &str, send: &Sender<Heard>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let (mut heard, mut mail) = (Heard::new(), None::<Vec<String>>);
    let mut say = |text: &str| stream.write_all(text.as_bytes()).is_ok();
    say("220 here\r\n");
    while let Some(Ok(line)) = lines.next() {
        let reply = match (&mut mail, line.as_str()) {
            (Some(all), ".") => {
                heard.push(all.join("|"));
                mail = None;
                "250 taken\r\n"
            }
            (Some(all), _) => {
                let line = if line.starts_with("Date: ") { &line[..6] } else { line.as_str() };
                let begin = line.split("check duration: ").next().unwrap_or_default();
                let end = line.split_once("ms, status: ").map_or("", |(_, end)| end);
                all.push(format!("{begin}{end}"));
                continue;
            }
            (None, command) => {
                heard.push(command.to_owned());
                match command.split(' ').next().unwrap_or_default() {
                    "DATA" => {
                        mail = Some(Vec::new());
                        "354 go on\r\n"
                    }
                    "RCPT" => answer,
                    "QUIT" => {
                        say("221 bye\r\n");
                        break;
                    }
                    _ => "250-first\r\n250 ok\r\n",
                }
            }
        };
        say(reply);
    }
    send.send(heard).ok()
}

/// A server that accepts connections and says nothing.
fn accepts() -> SocketAddr {
    origin(drop)
}

fn config(log: &Syslog, socket: &Path, mailers: &str, server: SocketAddr) -> String {
    format!(
        "global\n max-spread-checks 10ms\n stats socket {} level admin\n log {} local0\n\
         mailers m\n{mailers}\
         defaults\n timeout connect 10s\n timeout client 10s\n timeout server 10s\n log global\n \
         email-alert mailers m\n email-alert from lb@example\n email-alert to ops@example\n \
         email-alert myhostname here.example\n\
         backend usual\n server s {server} check inter 60s\n\
         backend more\n email-alert level notice\n server s {server} check inter 60s\n\
         backend most\n option log-health-checks\n email-alert level info\n \
         email-alert to other@example\n server s {server} check inter 60s\n",
        socket.display(),
        log.address(),
    )
}

/// The text of the next mail, whose envelope is the usual one.
fn text(heard: &Receiver<Heard>) -> String {
    let heard = heard.recv_timeout(TIMEOUT).unwrap();
    let [helo, from, to, data, mail, quit] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!([helo, from, data, quit], ["HELO here.example", "MAIL FROM:<lb@example>", "DATA", "QUIT"]);
    let to = to.strip_prefix("RCPT TO:<").and_then(|to| to.strip_suffix('>')).unwrap();
    let begin = format!("From: lb@example|To: {to}|Date: |Subject: [HAProxy Alert] ");
    let mail = mail.strip_prefix(&begin).unwrap_or_else(|| panic!("{mail}"));
    let (subject, body) = mail.split_once("||").unwrap();
    assert_eq!(body.trim_end_matches('|'), subject);
    format!("{to}: {subject}")
}

#[test]
fn mails_tell_of_servers_by_level_as_in_haproxy() {
    let server = accepts();
    let play = |steps: Played, [one, two]: [Receiver<Heard>; 2]| {
        let mut all = vec![text(&one)]; // the first check
        for command in [
            "set server usual/s health down",
            "set server usual/s health up",
            "set server usual/s state drain",
            "set server usual/s state ready",
            "set server more/s health down",
            "set server more/s health up",
            "set server more/s state drain",
            "set server more/s state ready",
            "set server more/s state maint",
            "set server more/s state ready",
            "set server most/s health down",
        ] {
            steps.ask(command);
        }
        all.extend((0..5).map(|_| text(&one)));
        let mut others: Vec<_> = (0..6).map(|_| text(&two)).collect();
        assert!(one.try_recv().is_err() && two.try_recv().is_err());
        all.sort(); // HAProxy has a queue for each backend
        others.sort();
        assert_eq!(others, all);
        all
    };
    // Each program has mail servers of its own.
    let servers = std::cell::RefCell::new(None);
    let config = |log: &Syslog, socket: &Path| {
        let [one, two] = [(); 2].map(|()| mail_server("250 ok\r\n"));
        let mailers = format!(" timeout mail 2s\n mailer one {}\n mailer two {}\n", one.0, two.0);
        servers.replace(Some([one.1, two.1]));
        config(log, socket, &mailers, server)
    };
    let (ours, theirs) = both(config, |steps| play(steps, servers.take().unwrap()));
    let expected = [
        "ops@example: Server more/s enters drain state",
        "ops@example: Server more/s is DOWN, changed from CLI",
        "ops@example: Server more/s is UP, changed from CLI",
        "ops@example: Server usual/s is DOWN, changed from CLI",
        "other@example: Health check for server most/s succeeded, reason: Layer4 check passed, 3/3 UP",
        "other@example: Server most/s is DOWN, changed from CLI",
    ];
    let begins = ours.iter().zip(expected).all(|(own, begin)| own.starts_with(begin));
    assert!(ours.len() == expected.len() && begins, "{ours:#?}");
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_mail_server_that_refuses_or_is_silent_holds_nobody_up_and_is_reported() {
    let (good, mails) = mail_server("251 elsewhere\r\n");
    let (bad, refused) = mail_server("550 \x07no\r\n");
    let silent = origin(|mut stream| drop(std::io::Read::read(&mut stream, &mut [0])));
    let log = Syslog::new();
    let folder = common::Folder::new();
    let socket = folder.0.join("cli");
    let mailers = format!(
        " timeout mail 2s\n mailer silent {silent}\n mailer gone {}\n mailer bad {bad}\n \
         mailer good {good}\n",
        common::nobody()
    );
    let config = config(&log, &socket, &mailers, accepts());
    let program = Manylane::start_ready(&config);
    common::watch::ask(&socket, "set server usual/s health down");
    let first = [text(&mails), text(&mails)];
    assert!(first.iter().any(|text| text.contains("Server usual/s is DOWN")), "{first:?}");
    let mut heard = [(); 2].map(|()| refused.recv_timeout(TIMEOUT).unwrap());
    heard.sort();
    assert_eq!(heard[1], ["HELO here.example", "MAIL FROM:<lb@example>", "RCPT TO:<other@example>"]);
    let mut reported: Vec<String> = (0..6).map(|_| log.wait(" an alert was not sent: ")).collect();
    reported.iter_mut().for_each(|line| *line = line.split_once("Mailer ").unwrap().1.to_owned());
    reported.sort();
    assert!(
        reported[0].starts_with("m/bad: an alert was not sent: the reply to 'RCPT TO:<"),
        "{reported:#?}"
    );
    assert!(reported[0].ends_with("' is '550 \\u{7}no'."), "{reported:#?}");
    assert!(reported[2].starts_with("m/gone: an alert was not sent: 127."), "{reported:#?}");
    assert!(
        reported[4].starts_with("m/silent: an alert was not sent: no reply to its greeting: "),
        "{reported:#?}"
    );
    drop(program);
}

#[test]
fn incomplete_settings_of_alerts_are_reported() {
    let of = |more: &str| {
        let config = format!(
            "mailers m\n mailer a 127.0.0.1:25\ndefaults\n timeout connect 1s\n timeout client 1s\n \
             timeout server 1s\n{more}"
        );
        let output = common::check(&config, &[]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (works, reported) = of("backend b\n email-alert mailers m\n email-alert to a@example\n");
    assert!(reported.contains("'email-alert' sends nothing: 'email-alert from', "), "{works} {reported}");
    let whole = "email-alert mailers m\n email-alert to a@example\n email-alert from b@example\n";
    let (_, reported) = of(&format!("backend b\n {whole}"));
    assert!(
        reported.contains("'email-alert mailers' of backend 'b' sends mails here, but not with"),
        "{reported}"
    );
    let (works, reported) = of("frontend f\n bind 127.0.0.1:0\n email-alert level info\n");
    assert!(reported.contains("'email-alert' has no effect here"), "{works} {reported}");
    let (works, reported) = of("backend b\n email-alert mailers other\n");
    assert!(!works && reported.contains("other"), "{reported}");
    let (works, reported) =
        of("backend b\n email-alert mailers m\n email-alert to \"a\rb\"\n email-alert from b@example\n");
    assert!(
        !works && reported.contains("'email-alert' expects visible ASCII, found 'a\\x0db'"),
        "{reported}"
    );
}
