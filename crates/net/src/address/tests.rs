use super::*;
use proptest::prelude::*;

const ALL: [Rules; 6] =
    [Rules::BIND, Rules::DGRAM_BIND, Rules::SERVER, Rules::SOURCE, Rules::LOG, Rules::NAMESERVER];

fn ip(host: Host, port: Port) -> Location {
    Location::Ip { host, port }
}

fn v4(text: &str) -> Host {
    Host::V4(text.parse().unwrap())
}

fn v6(text: &str) -> Host {
    Host::V6(text.parse().unwrap())
}

fn name(name: &str, family: Option<Family>) -> Host {
    Host::Name { name: name.into(), family }
}

const STREAM: Option<Transport> = Some(Transport::Stream);
const DATAGRAM: Option<Transport> = Some(Transport::Datagram);

#[test]
fn binds_to_every_form_that_the_manual_has() {
    use Port::{One, Range};
    let cases = [
        (":80", None, ip(v4("0.0.0.0"), One(80))),
        ("*:80", None, ip(v4("0.0.0.0"), One(80))),
        ("0.0.0.0:80", None, ip(v4("0.0.0.0"), One(80))),
        ("ipv4@:80", None, ip(v4("0.0.0.0"), One(80))),
        ("ipv6@:80", None, ip(v6("::"), One(80))),
        ("ipv6@*:80", None, ip(v6("::"), One(80))),
        (":::80", None, ip(v6("::"), One(80))),
        ("[::]:80", None, ip(v6("::"), One(80))),
        ("::1:80", None, ip(v6("::1"), One(80))),
        ("[::1]:80", None, ip(v6("::1"), One(80))),
        ("ipv6@::1:80", None, ip(v6("::1"), One(80))),
        ("ip@192.0.2.1:080", None, ip(v4("192.0.2.1"), One(80))),
        ("[192.0.2.1]:80", None, ip(v4("192.0.2.1"), One(80))),
        (":80-85", None, ip(v4("0.0.0.0"), Range { low: 80, high: 85 })),
        ("[::1]:1-65535", None, ip(v6("::1"), Range { low: 1, high: 65535 })),
        (":80-80", None, ip(v4("0.0.0.0"), One(80))),
        ("public_ssl:443", None, ip(name("public_ssl", None), One(443))),
        ("ipv4@public_ssl:443", None, ip(name("public_ssl", Some(Family::V4)), One(443))),
        ("www.example.com.:443", None, ip(name("www.example.com.", None), One(443))),
        ("tcp@:80", STREAM, ip(v4("0.0.0.0"), One(80))),
        ("stream+ip@:80", STREAM, ip(v4("0.0.0.0"), One(80))),
        ("tcp4@a:80", STREAM, ip(name("a", Some(Family::V4)), One(80))),
        ("tcp6@:80", STREAM, ip(v6("::"), One(80))),
        ("stream+ipv6@a:80", STREAM, ip(name("a", Some(Family::V6)), One(80))),
        ("/run/a@b:80", None, Location::Unix("/run/a@b:80".into())),
        ("unix@a.sock", None, Location::Unix("a.sock".into())),
        ("uxst@a.sock", STREAM, Location::Unix("a.sock".into())),
        ("stream+unix@/a", STREAM, Location::Unix("/a".into())),
        ("abns@x y", None, Location::Abstract { name: "x y".into(), padded: true }),
        ("abnsz@x@y", None, Location::Abstract { name: "x@y".into(), padded: false }),
        ("fd@3", None, Location::Descriptor(3)),
        ("stream+fd@3", STREAM, Location::Descriptor(3)),
        ("sockpair@4", None, Location::SocketPair(4)),
        ("local@api", None, Location::Local("api".into())),
    ];
    for (text, transport, location) in cases {
        assert_eq!(Address::parse(text, &Rules::BIND), Ok(Address { transport, location }), "{text}");
    }
}

