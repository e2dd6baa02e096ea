//! What is noted of a panic where it happens, for the guard that catches it.
//!
//! A panic's payload says neither where it was nor how it came there: only the panic hook is told,
//! on the thread that panics. So the hook leaves a note on that thread, and [`catch`] takes it. A
//! panic that was caught on one thread and is to go on on another ([`Panicked::resume`]) takes its
//! note along: the guard there finds what it would have found, had it panicked there.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// What the hook saw of a panic.
#[derive(Debug)]
struct Noted {
    location: Option<String>,
    thread: Option<String>,
    backtrace: Backtrace,
}

/// A panic that was caught.
#[derive(Debug)]
pub struct Panicked {
    /// Nothing without [`install_hook`].
    noted: Option<Box<Noted>>,
    payload: Box<dyn Any + Send>,
}

impl Panicked {
    /// `file:line:column`, if it is known.
    pub fn place(&self) -> Option<&str> {
        self.noted.as_ref()?.location.as_deref()
    }

    /// The name of the thread that panicked, if it has one.
    pub fn thread(&self) -> Option<&str> {
        self.noted.as_ref()?.thread.as_deref()
    }

    /// What it said, if that is a literal of the sources: what was put together at run time may
    /// hold what a request said.
    pub fn said(&self) -> Option<&'static str> {
        self.payload.downcast_ref::<&'static str>().copied()
    }

    /// How it came to its place, as the standard library writes backtraces. Slow: names are looked
    /// up only now.
    pub fn backtrace(&self) -> String {
        let Some(noted) = &self.noted else {
            return String::new();
        };
        // Looking up names runs code that is not ours, over a process that just panicked.
        panic::catch_unwind(AssertUnwindSafe(|| noted.backtrace.to_string())).unwrap_or_default()
    }

    /// Goes on with it on this thread, for the guard that catches it here.
    pub fn resume(self) -> ! {
        // No hook is told of this one. Left as the hook would leave it, its note also tells the
        // hook that a panic is under way, should a destructor panic on the way to the guard. A
        // thread that is ending has no place for it any more.
        drop(NOTED.try_with(|cell| cell.replace(self.noted)));
        panic::resume_unwind(self.payload)
    }
}

/// Where it was, and none of its words.
impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "panicked at {place}"),
            None => f.write_str("panicked at an unknown place"),
        }
    }
}

thread_local! {
    // Between a panic and the guard that catches it there is no other code of this thread but
    // destructors, so the last panic of the thread is the caught one.
    static NOTED: RefCell<Option<Box<Noted>>> = const { RefCell::new(None) };
    // Whether a guard is at work on this thread: what panics then, that guard catches.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// While a guard is at work. Others catch panics too (of handlers, the store) and take no note:
/// what the outermost guard finds noted is of no panic that is still under way.
struct Guarded {
    before: bool,
}

impl Guarded {
    fn enter() -> Self {
        let before = GUARDED.replace(true);
        if !before && !std::thread::panicking() {
            NOTED.take();
        }
        Self { before }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        GUARDED.set(self.before);
    }
}

/// Does something to its end, or to its panic. After a panic nobody may rely on what it was doing:
/// what it left half done is only to be dropped.
///
/// # Errors
/// It panicked.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let _guarded = Guarded::enter();
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked {
        noted: NOTED.take(),
        payload,
    })
}

/// Notes a panic for the guard that catches it. Says whether another panic of the same work is
/// under way.
fn note(noted: Noted) -> bool {
    // A thread that is ending has no place for it any more.
    let earlier = NOTED.try_with(|cell| cell.replace(Some(Box::new(noted))));
    let guarded = GUARDED.try_with(Cell::get);
    matches!((earlier, guarded), (Ok(Some(_)), Ok(true)))
}

