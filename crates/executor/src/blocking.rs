//! Work that may wait for a disk or a lock, on the runtime's threads for it.
//!
//! What a driving step hands over in this way stays the step's: it is named in the black box there
//! too, and its panic is caught there, so that whoever waits for it can go on with the panic as one
//! of its own, with the place and the way that were noted on the other thread.

use evenkeel_run::blackbox::carried;

use crate::panics::{self, Panicked};

/// Why work came to no result.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// It panicked.
    #[error("the work on it {0}")]
    Panicked(Panicked),
    /// The runtime is ending, and did not begin it any more.
    #[error("the broker is ending")]
    CutOff,
}

/// Does it, whether or not somebody still waits for it by then.
///
/// # Errors
/// See [`Unfinished`].
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let work = carried(work);
    match tokio::task::spawn_blocking(move || panics::catch(work)).await {
        Ok(done) => done.map_err(Unfinished::Panicked),
        // Nothing can panic outside of the guard.
        Err(_) => Err(Unfinished::CutOff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panics::tests::install_hook;

    #[tokio::test]
    async fn a_panic_comes_back_with_its_place_and_none_of_its_words() {
        install_hook();
        let parameter = "hunter2".to_owned();
        let line = line!() + 1;
        let done = run::<()>(move || panic!("no such thing: {parameter}")).await;
        let error = done.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("blocking.rs:{line}:")), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(run(|| 7).await.unwrap(), 7, "the next one is done");
    }
}