#[test]
fn other_statements_have_other_forms() {
    use Port::{Offset, One, Range, Unset};
    let cases = [
        (Rules::SERVER, "192.0.2.1", None, ip(v4("192.0.2.1"), Unset)),
        (Rules::SERVER, "192.0.2.1:", None, ip(v4("192.0.2.1"), Unset)),
        (Rules::SERVER, "192.0.2.1:0", None, ip(v4("192.0.2.1"), Unset)),
        (Rules::SERVER, "[::1]", None, ip(v6("::1"), Unset)),
        (Rules::SERVER, "::1:", None, ip(v6("::1"), Unset)),
        (Rules::SERVER, "*", None, ip(v4("0.0.0.0"), Unset)),
        (Rules::SERVER, "ipv4@", None, ip(v4("0.0.0.0"), Unset)),
        (Rules::SERVER, "192.0.2.1:+10", None, ip(v4("192.0.2.1"), Offset(10))),
        (Rules::SERVER, "192.0.2.1:-10", None, ip(v4("192.0.2.1"), Offset(-10))),
        (Rules::SERVER, "a:+0", None, ip(name("a", None), Offset(0))),
        (Rules::SERVER, "local@api", None, Location::Local("api".into())),
        (Rules::SOURCE, "192.0.2.1:1024-65535", None, ip(v4("192.0.2.1"), Range { low: 1024, high: 65535 })),
        (Rules::LOG, "192.0.2.1", None, ip(v4("192.0.2.1"), Unset)),
        (Rules::LOG, "tcp@192.0.2.1:514", STREAM, ip(v4("192.0.2.1"), One(514))),
        (Rules::LOG, "/dev/log", None, Location::Unix("/dev/log".into())),
        (Rules::LOG, "fd@2", None, Location::Descriptor(2)),
        (Rules::DGRAM_BIND, "udp4@:514", DATAGRAM, ip(v4("0.0.0.0"), One(514))),
        (Rules::DGRAM_BIND, "udp6@:514", DATAGRAM, ip(v6("::"), One(514))),
        (Rules::DGRAM_BIND, "dgram+ip@:514", DATAGRAM, ip(v4("0.0.0.0"), One(514))),
        (Rules::DGRAM_BIND, "uxdg@l", DATAGRAM, Location::Unix("l".into())),
        (Rules::NAMESERVER, "udp@192.0.2.1:53", DATAGRAM, ip(v4("192.0.2.1"), One(53))),
    ];
    for (rules, text, transport, location) in cases {
        assert_eq!(
            Address::parse(text, &rules),
            Ok(Address { transport, location }),
            "{} {text}",
            rules.statement
        );
    }
}

