//! Pools against a list of blocks in use: no block is handed out twice, its contents do not change, and the
//! counts agree.
#![no_main]
#![allow(unsafe_code)] // reads blocks past the pool's interface

use manylane_pool::{BytePool, Options, PooledBytes};
use std::sync::LazyLock;

const LIMIT: usize = 12;

/// Pools live as long as the process. Small caches make a block pass every path.
static POOLS: LazyLock<[BytePool; 3]> = LazyLock::new(|| {
    let pool =
        |name, size, options| BytePool::with(name, size, options).expect("sizes and limits above zero");
    [
        pool("small", 24, Options::new().lane_bytes(64 * 6)),
        pool("limited", 200, Options::new().lane_bytes(256 * 4).limit(LIMIT)),
        pool("global", 64, Options::new().lane_bytes(64 * 4).global_lists(2).global_bytes(64 * 8)),
    ]
});

/// A block in use, and the byte that fills it.
struct Block {
    bytes: PooledBytes,
    full_of: u8,
}

impl Block {
    fn check(&self, size: usize) {
        // SAFETY: the block is ours and was filled when it was taken.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), size) };
        assert!(bytes.iter().all(|&byte| byte == self.full_of), "somebody else wrote into a block in use");
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut in_use: [Vec<Block>; 3] = Default::default();
    for (step, &[operation, which]) in data.as_chunks::<2>().0.iter().enumerate() {
        let number = usize::from(operation / 8) % POOLS.len();
        let (pool, blocks) = (POOLS[number], &mut in_use[number]);
        match operation % 8 {
            // With more blocks, the test would spend its time in the vectors.
            0..=3 if blocks.len() < 64 => match pool.alloc() {
                Ok(mut bytes) => {
                    let full_of = step as u8;
                    bytes.fill(full_of);
                    blocks.push(Block { bytes, full_of });
                }
                Err(refused) => assert_eq!((number, blocks.len()), (1, LIMIT), "{refused}"),
            },
            4..=6 if !blocks.is_empty() => {
                let block = blocks.swap_remove(usize::from(which) % blocks.len());
                block.check(pool.block_size());
            }
            7 => {
                pool.reclaim();
            }
            _ => {}
        }
        let report = pool.report();
        assert_eq!(report.used, blocks.len() as u64);
        assert_eq!(report.allocated, report.used + report.cached);
    }
    for (pool, blocks) in POOLS.iter().zip(in_use) {
        blocks.iter().for_each(|block| block.check(pool.block_size()));
    }
});
