//! Single-threaded operations on a list against a queue of numbers: one byte selects the operation, the next
//! one the element.
#![no_main]

use manylane_list::{MtList, Node};
use std::collections::VecDeque;
use std::pin::Pin;

const NODES: usize = 6;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let list = MtList::new();
    let nodes: [Pin<Box<Node<'_, usize>>>; NODES] = std::array::from_fn(|n| Box::pin(Node::new(&list, n)));
    let mut queue: VecDeque<usize> = VecDeque::new();
    for &[operation, element] in data.as_chunks::<2>().0 {
        let (n, other) = (usize::from(element) % NODES, usize::from(element) / NODES % NODES);
        let (node, anchor) = (nodes[n].as_ref(), nodes[other].as_ref());
        let is_in = queue.contains(&n);
        let at_anchor = queue.iter().position(|&q| q == other);
        match operation % 8 {
            0 if !is_in => {
                node.add();
                queue.push_front(n);
            }
            1 if !is_in => {
                node.add_tail();
                queue.push_back(n);
            }
            2 => {
                assert_eq!(node.try_add(), !is_in);
                if !is_in {
                    queue.push_front(n);
                }
            }
            3 => {
                assert_eq!(node.try_add_tail(), !is_in);
                if !is_in {
                    queue.push_back(n);
                }
            }
            4 => {
                assert_eq!(node.delete(), is_in);
                queue.retain(|&q| q != n);
            }
            5 => assert_eq!(list.pop_with(|&value| value), queue.pop_front()),
            6 if !is_in && n != other => {
                assert_eq!(node.insert_after(anchor), at_anchor.is_some());
                if let Some(at) = at_anchor {
                    queue.insert(at + 1, n);
                }
            }
            7 if !is_in && n != other => {
                assert_eq!(node.insert_before(anchor), at_anchor.is_some());
                if let Some(at) = at_anchor {
                    queue.insert(at, n);
                }
            }
            _ => {}
        }
        assert_eq!(node.is_in_list(), queue.contains(&n));
        assert_eq!(list.is_empty(), queue.is_empty());
        let mut walked = Vec::new();
        list.for_each(|&value| walked.push(value));
        assert!(walked.iter().eq(&queue), "{walked:?}, expected {queue:?}");
    }
});