/// Each error states the fault, its position and the remedy in one sentence.
#[test]
fn errors_say_what_is_wrong_where_and_what_to_do() {
    let long = format!("/{}", "x".repeat(97));
    let cases = [
        (Rules::BIND, "", "address '', column 1: it is empty; write an address such as '192.0.2.1:80'"),
        (Rules::BIND, "tpc@:80", "address 'tpc@:80', column 1: unknown prefix 'tpc@'; did you mean 'tcp@'?"),
        (
            Rules::BIND,
            "IPV4@:80",
            "address 'IPV4@:80', column 1: unknown prefix 'IPV4@'; did you mean 'ipv4@'?",
        ),
        (
            Rules::BIND,
            "stream+ipv5@:80",
            "address 'stream+ipv5@:80', column 8: unknown prefix 'ipv5@'; did you mean 'ipv4@'?",
        ),
        (
            Rules::BIND,
            "website@:80",
            "address 'website@:80', column 1: unknown prefix 'website@'; the known ones are ip, ipv4, ipv6, \
                tcp, tcp4, \
             tcp6, udp, udp4, udp6, unix, uxst, uxdg, abns, abnsz, fd, sockpair, local, \
             mptcp, mptcp4, mptcp6",
        ),
        (
            Rules::BIND,
            "stream+udp@:80",
            "address 'stream+udp@:80', column 1: 'stream+' cannot stand before 'udp@'; leave 'stream+' out",
        ),
        (
            Rules::BIND,
            "quic4@:443",
            "address 'quic4@:443', column 1: 'quic4@' is not supported; QUIC is not built; listen with TCP \
                and 'ssl' for \
             HTTP/1 and HTTP/2",
        ),
        (
            Rules::BIND,
            "rhttp@s",
            "address 'rhttp@s', column 1: 'rhttp@' is not supported; reverse HTTP is not built; have the \
                server accept \
             connections at an address of its own",
        ),
        (
            Rules::BIND,
            "udp@:80",
            "address 'udp@:80', column 1: 'bind' does not take datagrams; use a stream prefix such as \
                'tcp@', or none",
        ),
        (
            Rules::DGRAM_BIND,
            "tcp@:80",
            "address 'tcp@:80', column 1: 'dgram-bind' does not take streams; use a datagram prefix such as \
                'udp@', or \
             none",
        ),
        (
            Rules::SERVER,
            "fd@3",
            "address 'fd@3', column 1: 'server' does not take 'fd@'; write an address such as '192.0.2.1'",
        ),
        (
            Rules::SOURCE,
            "/run/x",
            "address '/run/x', column 1: 'source' does not take unix sockets; write an address such as \
                '192.0.2.1'",
        ),
        (
            Rules::NAMESERVER,
            "dns:53",
            "address 'dns:53', column 1: 'nameserver' does not take host names; write an address such as \
                '192.0.2.1:80'",
        ),
        (
            Rules::BIND,
            "192.0.2.1",
            "address '192.0.2.1', column 10: '192.0.2.1' is an address without a port; add one from 1 to \
                65535, as in ':80'",
        ),
        (
            Rules::BIND,
            "*:",
            "address '*:', column 3: '*:' is an address without a port; add one from 1 to 65535, as in ':80'",
        ),
        (
            Rules::BIND,
            ":0",
            "address ':0', column 2: port 0 cannot be used here; write a number from 1 to 65535",
        ),
        (
            Rules::BIND,
            "*:65536",
            "address '*:65536', column 3: '65536' is not a port; write a number from 1 to 65535",
        ),
        (
            Rules::BIND,
            "*:http",
            "address '*:http', column 3: 'http' is not a port; write a number from 1 to 65535",
        ),
        (
            Rules::BIND,
            "*:80é",
            "address '*:80é', column 3: '80é' is not a port; write a number from 1 to 65535",
        ),
        (
            Rules::BIND,
            ":85-80",
            "address ':85-80', column 2: the range 85-80 ends before it begins; write ':80-85'",
        ),
        (
            Rules::BIND,
            ":80-",
            "address ':80-', column 2: '80-' is not a range of ports; write two numbers from 1 to 65535, as \
                in ':80-85'",
        ),
        (
            Rules::SERVER,
            "a:80-85",
            "address 'a:80-85', column 3: 'server' does not take a range of ports; write one port",
        ),
        (
            Rules::BIND,
            ":+80",
            "address ':+80', column 2: 'bind' does not take an offset for a port; write the port's number",
        ),
        (
            Rules::SERVER,
            "a:+70000",
            "address 'a:+70000', column 3: '+70000' is not an offset; write '+' or '-' and a number up to \
                65535",
        ),
        (
            Rules::SERVER,
            "::1",
            "address '::1', column 1: an IPv6 address without a port needs brackets; write '[::1]'",
        ),
        (
            Rules::BIND,
            "ipv6@2001:db8::",
            "address 'ipv6@2001:db8::', column 6: an IPv6 address without a port needs brackets; write \
             '[2001:db8::]:80', with your port",
        ),
        (
            Rules::SERVER,
            "ipv4@[::1]:80",
            "address 'ipv4@[::1]:80', column 6: '[::1]' is an IPv6 address and the prefix asks for IPv4; \
                change one of \
             them",
        ),
        (
            Rules::SERVER,
            "ipv6@192.0.2.1",
            "address 'ipv6@192.0.2.1', column 6: '192.0.2.1' is an IPv4 address and the prefix asks for \
                IPv6; change \
             one of them",
        ),
        (
            Rules::SERVER,
            "192.0.2",
            "address '192.0.2', column 1: '192.0.2' is not an IP address; write four numbers from 0 to 255, \
                as in \
             '192.0.2.1'",
        ),
        (
            Rules::SERVER,
            "1:2:80",
            "address '1:2:80', column 1: '1:2' is not an IPv6 address; write one such as '[2001:db8::1]'",
        ),
        (
            Rules::SERVER,
            "[::1]x:80",
            "address '[::1]x:80', column 1: brackets do not match; write '[' address ']'",
        ),
        (
            Rules::SERVER,
            "[fe80::1%eth0]:80",
            "address '[fe80::1%eth0]:80', column 1: a zone (behind '%') is not supported; leave it out, and \
                name the \
             device with 'interface'",
        ),
        (
            Rules::SERVER,
            "ab c:80",
            "address 'ab c:80', column 3: a host name cannot have the character ' '; use letters, digits, \
                '-', '_' and \
             dots",
        ),
        (
            Rules::SERVER,
            "a..b:80",
            "address 'a..b:80', column 1: 'a..b' is not a host name; between dots there are 1 to 63 \
                characters, and at \
             most 253 in all",
        ),
        (Rules::SERVER, "unix@", "address 'unix@', column 6: a path is missing; write a path behind the '@'"),
        (Rules::SERVER, "abns@", "address 'abns@', column 6: a name is missing; write a name behind the '@'"),
        (
            Rules::BIND,
            &long,
            &format!(
                "address '{long}', column 1: a path of 98 bytes is too long; choose one of at most 97 bytes"
            ),
        ),
        (
            Rules::BIND,
            "fd@",
            "address 'fd@', column 4: the number of a descriptor is missing; write one from 0 to 2147483647",
        ),
        (
            Rules::BIND,
            "fd@2147483648",
            "address 'fd@2147483648', column 4: '2147483648' is not the number of a descriptor; write one \
                from 0 to \
             2147483647",
        ),
        (
            Rules::SERVER,
            "sockpair@-1",
            "address 'sockpair@-1', column 10: '-1' is not the number of a descriptor; write one from 0 to \
                2147483647",
        ),
        (Rules::BIND, "/a\0b", "address '/a\\u{0}b', column 3: there is a zero byte; take it out"),
    ];
    for (rules, text, expected) in cases {
        let error = Address::parse(text, &rules).expect_err(text);
        assert_eq!(error.to_string(), expected, "{} {text:?}", rules.statement);
    }
}

