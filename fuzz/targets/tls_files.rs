//! Certificate files, lists of them, CAs and CRLs: any bytes are read, or refused in a sentence that quotes
//! no line of a file that may hold a key.
#![no_main]

use manylane_tls::{Bases, ClientSettings, CommonSettings, ServerSettings, ServerVerify, Source, Store};
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
    ServerSettings { tickets: false, ..ServerSettings::new(vec![source]) }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    let file = FOLDER.join("a.pem");
    fs::write(&file, data).expect("there is room for files");
    let mut problems = Vec::new();
    let refused = match kind % 3 {
        0 => Store::default().listener(&server(Source::Path(file)), &mut problems).err(),
        1 => {
            let list = Source::List { path: file, bases: Bases { crt: FOLDER.clone(), ca: FOLDER.clone() } };
            // Its lines are file names, so the sentence may quote one.
            let _ = Store::default().listener(&server(list), &mut Vec::new());
            None
        }
        _ => {
            let common =
                CommonSettings { authorities: Some(file.clone()), revoked: Some(file), ..Default::default() };
            let settings = ClientSettings {
                early_data: false,
                common,
                certificate: None,
                verify: ServerVerify::Required,
                sends_name: false,
                reuse: false,
            };
            Store::default().server(&settings, &mut problems).err()
        }
    };
    for sentence in problems.iter().chain(&refused).map(ToString::to_string) {
        assert!(!sentence.contains("-----BEGIN "), "{sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
});