/// Has every panic leave its location, and the way that it came, for the guard that catches it.
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let noted = Noted {
                location: info.location().map(ToString::to_string),
                thread: std::thread::current().name().map(ToOwned::to_owned),
                // Addresses only: names are looked up by whoever wants to know them.
                backtrace: Backtrace::force_capture(),
            };
            if note(noted) {
                // A destructor may have panicked while another panic unwound, and this process is
                // about to abort. The usual words would come with a backtrace, which takes seconds
                // to write: long enough for others to come in beside whoever is to blame.
                drop(writeln!(std::io::stderr(), "{info}"));
            } else {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        static USUAL_WORDS: Cell<u32> = const { Cell::new(0) };
    }

    /// The hook, over one that counts in place of the usual words.
    pub(crate) fn install_hook() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            panic::set_hook(Box::new(|_| USUAL_WORDS.set(USUAL_WORDS.get() + 1)));
            super::install_hook();
        });
    }

    /// What panics and is caught by somebody else, as a handler is.
    fn of_others(text: &'static str) {
        panic::catch_unwind(|| panic!("{text}")).unwrap_err();
    }

    /// Panics when it is dropped, as in a destructor while a panic unwinds, short of the end of
    /// this process.
    struct PanicsToo;

    impl Drop for PanicsToo {
        fn drop(&mut self) {
            of_others("the second");
        }
    }

    /// A panic of another thread, caught there.
    fn elsewhere(work: impl FnOnce() + Send + 'static) -> Panicked {
        let thread = std::thread::Builder::new().name("elsewhere".to_owned());
        let caught = thread.spawn(|| catch(work)).unwrap().join().unwrap();
        caught.unwrap_err()
    }

    #[test]
    fn panics_that_others_caught_before_take_no_words_from_later_ones() {
        install_hook();
        of_others("a handler");
        of_others("another handler on the same thread");
        assert_eq!(USUAL_WORDS.get(), 2);
        let caught = catch::<()>(|| panic!("a step")).unwrap_err();
        assert_eq!(USUAL_WORDS.get(), 3);
        assert_eq!(caught.said(), Some("a step"));
        of_others("a handler after it");
        assert_eq!(USUAL_WORDS.get(), 4);
    }

    #[test]
    fn a_second_panic_of_the_same_work_is_told_shortly() {
        install_hook();
        let twice = || {
            let _panics = PanicsToo;
            panic!("the first");
        };
        catch::<()>(twice).unwrap_err();
        assert_eq!(USUAL_WORDS.get(), 1, "of the first only");
        catch::<()>(|| panic!("of other work")).unwrap_err();
        assert_eq!(USUAL_WORDS.get(), 2);
    }

    #[test]
    fn a_panic_that_goes_on_on_another_thread_keeps_its_place_thread_and_words() {
        install_hook();
        let line = line!() + 1;
        let first = elsewhere(|| panic!("on purpose"));
        let here = catch::<()>(|| first.resume()).unwrap_err();
        let place = here.place().unwrap();
        assert!(place.contains(&format!("panics.rs:{line}:")), "{place}");
        assert_eq!(here.thread(), Some("elsewhere"));
        assert_eq!(here.said(), Some("on purpose"));
        let way = here.backtrace();
        assert!(way.contains("keeps_its_place_thread_and_words"), "{way}");
        assert_eq!(here.to_string(), format!("panicked at {place}"));
        assert_eq!(USUAL_WORDS.get(), 0, "it was told where it happened");
    }

    #[test]
    fn the_hook_knows_of_a_panic_under_way_that_came_from_another_thread() {
        install_hook();
        let first = elsewhere(|| panic!("the first"));
        let goes_on = || {
            let _panics = PanicsToo;
            first.resume();
        };
        catch::<()>(goes_on).unwrap_err();
        assert_eq!(USUAL_WORDS.get(), 0, "it is told shortly");
        catch::<()>(|| panic!("of other work")).unwrap_err();
        assert_eq!(USUAL_WORDS.get(), 1);
    }

    #[test]
    fn a_panic_of_which_nothing_was_noted_gets_no_place_of_another_one() {
        install_hook();
        let unplaced = Panicked {
            noted: None,
            payload: Box::new("a literal"),
        };
        let goes_on = || {
            of_others("a handler, in the same poll");
            unplaced.resume();
        };
        let caught = catch::<()>(goes_on).unwrap_err();
        assert_eq!(caught.place(), None);
        assert_eq!(caught.backtrace(), "");
        assert_eq!(caught.to_string(), "panicked at an unknown place");
    }

    #[test]
    fn of_guards_within_each_other_the_inner_one_catches_and_the_outer_one_goes_on() {
        install_hook();
        let line = line!() + 4;
        let both = || {
            let first = elsewhere(|| panic!("of the inner one"));
            catch::<()>(|| first.resume()).unwrap_err();
            panic!("of the outer one");
        };
        let outer = catch::<()>(both).unwrap_err();
        assert_eq!(outer.said(), Some("of the outer one"));
        assert!(
            outer
                .place()
                .unwrap()
                .contains(&format!("panics.rs:{line}:"))
        );
        assert_eq!(USUAL_WORDS.get(), 1, "told in full: no other is under way");
    }

    /// I16.
    #[test]
    fn words_that_were_put_together_are_in_nothing_that_is_told_of_a_panic() {
        install_hook();
        let parameter = "hunter2".to_owned();
        let caught = elsewhere(move || panic!("no such thing: {parameter}"));
        assert_eq!(caught.said(), None);
        for told in [
            caught.to_string(),
            format!("{caught:?}"),
            caught.backtrace(),
        ] {
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
