//! Tests of the whole crate that need its hooks; one file for each topic.

mod compact;
mod count;
mod errors;
mod model;

/// Parts that are appended together are in one segment, in spare room or in a cluster of their own.
#[test]
fn parts_that_are_appended_together_lie_in_one_segment() {
    let mut chain = crate::Chain::new();
    chain.append_together(&[], 2048).expect("nothing to do");
    assert_eq!(chain.segment_count(), 0);
    chain.append_together(&[b"ab", b"", b"c"], 2048).expect("memory");
    chain.append_together(&[&[b'd'; 2045][..]], 2048).expect("memory"); // to the last byte
    assert_eq!((chain.segment_count(), chain.len()), (1, 2048));
    chain.append_together(&[b"e"], 2048).expect("memory");
    chain.append_together(&[&[b'f'; 1000][..], &[b'g'; 1048]], 2048).expect("memory");
    let lens: Vec<_> = chain.segments().map(|segment| segment.len()).collect();
    assert_eq!(lens, [2048, 1, 2048]);
    assert_eq!(chain.len(), 4097);
    assert!(matches!(
        chain.append_together(&[&[0; crate::MAX_CLUSTER + 1][..]], 1),
        Err(crate::Error::TooLong { .. })
    ));
    assert_eq!(chain.len(), 4097);
}
