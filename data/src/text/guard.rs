//! Turns a panic of a library that parses untrusted files into an error.
//!
//! Such a panic ends only its call and prints nothing; panics elsewhere are shown as usual.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `call` and turns a panic into an error. After an error, discard any state that `call` changed.
pub(super) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let shown = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                shown(panic);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(before);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("the library that reads it failed: {}", text.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_ends_its_call_alone() {
        assert_eq!(guarded(|| 3), Ok(3));
        let error = guarded(|| [1, 2][std::hint::black_box(7)]).unwrap_err();
        assert!(
            error.starts_with("the library that reads it failed: index out of bounds"),
            "{error}"
        );
        assert_eq!(guarded(|| guarded(|| panic!("{}", "inner"))).unwrap().err().unwrap().len(), 39);
    }
}
