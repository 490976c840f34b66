//! Bytes of a client or a server before it is authenticated: any bytes in any pieces are accepted or end the
//! connection, and a bounded part is stored.
#![no_main]

use manylane_buf::Chain;
use manylane_sync::qsbr::Reader;
use manylane_tls::{
    Bases, ClientContext, ClientSettings, CommonSettings, Connection, MOST_UNREAD, Progress, ServerContext,
    ServerName, ServerSettings, ServerVerify, Source, Store,
};
use std::sync::LazyLock;

/// Most bytes that are kept of a hello.
const HELLO_BYTES: usize = 256;

/// Servers: rustls alone reads hellos; their lists are kept; the certificate has options, which are looked up
/// before rustls gets the hello. Then a client.
static CONTEXTS: LazyLock<([ServerContext; 3], ClientContext)> = LazyLock::new(|| {
    let made =
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate can be made");
    let path = std::env::temp_dir().join(format!("manylane-fuzz-hello-{}.pem", std::process::id()));
    let list = path.with_extension("list");
    let text = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    std::fs::write(&path, text).expect("there is room for a file");
    std::fs::write(&list, format!("{} [alpn h2] a.example\n", path.display())).expect("there is room");
    let usual = ServerSettings {
        common: CommonSettings { alpn: vec![b"h2".to_vec()], ..CommonSettings::default() },
        early_data: true,
        sessions: 16,
        ..ServerSettings::new(vec![Source::Path(path.clone())])
    };
    let mut keeps = usual.clone();
    keeps.common.hello_bytes = HELLO_BYTES;
    let mut listed = usual.clone();
    listed.certificates = vec![Source::List { path: list.clone(), bases: Bases::default() }];
    let client = ClientSettings {
        early_data: false,
        common: CommonSettings::default(),
        certificate: None,
        verify: ServerVerify::None,
        sends_name: true,
        reuse: true,
    };
    let store = Store::default();
    let servers = [usual, keeps, listed]
        .map(|settings| store.listener(&settings, &mut Vec::new()).expect("the settings are good"));
    let client = store.server(&client, &mut Vec::new()).expect("the settings are good");
    for file in [path, list] {
        let _ = std::fs::remove_file(file); // already read
    }
    (servers, client)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [role, size, data @ ..] = data else { return };
    let (servers, client) = &*CONTEXTS;
    let reader = Reader::new();
    let (mut plain, mut out) = (Chain::new(), Chain::new());
    let mut connection = if role % 2 == 0 {
        Connection::server(&servers[usize::from(role / 2) % servers.len()], &reader)
            .expect("the context is good")
    } else {
        let name = ServerName::try_from("a.example").expect("it is a name");
        Connection::client(client, name, manylane_tls::Hello::Usual, &reader).expect("the context is good")
    };
    let mut came = 0;
    let mut begin = Chain::new();
    if role % 2 == 1 {
        connection.receive(&mut begin, &mut plain, &mut out).expect("the first message needs no peer");
    }
    for piece in data.chunks(usize::from(*size) + 1) {
        let mut received = Chain::new();
        received.append(piece).expect("there is memory");
        came += piece.len();
        let outcome = connection.receive(&mut received, &mut plain, &mut out);
        assert!(plain.len() <= came, "nothing is made of nothing");
        match outcome {
            Ok(Progress::Handshaking | Progress::PeerClosed) => {}
            Ok(Progress::Open | Progress::Early) => assert!(!connection.has_failed()),
            Err(_) => {
                assert!(connection.has_failed());
                let mut more = Chain::new();
                more.append(b"more").expect("there is memory");
                connection.receive(&mut more, &mut plain, &mut out).expect_err("it has failed before");
                break;
            }
        }
    }
    // Output to a peer that is not authenticated: a handshake flight and alerts.
    assert!(out.len() <= MOST_UNREAD, "{} bytes are sent for {came}", out.len());
});
