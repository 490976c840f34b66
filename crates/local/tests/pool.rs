//! Connections come and go with requests, so their memory is the lane's. One test in a process of its own,
//! since the pools' numbers belong to the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_local::{Kind, Name, Socket};

#[test]
fn sockets_come_from_the_lanes_pool_and_go_back_to_it() {
    let report = || manylane_pool::report().into_iter().find(|pool| pool.name == "local socket").unwrap();
    let listener = Socket::new(Kind::Stream);
    let name = Name::new("listener").unwrap();
    listener.bind(&name).unwrap();
    listener.listen(1).unwrap();
    for _ in 0..100 {
        let client = Socket::new(Kind::Stream);
        client.connect(&name).unwrap();
        assert_eq!(report().used, 3, "the listener and both ends");
        drop(listener.accept().unwrap());
    }
    assert_eq!(report().used, 1);
    // Objects closed on another lane belong to that lane.
    let pairs: Vec<_> = (0..100).map(|_| Socket::pair(Kind::SeqPacket)).collect();
    assert_eq!(report().used, 201);
    std::thread::spawn(move || drop(pairs)).join().unwrap();
    assert_eq!(report().used, 1);
    drop(listener);
    assert_eq!(report().used, 0);
}
