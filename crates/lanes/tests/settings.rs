//! Settings of the process that apply to a lane when a generation is installed on it.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_config::tree::AlgorithmKey;
use manylane_io::{
    ACCEPTS_PER_ROUND, Driver, DriverChoice, EVENTS_PER_WAIT, Kind, MOST_ACCEPTS_PER_ROUND,
    MOST_EVENTS_PER_WAIT,
};
use manylane_lanes::Local;
use manylane_plan::Generation;
use manylane_plan::generation::{HashKey, Shards, StartOptions};
use manylane_sched::{Config, Lane};
use manylane_sync::Arc;

/// A generation with these lines in `global`.
fn built(global: &str) -> Generation {
    let mut sources = Sources::new();
    sources.add("test.cfg", format!("global\n{global}")).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    assert!(loaded.found.found().is_empty(), "{:?}", loaded.found.found());
    generation
}

#[test]
fn maxconnrate_and_maxsessrate_bound_the_process() {
    let rates = |global| {
        let generation = built(global);
        [generation.connection_rate.most(), generation.session_rate.most()]
    };
    assert_eq!(rates(" maxconnrate 5\n maxsessrate 3\n"), [5, 3]);
    assert_eq!(rates(" maxconnrate 2\n"), [2, 0]);
    assert_eq!(rates(" maxconnrate 0\n maxsessrate 4\n"), [0, 4]);
}

/// R-G2: a queue has a line for each lane, up to eight lanes; more lanes share lines.
#[test]
fn queues_have_lines_for_the_lanes_that_serve() {
    for (lanes, lines) in [(1, 1), (2, 2), (8, 8), (12, 6), (64, 8)] {
        let servers = "backend b\n timeout connect 1s\n timeout server 1s\n server s 127.0.0.1:1 maxconn 1\n";
        let generation = built(&format!(" nbthread {lanes}\n{servers}"));
        assert_eq!(generation.backends[0].balancer.queue_lines(), lines, "{lanes} lanes");
    }
}

#[test]
fn a_lane_takes_in_as_many_events_at_once_as_tune_maxpollevents_says() {
    for (global, events) in [
        ("", EVENTS_PER_WAIT),
        (" tune.maxpollevents 7\n", 7),
        (" tune.maxpollevents 1000000\n", MOST_EVENTS_PER_WAIT),
    ] {
        let lane = Lane::new(Config::new()).unwrap();
        let driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
        let local = Local::install(driver.io(), Arc::new(built(global)), || {});
        local.remove();
        assert_eq!(driver.io().events_per_wait(), events, "{global}");
    }
}

#[test]
fn connections_stay_on_the_lane_that_accepts_them_where_the_file_says_so() {
    assert!(built("").process.spreads_connections);
    assert!(built(" tune.listener.multi-queue fair\n").process.spreads_connections);
    assert!(!built(" tune.listener.multi-queue off\n").process.spreads_connections);
}

/// Builds a file with `global` lines and `options` of a listener. Returns the listener's shards and lanes,
/// and the messages.
fn listener(global: &str, options: &str, wishes: StartOptions) -> (Option<(Shards, Vec<usize>)>, String) {
    let times = " timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    let mut sources = Sources::new();
    let text = format!(
        "global\n nbthread 4\n{global}listen l\n{times} bind 127.0.0.1:1 {options}\n server s 127.0.0.1:2\n"
    );
    sources.add("test.cfg", text).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let generation = Generation::build(&loaded.config, wishes, &mut loaded.found);
    let right = loaded.found.count(Severity::Alert) == 0;
    let built = right.then(|| {
        let listener = &generation.frontends[0].listeners[0];
        (listener.shards, listener.lanes.as_deref().unwrap_or_default().to_vec())
    });
    (built, format!("{:?}", loaded.found.found()))
}

#[test]
fn listeners_that_say_no_shards_have_those_of_the_process() {
    let shards =
        |global: &str, options: &str, wishes| listener(global, options, wishes).0.map(|(shards, _)| shards);
    let of = |global: &str, options: &str| shards(global, options, StartOptions::default());
    let (threads, groups) =
        (" tune.listener.default-shards by-thread\n", " tune.listener.default-shards by-group\n");
    assert_eq!(of("", ""), Some(Shards::Number(1)));
    assert_eq!(of(" tune.listener.default-shards by-process\n", ""), Some(Shards::Number(1)));
    assert_eq!(of(threads, ""), Some(Shards::ByLane));
    assert_eq!(of(groups, ""), Some(Shards::ByGroup));
    assert_eq!(of(threads, "shards 2"), Some(Shards::Number(2)));
    // Without `SO_REUSEPORT` a listener has one socket, unless it sets `shards`.
    assert_eq!(of(&format!("{threads} noreuseport\n"), ""), Some(Shards::Number(1)));
    let alone = StartOptions { no_reuse_port: true, ..StartOptions::default() };
    assert_eq!(shards(threads, "", alone), Some(Shards::Number(1)));
    assert_eq!(of(" tune.listener.default-shards by-core\n", ""), None);
}

