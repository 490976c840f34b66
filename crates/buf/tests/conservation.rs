//! All memory taken from the pools returns, even if allocations fail (R-B6). One test in a process of its
//! own, since the pools' numbers belong to the process.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, Cluster, Error, External, Parcel};
use manylane_pool::{inject, report};

/// Uses every kind of memory of the crate: both classes of clusters, proxies, ring blocks of several sizes.
fn work() -> Result<(), Error> {
    let mut chain = Chain::new();
    chain.append(&[1; 100_000])?;
    for n in 0..100 {
        chain.push_back(External::from_vec(vec![n; 10])?)?;
        chain.prepend(&[n; 40])?;
        chain.push_back(Cluster::with(&[n])?.into_segment())?;
    }
    let mut tail = chain.split_off(50_000)?;
    let copy = tail.copy_range(100..200)?;
    tail.pull_up(10_000)?;
    copy.zero_on_free().map_err(|_| Error::EmptyCluster)?;
    chain.append_chain(&mut tail)?;
    let parcel = Parcel::from(chain);
    let there = std::thread::spawn(move || {
        let mut chain = parcel.open();
        let half = chain.split_off(60_000).expect("nothing fails on this lane");
        (Parcel::from(chain), Parcel::from(half))
    });
    let (chain, half) = there.join().expect("no panic");
    let mut chain = chain.open();
    chain.append_chain(&mut half.open())?;
    Ok(())
}

#[test]
fn every_pool_has_all_its_objects_back_at_the_end() {
    work().expect("memory");
    let mut failures = 0;
    if inject::ENABLED {
        for n in 1..150 {
            let failing = inject::every(n);
            failures += u64::from(work().is_err());
            drop(failing);
        }
        assert!(failures > 50, "{failures}");
    }
    let pools = report();
    assert!(pools.len() >= 5, "{pools:?}");
    for pool in pools {
        assert_eq!(pool.used, 0, "pool {} has objects out", pool.name);
    }
}
