//! When a platform must clean up after an answer that leaves it in doubt (spec.md, "Orphan Mitigation").

/// A request that makes or removes something. Others (catalog, fetch, polls that do not say `failed`) never orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// PUT of an instance.
    Provision,
    /// PATCH of an instance.
    Update,
    /// DELETE of an instance.
    Deprovision,
    /// PUT of a binding.
    Bind,
    /// DELETE of a binding.
    Unbind,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Received {
    /// An answer to the request itself.
    Answer {
        /// The HTTP status.
        status: u16,
        /// Whether the body is what the specification asks for at this status.
        well_formed: bool,
    },
    /// The poll of the request's operation said `failed`.
    OperationFailed,
    /// Nothing until the time limit, or the connection broke: the broker may have acted.
    Nothing,
}

/// What may be left at the broker. The platform deletes it, and goes on trying until that succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Orphan {
    /// The service instance.
    Instance,
    /// The service binding.
    Binding,
}

/// What must be cleaned up after `received` in answer to `action`.
///
/// ```
/// use evenkeel_osb::{Action, Orphan, Received, orphan_mitigation};
///
/// let failed = Received::Answer { status: 500, well_formed: true };
/// assert_eq!(orphan_mitigation(Action::Provision, failed), Some(Orphan::Instance));
/// assert_eq!(orphan_mitigation(Action::Update, failed), None);
/// assert_eq!(orphan_mitigation(Action::Bind, Received::Nothing), Some(Orphan::Binding));
/// assert_eq!(orphan_mitigation(Action::Unbind, Received::Nothing), None);
/// ```
pub fn orphan_mitigation(action: Action, received: Received) -> Option<Orphan> {
    let (target, creates) = match action {
        Action::Provision => (Orphan::Instance, true),
        Action::Deprovision => (Orphan::Instance, false),
        Action::Bind => (Orphan::Binding, true),
        Action::Unbind => (Orphan::Binding, false),
        // An update that went wrong leaves an instance that the platform knows.
        Action::Update => return None,
    };
    let in_doubt = match received {
        Received::OperationFailed => true,
        Received::Nothing => creates,
        Received::Answer { status: 200, .. } => false,
        Received::Answer {
            status: 201 | 202,
            well_formed,
        } => creates && !well_formed,
        Received::Answer { status, .. } => matches!(status, 203..=299 | 500..=599),
    };
    in_doubt.then_some(target)
}
