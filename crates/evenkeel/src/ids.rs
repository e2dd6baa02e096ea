//! Ids that the command line makes up.

use evenkeel_engine::world::{RealWorld, World as _};

/// A fresh UUID.
pub(crate) fn fresh() -> String {
    RealWorld.id().to_string()
}
