//! `EVENKEEL_STATE`: a folder that an instance's actions share, from its order to its delete.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::ids::InstanceUid;
use evenkeel_store::error::StoreError;

use crate::faults;
use crate::service::{Shared, run_blocking, step_blocking};

const STATE: &str = "state";
const LOOK_UP_AT_ONCE: usize = 500;

fn path(shared: &Shared, instance: InstanceUid) -> PathBuf {
    shared
        .options
        .data_dir
        .join(STATE)
        .join(instance.to_string())
}

/// Makes the folder unless it is there.
///
/// # Errors
/// It cannot be made; the text says where and why.
pub(crate) async fn make(shared: &Arc<Shared>, instance: InstanceUid) -> Result<PathBuf, String> {
    let folder = path(shared, instance);
    let made = folder.clone();
    faults::hit("engine.make_state.before");
    step_blocking(move || {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(made)
    })
    .await
    .map_err(|error| format!("{}: {error}", folder.display()))?;
    faults::hit("engine.make_state.after");
    Ok(folder)
}

/// Removes the folders of instances that are gone: those that a broker left which was killed right
/// after their end was written. Folders of instances that the store does not know are left alone:
/// it may be an older copy.
pub(crate) async fn clear(shared: &Arc<Shared>) -> Result<(), StoreError> {
    for some in list(shared).await.chunks(LOOK_UP_AT_ONCE) {
        for instance in shared.options.store.deleted_instances(some).await? {
            remove(shared, instance).await;
        }
    }
    Ok(())
}

async fn list(shared: &Arc<Shared>) -> Vec<InstanceUid> {
    let folder = shared.options.data_dir.join(STATE);
    let path = folder.clone();
    let names = run_blocking(move || -> io::Result<Vec<_>> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries
            .filter_map(|entry| {
                entry
                    .map(|entry| entry.file_name().to_str()?.parse().ok())
                    .transpose()
            })
            .collect()
    });
    match names.await {
        Ok(Ok(names)) => names,
        Ok(Err(error)) => {
            tracing::warn!(folder = %folder.display(), %error, "state folders cannot be listed");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(folder = %folder.display(), error, "state folders cannot be listed");
            Vec::new()
        }
    }
}

/// Removes the folder of an instance that is gone.
pub(crate) async fn remove(shared: &Arc<Shared>, instance: InstanceUid) {
    let folder = path(shared, instance);
    let gone = folder.clone();
    faults::hit("engine.remove_state.before");
    let removed = match run_blocking(move || fs::remove_dir_all(gone)).await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        tracing::warn!(folder = %folder.display(), error, "a state folder was left behind");
    }
    faults::hit("engine.remove_state.after");
}
