//! A boundary that a panic does not cross, and that knows where it happened.

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Once;

use crate::service::panic_text;

/// A panic that was caught.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caught {
    /// `file:line:column`.
    pub(crate) location: String,
    /// What it said.
    pub(crate) message: String,
}

thread_local! {
    // Between a panic and the guard that catches it there is no other code of this thread but
    // destructors, so the last location of the thread is the caught one's.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has every panic leave its location for the guard that catches it.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            LOCATION.with(|cell| cell.replace(location));
            before(info);
        }));
    });
}

/// Polls `task` to its end, or to its panic.
pub(crate) async fn catch<T>(task: AssertUnwindSafe<impl Future<Output = T>>) -> Result<T, Caught> {
    let mut task = pin!(task.0);
    poll_fn(move |context| {
        // After a panic the task is never polled again: what it left half done is only dropped.
        panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))).map_or_else(
            |payload| {
                std::task::Poll::Ready(Err(Caught {
                    location: LOCATION
                        .with(RefCell::take)
                        .unwrap_or_else(|| "unknown".to_owned()),
                    message: panic_text(&*payload),
                }))
            },
            |poll| poll.map(Ok),
        )
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_with_its_place_and_its_words() {
        install_hook();
        let task = async {
            tokio::task::yield_now().await;
            panic!("on purpose {}", 1);
        };
        let caught = catch::<()>(AssertUnwindSafe(task)).await.unwrap_err();
        assert_eq!(caught.message, "on purpose 1");
        assert!(caught.location.contains("guard.rs:"), "{caught:?}");
    }

    #[tokio::test]
    async fn what_does_not_panic_passes() {
        assert_eq!(catch(AssertUnwindSafe(async { 7 })).await, Ok(7));
    }
}
