//! Panics that are part of the game: the swarm catches them and judges them, so they are not printed.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `game` without printing the panics of this thread.
pub fn quietly<T>(game: impl FnOnce() -> T) -> T {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = game();
    QUIET.set(false);
    result
}