#[test]
fn lanes_of_a_listener_are_those_of_all_its_words_and_of_the_older_form() {
    let of = |options| {
        let (built, said) = listener("", options, StartOptions::default());
        (built.map(|(_, lanes)| lanes), said)
    };
    for (options, lanes) in [
        ("thread 2", vec![1]),
        ("thread 4 thread 1-2 thread 2", vec![0, 1, 3]),
        ("thread 2 thread all", vec![]),
        ("process 1", vec![]),
        ("process all", vec![]),
        ("process 1/2", vec![1]),
        ("process odd/1-2 process 1/4", vec![0, 1, 3]),
        ("process all/all", vec![]),
    ] {
        let (built, said) = of(options);
        assert_eq!(built, Some(lanes), "{options}: {said}");
        assert_eq!(said.contains("is deprecated"), options.contains("process"), "{said}");
    }
    assert!(of("process 1/2").1.contains("use 'thread 2' instead"));
    for (options, why) in [
        ("process 2", "is not 1, the only process"),
        ("process 1-64/1", "is not 1, the only process"),
        ("process 1/x", "'thread' expects lanes"),
        ("thread 1 thread x", "'thread' expects lanes"),
    ] {
        let (built, said) = of(options);
        assert!(built.is_none() && said.contains(why), "{options}: {said}");
    }
}

#[test]
fn sockets_of_clients_and_servers_have_the_buffers_that_the_file_says() {
    let buffers = " tune.rcvbuf.client 10k\n tune.sndbuf.client 11k\n tune.notsent-lowat.client 12k\n \
        tune.rcvbuf.server 20k\n tune.sndbuf.server 21k\n tune.notsent-lowat.server 0\n";
    let proxy = "listen l\n bind 127.0.0.1:1\n server s 127.0.0.1:2\n timeout client 1s\n timeout server \
        1s\n timeout connect 1s\n";
    let generation = built(&format!("{buffers}{proxy}"));
    let of =
        |common: &manylane_net::CommonOptions| (common.receive_buffer, common.send_buffer, common.unsent);
    let k = |n: u32| Some(n << 10);
    assert_eq!(of(&generation.frontends[0].listeners[0].options.common), (k(10), k(11), k(12)));
    assert_eq!(of(&generation.backends[0].servers[0].connect.common), (k(20), k(21), None));
}

#[test]
fn a_negative_mss_has_no_effect_and_is_reported() {
    let mut sources = Sources::new();
    let text = "listen l\n mode tcp\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n bind \
        127.0.0.1:81 mss -100\n";
    sources.add("test.cfg", text.to_owned()).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    let reported = format!("{:?}", loaded.found.found());
    assert!(loaded.found.errors() == 0 && reported.contains("'mss' has no effect here"), "{reported}");
    assert_eq!(generation.frontends[0].listeners[0].options.mss, None);
}

#[test]
fn acknowledgements_are_saved_where_the_file_says_so_and_towards_clients_of_http() {
    let times = " timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    let saved = |lines: &str| {
        let generation =
            built(&format!("listen l\n bind 127.0.0.1:1\n server s 127.0.0.1:2\n{times}{lines}"));
        let late = generation.backends[0].servers[0].connect.late_ack;
        (!generation.frontends[0].listeners[0].options.quick_ack, late)
    };
    assert_eq!(saved(" mode http\n"), (true, false));
    assert_eq!(saved(" mode http\n no option tcp-smart-accept\n option tcp-smart-connect\n"), (false, true));
    assert_eq!(saved(" mode tcp\n"), (false, false));
    assert_eq!(saved(" mode tcp\n option tcp-smart-accept\n no option tcp-smart-connect\n"), (true, false));
}

#[test]
fn a_consistent_hash_knows_servers_by_their_guid_where_they_have_one() {
    let proxy = |servers: &str| {
        let settings = " balance source\n hash-type consistent\n timeout server 1s\n timeout connect 1s\n";
        built(&format!("backend b\n{settings}{servers}"))
    };
    let key = |server: &str| {
        let generation = proxy(&format!(" server {server}\n"));
        generation.backends[0].servers[0].hash_key.clone()
    };
    let guid = HashKey::Guid(Some((*b"g1").into()));
    assert_eq!(key("s 127.0.0.1:2 hash-key guid guid g1"), guid);
    assert_eq!(key("t 127.0.0.2:3 id 7 guid g1 hash-key guid"), guid, "whatever else it is");
    assert_eq!(key("s 127.0.0.1:2 hash-key guid"), HashKey::Guid(None));
}

