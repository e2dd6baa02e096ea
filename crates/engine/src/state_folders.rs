//! `EVENKEEL_STATE`: a folder that an instance's actions share, from its order to its delete.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::ids::InstanceUid;

use crate::service::{Shared, run_blocking};

fn path(shared: &Shared, instance: InstanceUid) -> PathBuf {
    shared
        .options
        .data_dir
        .join("state")
        .join(instance.to_string())
}

/// Makes the folder unless it is there.
///
/// # Errors
/// It cannot be made; the text says where and why.
pub(crate) async fn make(shared: &Arc<Shared>, instance: InstanceUid) -> Result<PathBuf, String> {
    let folder = path(shared, instance);
    let made = folder.clone();
    run_blocking(move || {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(made)
    })
    .await?
    .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Removes the folder of an instance that is gone.
pub(crate) async fn remove(shared: &Arc<Shared>, instance: InstanceUid) {
    let folder = path(shared, instance);
    let gone = folder.clone();
    let removed = match run_blocking(move || fs::remove_dir_all(gone)).await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        tracing::warn!(folder = %folder.display(), error, "a state folder was left behind");
    }
}
