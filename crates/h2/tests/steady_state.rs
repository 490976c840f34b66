//! Once warm, a stream takes nothing from the global allocator, at either end.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::Chain;
use manylane_h2::{Config, Connection, Event};
use manylane_http::{Head, Known, Version};
use std::time::Duration;

/// Aborts the test program if it is called inside of [`assert_no_alloc::assert_no_alloc`].
#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

const NOW: Duration = Duration::ZERO;

/// Carries output to the other end, which handles it.
fn carry(from: &mut Connection, to: &mut Connection, mut handle: impl FnMut(&mut Connection, Event)) {
    let mut wire = Chain::new();
    from.poll_output(&mut wire).expect("memory");
    while to.handle_input(NOW, &mut wire).expect("the rules are kept") {
        while let Some(event) = to.poll_event() {
            handle(to, event);
        }
    }
    assert!(wire.is_empty());
}

#[test]
fn a_request_with_its_response_asks_for_nothing() {
    let config = Config { fragments: true, ..Config::default() };
    let mut client = Connection::client(config, NOW).expect("memory");
    let mut server = Connection::server(config, NOW).expect("memory");
    let mut round = |number: u32| {
        let mut digits = *b"00000000";
        digits
            .iter_mut()
            .enumerate()
            .for_each(|(at, digit)| *digit += (number / 10u32.pow(at as u32) % 10) as u8);
        let mut head = Head::request(b"POST", b"/a/b?c=d#e#f", Version::HTTP_11).expect("a head");
        head.add_field(Known::HOST, b"a.example").expect("room");
        head.add_field(Known::COOKIE, b"a=1; session=0123456789abcdef0123456789").expect("room");
        head.add_field(Known::USER_AGENT, b"a test").expect("room");
        // A new value each time, so that the table evicts entries.
        head.add_field("x-number", &digits).expect("room");
        let stream = client.send_request(&head, b"http", None, false).expect("it may begin");
        let mut body = Chain::new();
        body.append(&[b'x'; 3_000]).expect("memory");
        assert!(client.send_data(NOW, stream, &mut body, true).expect("open").all);
        let mut complete = false;
        carry(&mut client, &mut server, |server, event| match event {
            Event::Request { request, .. } => assert_eq!(request.head.value("x-number"), Some(&digits[..])),
            Event::Data { stream, mut data, end } => {
                server.consume(stream, data.len()).expect("memory");
                if end {
                    let mut head = Head::response(Version::HTTP_2, 200, None).expect("a head");
                    head.add_field("x-number", &digits).expect("room");
                    server.send_response(stream, &head, false).expect("open");
                    server.send_data(NOW, stream, &mut data, true).expect("open");
                }
            }
            _ => {}
        });
        carry(&mut server, &mut client, |client, event| {
            if let Event::Data { stream, data, end } = event {
                client.consume(stream, data.len()).expect("memory");
                complete = end;
            }
        });
        assert!(complete && client.open_streams() == 0 && server.open_streams() == 0);
    };
    (0..400).for_each(&mut round);
    assert_no_alloc::assert_no_alloc(|| (400..1_000).for_each(&mut round));
}
