//! Answers of an authority: whatever they are, an order ends, and proves nothing but its name. None ends with
//! a certificate, since it would need the key that is made for it.
#![no_main]

use manylane_acme::{
    AccountKey, Answer, Challenge, KeyKind, Method, NewKey, Proof, Request, Transport, Wanted, obtain,
};
use manylane_tls::HttpUrl;
use std::cell::Cell;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

static ACCOUNT: LazyLock<AccountKey> = LazyLock::new(|| {
    let pem = AccountKey::generate(KeyKind::P256).expect("a key can be made");
    AccountKey::from_pem(pem.as_bytes()).expect("it is good")
});

/// Answers with one part of the input after another; lines of it are fields, the rest is a body.
struct Authority<'a> {
    parts: Vec<&'a [u8]>,
    next: Cell<usize>,
}

impl Transport for Authority<'_> {
    async fn exchange(&self, request: Request<'_>) -> Result<Answer, String> {
        let number = self.next.replace(self.next.get() + 1);
        let part = self.parts.get(number % self.parts.len().max(1)).copied().unwrap_or_default();
        let (status, body) = part.split_first().unwrap_or((&0, &[]));
        let text = |from: usize| String::from_utf8_lossy(body.get(from..).unwrap_or_default()).into_owned();
        let good = status % 4 != 0;
        Ok(Answer {
            status: if good { 200 } else { 300 + u16::from(*status) },
            nonce: Some(if request.method == Method::Head { "nonce".into() } else { text(0) }),
            location: Some(if good { "https://a.test/own".into() } else { text(1) }),
            retry_after: body.first().map(|byte| u64::from(*byte) << (status % 64)),
            body: body.to_vec(),
        })
    }

    async fn wait(&self, time: Duration) {
        assert!(time <= Duration::from_secs(60));
    }

    async fn new_key(&self, kind: KeyKind) -> Result<NewKey, String> {
        NewKey::generate(kind)
    }

    async fn prove(&self, proofs: Vec<Proof>) -> Result<(), String> {
        for proof in proofs {
            assert_eq!(&*proof.name, "a.test");
            assert!(proof.token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        }
        Ok(())
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let directory = HttpUrl::parse("https://a.test/d", "https").expect("it is good");
    let wanted = Wanted {
        directory: &directory,
        contact: None,
        account: &ACCOUNT,
        names: &["a.test".into()],
        external: None,
        challenge: Challenge::Http01,
    };
    let authority = Authority { parts: data.split(|byte| *byte == b'\n').collect(), next: Cell::new(0) };
    let order = pin!(obtain(&wanted, KeyKind::P256, &authority));
    let Poll::Ready(result) = order.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("nothing waits")
    };
    let failure = result.expect_err("there is no certificate");
    assert!(failure.why.len() < 1500 && failure.why.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert!(authority.next.get() < 2000);
});
