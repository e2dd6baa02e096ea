//! All jobs that are recorded as running, page by page.

use evenkeel_core::ids::JobId;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::RunningRow;

use crate::service::Shared;

/// Rows that are read at once.
const PAGE: u32 = 500;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pages {
    after: Option<JobId>,
    over: bool,
    cut: bool,
}

impl Pages {
    /// The next page; `None` after the last.
    pub(super) async fn next(
        &mut self,
        shared: &Shared,
    ) -> Result<Option<Vec<RunningRow>>, StoreError> {
        if self.over {
            return Ok(None);
        }
        let rows = shared.options.store.running(self.after, PAGE).await?;
        let last = match rows.last() {
            Some(RunningRow::Sound(job)) => Some(job.id),
            // An id that is none cannot be gone on from: the rest is for the next pass.
            Some(RunningRow::Unreadable { job, .. }) => job.parse().ok(),
            None => return Ok(None),
        };
        let full = rows.len() >= PAGE as usize;
        self.cut = full && last.is_none();
        self.over = !full || self.cut;
        self.after = last;
        Ok(Some(rows))
    }

    /// Whether rows may be left that were not reached.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }
}
