//! OCSP responses and ticket keys: any bytes are read or refused. No generated response is valid, since it
//! would need a signature.
#![no_main]

use manylane_tls::{check_ocsp, check_ticket_keys};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::LazyLock;

/// A certificate and its issuer's.
static CERTIFICATES: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let key = || KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, key()).expect("a certificate can be made");
    let own = CertificateParams::default().signed_by(&key(), &issuer).expect("a certificate can be made");
    (own.der().to_vec(), issuer.der().to_vec())
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (certificate, issuer) = &*CERTIFICATES;
    assert!(!check_ocsp(data, certificate, issuer));
    if let Err(sentence) = check_ticket_keys(data) {
        assert!(!sentence.contains('\n'), "{sentence}");
    }
});
