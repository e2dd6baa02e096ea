//! What the bad jobs do, each time.

/// When a bad job strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// In the step that starts its run.
    Prepare,
    /// While its run goes on, from within it.
    Running,
    /// In the step that watches its run.
    Watch,
    /// Whenever recovery looks at its run.
    Look,
    /// In the step that reads its record.
    Conclude,
    /// In the step that writes its end, whatever that is.
    End,
}

/// What it does then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    KillBroker,
    KillHost,
    /// Has the host restarted in an orderly way: the broker leaves its drain mark.
    Reboot,
    /// Asks the broker to end: it leaves its drain mark, runs go on.
    Sigterm,
    /// Kills its own shim; its tree lives on.
    KillShim,
    /// Dies of a signal that it brings on itself.
    Crash,
    /// Makes the step panic, at a place of its own.
    Panic,
    /// Makes the step panic, at the place where others do.
    PanicLikeOthers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Poison {
    pub(super) at: Moment,
    pub(super) does: Deed,
}

pub(super) const fn poison(at: Moment, does: Deed) -> Option<Poison> {
    Some(Poison { at, does })
}

impl Poison {
    /// Whether it ends its broker in an order that costs nothing (I8): only its deadline ends it.
    pub(super) fn is_orderly(self) -> bool {
        matches!(self.does, Deed::Reboot | Deed::Sigterm)
    }

    /// Whether it may go on until its deadline.
    pub(super) fn meets_its_deadline(self) -> bool {
        self.is_orderly() || self.does == Deed::PanicLikeOthers
    }

    /// Whether it is its run that strikes, or what it takes to watch that run: its shim ends that at
    /// the job's deadline.
    pub(super) fn lives_by_its_run(self) -> bool {
        matches!(self.at, Moment::Running | Moment::Watch)
    }

    /// Whether what it does ends a broker, or its host, without warning.
    pub(super) fn is_deadly(self) -> bool {
        matches!(self.does, Deed::KillBroker | Deed::KillHost)
    }

    pub(super) fn panics(self) -> bool {
        matches!(self.does, Deed::Panic | Deed::PanicLikeOthers)
    }

    /// Whether its run ends by itself: unless it is what strikes, or is watched to death.
    pub(super) fn run_ends(self) -> bool {
        match self.at {
            Moment::Running => matches!(self.does, Deed::KillShim | Deed::Crash),
            Moment::Watch => false,
            Moment::Prepare | Moment::Look | Moment::Conclude | Moment::End => true,
        }
    }

    /// Whether it succeeds where nobody gives it an occasion to strike.
    pub(super) fn may_succeed(self) -> bool {
        self.at == Moment::Look
    }
}
