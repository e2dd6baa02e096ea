//! Panics of a request handler: caught where they happen, told with their place.
//!
//! A caught panic's payload does not say where it was raised, only the panic hook is told. So a
//! hook notes the place for the thread, and whoever catches the panic on that thread takes it.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug)]
pub(crate) struct Caught {
    /// `file:line:column`.
    pub(crate) place: String,
    /// What may be logged of its words: what was put together at run time may hold what the request
    /// said.
    pub(crate) said: &'static str,
}

/// Has the places of panics noted from now on, before whatever hook there is.
pub(crate) fn note_places() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string);
            // A thread that is ending has no place for it any more.
            PLACE.try_with(|noted| *noted.borrow_mut() = place).ok();
            before(info);
        }));
    });
}

/// Carries a future through, or to its panic.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Caught> {
    let mut future = pin!(future);
    poll_fn(|context| {
        // What the future shares with others is behind its own locks; the future itself is
        // dropped after a panic and never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(payload) => Poll::Ready(Err(Caught {
                place: PLACE
                    .with(|noted| noted.borrow_mut().take())
                    .unwrap_or_else(|| "an unknown place".to_owned()),
                said: said(&*payload),
            })),
        }
    })
    .await
}

fn said(payload: &(dyn Any + Send)) -> &'static str {
    let literal = payload.downcast_ref::<&'static str>().copied();
    literal.unwrap_or("(put together at run time: on the broker's raw standard error only)")
}
