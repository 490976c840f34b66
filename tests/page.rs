//! The form of the statistics page (`stats admin`), and access to the page (`stats http-request`).

use crate::common;

use common::{DEFAULTS, Manylane, connect, fd, listener};
use std::io::{Read, Write};
use std::net::SocketAddr;

fn start(more: &str) -> (Manylane, SocketAddr) {
    let (web, address) = listener();
    let program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten page\n bind {}\n retries 0\n stats uri /stats\n{more} server own \
            127.0.0.1:9\nbackend back\n server a 127.0.0.1:9\n server b 127.0.0.1:9 disabled\n",
        fd(&web)
    ));
    (program, address)
}

/// The whole response to a request; the connection closes.
fn ask(address: SocketAddr, head: &str, body: &str) -> String {
    let mut client = connect(address);
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client
        .write_all(format!("{head}\r\nHost: x\r\nConnection: close\r\n{length}\r\n{body}").as_bytes())
        .unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_form_changes_servers_and_the_page_tells_what_became_of_it() {
    let (_program, address) = start(" stats admin if { src 127.0.0.0/8 } !{ req.hdr(x-reader) -m found }\n");
    let page = ask(address, "GET /stats HTTP/1.1", "");
    for part in [
        "<form method=\"post\">",
        "<input type=\"checkbox\" name=\"s\" value=\"a\">",
        "<option value=\"maint\">",
        "<input type=\"hidden\" name=\"b\" value=\"#",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("<form method=\"post\">").count(), 2, "one for each proxy");
    assert_eq!(page.matches("</form>").count(), 3, "and one for the scope");
    assert!(!ask(address, "GET /stats;csv HTTP/1.1", "").contains("form"));
    // As in HAProxy, also for an absolute target.
    let typed = ask(address, "GET http://x/stats;typed HTTP/1.1", "");
    assert!(typed.contains(":str:back\n") && !typed.contains("svname,"), "{typed}");
    assert!(ask(address, "GET http://x/stats HTTP/1.1", "").contains("<form method"));
    // Item 69 of haproxy-today.
    for part in
        ["s MAINT</td>", "> all</label>", "<label>Scope ", "<span class=down>down</span>", "{color:#8cf}"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let scoped = ask(address, "GET /stats?scope=bac HTTP/1.1", "");
    assert!(scoped.contains("value=\"bac\"") && !scoped.contains("<caption>page"), "{scoped}");
    assert!(
        ask(address, "GET /stats;json-schema HTTP/1.1", "")
            .contains("http://json-schema.org/draft-04/schema#")
    );
    // A user without rights gets no form, and cannot send one.
    let read = ask(address, "GET /stats HTTP/1.1\r\nX-Reader: 1", "");
    assert!(!read.contains("<form method") && !read.contains("checkbox"), "{read}");
    let status = |server: &str| {
        let table = ask(address, "GET /stats;csv HTTP/1.1", "");
        table
            .lines()
            .find(|line| line.starts_with(&format!("back,{server},")))
            .unwrap()
            .split(',')
            .nth(17)
            .unwrap()
            .to_owned()
    };
    let sent = |head: &str, body: &str| {
        let answer = ask(address, head, body).to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 303"), "{answer}");
        answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned()
    };
    assert_eq!(sent("POST /stats HTTP/1.1\r\nX-Reader: 1", "s=a&action=maint&b=back"), "/stats;st=deny");
    assert_eq!(status("a"), "no check");
    assert_eq!(sent("POST /stats HTTP/1.1", "s=a&s=b&action=maint&b=back"), "/stats;st=done");
    assert_eq!((status("a"), status("b")), ("MAINT".into(), "MAINT".into()));
    assert_eq!(
        sent("POST /stats;up;norefresh HTTP/1.1", "b=%23&s=a&action=ready"),
        "/stats;st=errp;up;norefresh"
    );
    assert_eq!(sent("POST /stats HTTP/1.1", "b=back&s=a&s=&action=ready"), "/stats;st=part");
    assert_eq!(status("a"), "no check");
    // A form larger than a buffer is ignored.
    let large = format!("{}&action=maint&b=back", "s=a&".repeat(10_000));
    assert_eq!(sent("POST /stats HTTP/1.1", &large), "/stats;st=excd");
    assert_eq!(status("a"), "no check");
    assert_eq!(sent("POST /stats HTTP/1.1", "\0\u{1}&&==%%%&\u{7f}"), "/stats;st=none");
    for (word, text) in [("DONE", "Done."), ("DENY", "only be read"), ("<b>", "not known")] {
        let page = ask(address, &format!("GET /stats;st={word} HTTP/1.1"), "");
        assert!(page.contains(text) && !page.contains("<b>x"), "{word}: {page}");
    }
    // The page accepts no other methods.
    assert!(ask(address, "DELETE /stats HTTP/1.1", "").starts_with("HTTP/1.1 503"));
}

#[test]
fn rules_say_who_may_see_the_page() {
    let (_program, address) = start(
        " stats http-request deny if { req.hdr(x-bad) -m found }\n stats http-request allow if { \
            req.hdr(x-good) -m found }\n \
         stats http-request auth realm \"so and so\"\n",
    );
    assert!(ask(address, "GET /stats HTTP/1.1\r\nX-Good: 1", "").starts_with("HTTP/1.1 200"));
    assert!(ask(address, "GET /stats HTTP/1.1\r\nX-Good: 1\r\nX-Bad: 1", "").starts_with("HTTP/1.1 403"));
    let requested = ask(address, "GET /stats HTTP/1.1", "");
    assert!(
        requested.starts_with("HTTP/1.1 401")
            && requested.to_ascii_lowercase().contains("basic realm=\"so and so\""),
        "{requested}"
    );
    assert!(ask(address, "POST /stats HTTP/1.1", "s=a&action=maint&b=back").starts_with("HTTP/1.1 401"));
}

/// A form may change only what its page shows, and must come from that page.
#[test]
fn a_form_of_another_site_or_about_what_is_not_shown_changes_nothing() {
    // Rules that edit fields do not affect the check of the origin.
    let (_program, address) = start(
        " http-request set-header Host inside.test\n http-request set-header Origin http://inside.test\n \
            stats admin if TRUE\n stats scope back\n",
    );
    let post = |more: &str, form: &str| {
        let answer = ask(address, &format!("POST /stats HTTP/1.1{more}"), form);
        assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
        let location = answer
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("location: ").map(str::to_owned));
        location.unwrap().trim_end().to_owned()
    };
    let drain = "s=a&action=drain&b=back";
    for site in ["cross-site", "same-site", "same-origin, cross-site"] {
        assert_eq!(post(&format!("\r\nSec-Fetch-Site: {site}"), drain), "/stats;st=deny");
    }
    // Browsers send `Sec-Fetch-Site` only to HTTPS and to localhost.
    for origin in ["http://evil.test", "null", "http://x.evil.test", "x"] {
        assert_eq!(post(&format!("\r\nOrigin: {origin}"), drain), "/stats;st=deny", "{origin}");
    }
    let own = "s=own&action=drain&b=page";
    assert_eq!(post("", own), "/stats;st=errp", "the page does not show it");
    let shown = |what: &str| ask(address, "GET /stats;csv HTTP/1.1", "").contains(what);
    assert!(!shown("DRAIN"));
    // `Sec-Fetch-Site: same-origin` is enough, even if a proxy has changed `Host` or the page hides its
    // origin.
    for site in [
        "",
        "\r\nSec-Fetch-Site: same-origin",
        "\r\nSec-Fetch-Site: none",
        "\r\nOrigin: http://X",
        "\r\nSec-Fetch-Site: same-origin\r\nOrigin: https://outside.test",
        "\r\nSec-Fetch-Site: same-origin\r\nOrigin: null",
    ] {
        assert_eq!(post(site, drain), "/stats;st=done");
        assert!(shown("DRAIN"));
        assert_eq!(post(site, "s=a&action=ready&b=back"), "/stats;st=done");
    }
}

/// The page exceeds the socket buffers: a thread writes what fits, the lane the rest.
#[test]
fn a_large_page_comes_whole_to_a_client_that_reads_slowly_and_is_counted() {
    const SERVERS: usize = 1_500;
    let (_program, address) = start(&format!(" server-template s 1-{SERVERS} 127.0.0.1:9\n"));
    let mut received = 0;
    for version in ["1.1", "1.0"] {
        let mut client = connect(address);
        write!(client, "GET /stats;typed HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let (mut answer, mut room) = (Vec::new(), [0; 4_096]);
        loop {
            let length = client.read(&mut room).unwrap();
            if length == 0 {
                break;
            }
            answer.extend_from_slice(&room[..length]);
            manylane_tests::look_again();
        }
        received += answer.len();
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = if version == "1.1" { unchunked(&answer[head..]) } else { answer[head..].to_vec() };
        assert!(body.len() > 2 << 20, "{} bytes", body.len());
        let body = String::from_utf8(body).unwrap();
        let names = body.lines().filter(|line| line.contains(".1.svname.1:")).count();
        assert_eq!(names, SERVERS + 6, "of servers, and of the sides of two proxies");
        assert!(body.lines().all(|line| line.split('.').count() > 4 && line.contains(':')));
        assert!(body.ends_with('\n'));
    }
    let table = ask(address, "GET /stats;csv HTTP/1.1", "");
    let line = table.lines().find(|line| line.starts_with("page,FRONTEND,")).unwrap();
    assert_eq!(line.split(',').nth(9), Some(&*received.to_string()), "what was sent is counted");
}

/// The contents of chunks; checks that the last chunk is there.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        let (data, rest) = bytes[line + 2..].split_at(size);
        body.extend_from_slice(data);
        bytes = rest.strip_prefix(b"\r\n").unwrap();
        if size == 0 {
            assert!(bytes.is_empty());
            return body;
        }
    }
}
