//! Fakes the stack of calls of each thread, so that tests know which call allocated a block.

use std::cell::RefCell;

thread_local!(static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });

/// Runs `work` as if it were called from this address.
pub fn call<R>(address: usize, work: impl FnOnce() -> R) -> R {
    CALLS.with(|calls| calls.borrow_mut().push(address));
    let result = work();
    CALLS.with(|calls| calls.borrow_mut().pop());
    result
}

/// Writes the calling thread's calls to `out`, the innermost first. `None` if there are none.
pub(crate) fn calls(out: &mut [usize]) -> Option<usize> {
    CALLS.with(|calls| {
        let calls = calls.borrow();
        let depth = calls.len().min(out.len());
        out.iter_mut().zip(calls.iter().rev()).for_each(|(to, from)| *to = *from);
        (depth > 0).then_some(depth)
    })
}