#[test]
fn a_very_long_text_is_cut_in_messages() {
    let error = Address::parse(&"ä".repeat(100_000), &Rules::BIND).unwrap_err().to_string();
    assert!(error.len() < 1000, "{} bytes", error.len());
}

#[test]
fn ports_of_servers_follow_the_client() {
    use Port::{Offset, One, Range, Unset};
    assert_eq!(Unset.of_server(80), Some(80));
    assert_eq!(One(8080).of_server(80), Some(8080));
    assert_eq!(Offset(10).of_server(80), Some(90));
    assert_eq!(Offset(-79).of_server(80), Some(1));
    assert_eq!(Offset(-80).of_server(80), None);
    assert_eq!(Offset(1).of_server(65535), None);
    assert_eq!(Range { low: 1, high: 2 }.of_server(80), None);
    assert_eq!(Range { low: 80, high: 82 }.iter().collect::<Vec<_>>(), [80, 81, 82]);
    assert_eq!(Unset.iter().count(), 0);
}

fn hosts() -> impl Strategy<Value = Host> {
    let family = prop_oneof![Just(None), Just(Some(Family::V4)), Just(Some(Family::V6))];
    prop_oneof![
        any::<u32>().prop_map(|bits| Host::V4(bits.into())),
        any::<u128>().prop_map(|bits| Host::V6(bits.into())),
        // Groups of zeros, which have a shorter form.
        prop::array::uniform8(0..3u16).prop_map(|groups| Host::V6(groups.into())),
        ("[a-z_][a-zA-Z0-9_-]{0,20}(\\.[a-z0-9-]{1,63}){0,3}\\.?", family)
            .prop_map(|(name, family)| Host::Name { name: name.into(), family }),
    ]
}