/// Number of connections that a lane accepts per round, with these lines in `global`.
fn accepts(global: &str) -> u32 {
    let generation = built(global);
    let lane = Lane::new(Config::new()).unwrap();
    let driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
    let local = Local::install(driver.io(), Arc::new(generation), || {});
    local.remove();
    driver.io().accepts_per_round()
}

#[test]
fn a_lane_accepts_as_many_connections_in_a_round_as_tune_maxaccept_says() {
    assert_eq!(accepts(""), ACCEPTS_PER_ROUND);
    assert_eq!(accepts(" tune.maxaccept 16\n"), 16);
    assert_eq!(accepts(" tune.maxaccept 0\n"), ACCEPTS_PER_ROUND, "as without it");
    assert_eq!(accepts(" tune.maxaccept -1\n"), MOST_ACCEPTS_PER_ROUND);
}

#[test]
fn buffers_that_are_larger_than_heads_can_be_are_warned_of() {
    let said = |size: &str| {
        let mut sources = Sources::new();
        sources.add("test.cfg", format!("global\n tune.bufsize {size}\n")).unwrap();
        let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
        let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
        let said: Vec<_> =
            loaded.found.found().iter().map(|one| (one.severity, one.pos.unwrap().line)).collect();
        let text = loaded.found.found().iter().map(|one| one.message.as_str()).collect::<String>();
        (said, text, generation.process.bufsize)
    };
    assert_eq!(said("65535"), (vec![], String::new(), 65_535));
    let (warnings, text, bytes) = said("200000");
    assert_eq!((warnings, bytes), (vec![(Severity::Warning, 2)], 200_000));
    assert!(text.contains("at most 65535 bytes") && text.contains("grows to 200000 bytes"), "{text}");
}

/// A server whose name is resolved at run time does not prevent the start: as in HAProxy, its default of
/// `init-addr` ends with `none`.
#[test]
fn a_server_of_a_resolvers_section_starts_without_an_address() {
    let reported = |options: &str| {
        let servers = format!(
            "backend b\n timeout connect 1s\n timeout server 1s\n server s name.invalid:80 {options}\n"
        );
        let mut sources = Sources::new();
        sources.add("test.cfg", format!("resolvers r\n nameserver d 127.0.0.1:53\n{servers}")).unwrap();
        let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
        Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
        loaded.found.found().iter().map(|one| one.severity).collect::<Vec<_>>()
    };
    assert_eq!(reported("resolvers r"), [Severity::Warning]);
    assert_eq!(reported("resolvers r init-addr libc,none"), [Severity::Warning]);
    assert_eq!(reported("resolvers r init-addr none"), []);
    assert_eq!(reported("resolvers r init-addr libc"), [Severity::Alert]);
    assert_eq!(reported(""), [Severity::Alert]);
}

/// `default-server resolvers r` does not apply to a server with an IP address.
#[test]
fn a_server_that_stays_where_it_is_needs_no_resolvers() {
    let generation = built(
        "resolvers r\n nameserver d 127.0.0.1:53\nbackend b\n timeout connect 1s\n timeout server 1s\n \
            default-server resolvers r\n \
         server u unix@/run/u\n server h 127.0.0.1:80 hash-key addr\n server a 127.0.0.1:81\n",
    );
    let resolved: Vec<_> =
        generation.backends[0].servers.iter().map(|server| server.resolution.is_some()).collect();
    assert_eq!(resolved, [false, false, true]);
}

/// `show stat` and `manylane explain` show the word.
#[test]
fn balance_shows_each_algorithm_by_the_word_that_chose_it() {
    for name in manylane_config::algorithms() {
        let words = match name {
            "log-hash" => continue, // of 'mode log', where it is a hash like others
            "hash" => "hash src",
            "hdr" => "hdr(x)",
            "url_param" => "url_param x",
            name => name,
        };
        let lines = format!(" mode http\n timeout connect 1s\n timeout server 1s\n balance {words}\n");
        let generation = built(&format!("backend b\n{lines} server s 127.0.0.1:1\n"));
        let backend = &generation.backends[0];
        assert_eq!(backend.algorithm.name, name);
        // The crate that chooses knows the word: a word that it does not know hashes a key.
        let has_key = backend.algorithm.key != AlgorithmKey::None;
        assert_eq!(backend.balancer.algorithm().goes_by_key(), has_key, "{name}");
    }
}
