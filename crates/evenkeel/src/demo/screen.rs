//! What a person watches: a line for each event, and below them, on a terminal, how all stands.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::ledger::Ledger;
use crate::output;

/// Without a terminal the state is told as seldom.
const TELL_EVERY: Duration = Duration::from_secs(5);
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Screen {
    pub(super) fn new() -> Self {
        let bar = output::is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Self {
            began: Instant::now(),
            bar,
        }
    }

    /// Something that happened just now.
    pub(super) fn tell(&self, text: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.line(&format!("{seconds:6.1} s  {text}"));
    }

    /// A line as it is.
    pub(super) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => output::note(text),
        }
    }

    /// Says how all stands, until it is dropped.
    pub(super) async fn keep_up(&self, ledger: &Ledger) {
        let every = if self.bar.is_some() {
            REDRAW_EVERY
        } else {
            TELL_EVERY
        };
        loop {
            tokio::time::sleep(every).await;
            let text = {
                let counts = ledger.open();
                format!(
                    "{} operations accepted, {} under way; {} of {} connections refused",
                    counts.operations.len(),
                    counts.operations.len() - counts.ended(),
                    counts.refused,
                    counts.connections,
                )
            };
            match &self.bar {
                Some(bar) => {
                    bar.set_message(text);
                    bar.tick();
                }
                None => self.tell(&text),
            }
        }
    }

    /// Leaves the lines, and nothing below them.
    pub(super) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