/// Returns a strategy for addresses that `rules` allow.
fn addresses(rules: Rules) -> impl Strategy<Value = Address> {
    let transport = match rules.transports {
        Transports::Stream => prop_oneof![Just(None), Just(STREAM)].boxed(),
        Transports::Datagram => prop_oneof![Just(None), Just(DATAGRAM)].boxed(),
        Transports::DatagramOrStream | Transports::StreamOrDatagram => {
            prop_oneof![Just(None), Just(DATAGRAM), Just(STREAM)].boxed()
        }
    };
    let mut ports = vec![(1..=u16::MAX).prop_map(Port::One).boxed()];
    if !rules.port_needed {
        ports.push(Just(Port::Unset).boxed());
    }
    if rules.port_range {
        let range = (1..u16::MAX)
            .prop_flat_map(|low| (low + 1..=u16::MAX).prop_map(move |high| Port::Range { low, high }));
        ports.push(range.boxed());
    }
    if rules.port_offset {
        ports.push((-65535..=65535).prop_map(Port::Offset).boxed());
    }
    let hosts =
        hosts().prop_filter("names are known", move |host| rules.names || !matches!(host, Host::Name { .. }));
    let ip = (hosts, prop::strategy::Union::new(ports)).prop_map(|(host, port)| Location::Ip { host, port });
    let mut locations = vec![ip.boxed()];
    if rules.unix {
        locations.push("/?[a-z@:é -]{1,40}".prop_map(|path| Location::Unix(path.into())).boxed());
        let name = ("[!-~]{1,107}", any::<bool>());
        locations
            .push(name.prop_map(|(name, padded)| Location::Abstract { name: name.into(), padded }).boxed());
    }
    if rules.descriptor {
        locations.push((0..=i32::MAX).prop_map(Location::Descriptor).boxed());
    }
    if rules.socket_pair {
        locations.push((0..=i32::MAX).prop_map(Location::SocketPair).boxed());
    }
    let remote = (transport, prop::strategy::Union::new(locations));
    let remote = remote.prop_map(|(transport, location)| Address { transport, location });
    if rules.local {
        let local = "[!-~]{1,107}"
            .prop_map(|name| Address { transport: None, location: Location::Local(name.into()) });
        prop_oneof![8 => remote, 1 => local].boxed()
    } else {
        remote.boxed()
    }
}

proptest! {
    #[test]
    fn every_address_reads_back_as_it_is_written(
        (rules, address) in (0..ALL.len()).prop_flat_map(|n| (Just(ALL[n]), addresses(ALL[n])))
    ) {
        let text = address.to_string();
        prop_assert_eq!(Address::parse(&text, &rules), Ok(address), "{}", text);
    }

    #[test]
    fn no_text_panics_and_positions_are_inside_of_it(
        rules in (0..ALL.len()).prop_map(|n| ALL[n]),
        text in prop_oneof![
            ".{0,40}",
            "((stream|dgram)\\+)?(ip|ipv[46]|tcp[46]?|udp[46]?|unix|abnsz?|fd|sockpair|local)?@?[\\[\\]*a-f0-9:.%/+-]{0,24}",
        ],
    ) {
        check(&text, &rules)?;
    }
}

fn check(text: &str, rules: &Rules) -> Result<(), TestCaseError> {
    match Address::parse(text, rules) {
        Ok(address) => {
            let written = address.to_string();
            prop_assert_eq!(Address::parse(&written, rules), Ok(address), "{} from {}", written, text);
        }
        Err(error) => {
            prop_assert!(text.get(error.span()).is_some(), "{:?} of {:?}", error.span(), text);
            let sentence = error.to_string();
            prop_assert!(!sentence.contains(char::is_control), "{}", sentence);
        }
    }
    Ok(())
}
