//! Certificate files, lists of them, CAs and CRLs: any bytes are read, or refused in a sentence that quotes
//! no line of a file that may hold a key.
#![no_main]

use manylane_tls::{
    ClientSettings, ClientVerify, CommonSettings, IgnoredErrors, ServerSettings, ServerVerify, Source, Store,
};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A folder of this process.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("manylane-fuzz-tls-{}", std::process::id()));
    fs::create_dir_all(&path).expect("there is room for files");
    path
});

fn server(source: Source) -> ServerSettings {
    ServerSettings {
        common: CommonSettings::default(),
        certificates: vec![source],
        strict_sni: false,
        verify: ClientVerify::None,
        verify_authorities: None,
        ignored: IgnoredErrors::default(),
        ignored_of_authorities: IgnoredErrors::default(),
        tell_authorities: true,
        tickets: false,
        client_order: false,
        ticket_keys: None,
        sessions: 0,
        lifetime: 300,
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    let file = FOLDER.join("a.pem");
    fs::write(&file, data).expect("there is room for files");
    let mut told = Vec::new();
    let refused = match kind % 3 {
        0 => Store::default().listener(&server(Source::Path(file)), &mut told).err(),
        1 => {
            let list = Source::List { path: file, base: FOLDER.clone() };
            // Its lines are file names, so the sentence may quote one.
            let _ = Store::default().listener(&server(list), &mut Vec::new());
            None
        }
        _ => {
            let common =
                CommonSettings { authorities: Some(file.clone()), revoked: Some(file), ..Default::default() };
            let settings = ClientSettings {
                common,
                certificate: None,
                verify: ServerVerify::Required,
                sends_name: false,
                reuse: false,
            };
            Store::default().server(&settings, &mut told).err()
        }
    };
    for sentence in told.iter().chain(&refused).map(ToString::to_string) {
        assert!(!sentence.contains("-----BEGIN "), "{sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
});
