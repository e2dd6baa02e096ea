//! Holds the present catalog, and finds pinned content by digest.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use evenkeel_core::ids::BundleDigest;
use evenkeel_core::time::Timestamp;
use uuid::Uuid;

use super::{COPIES, Catalog, Pinned, content, load};

/// Pinned bundles kept in memory beside the present catalog.
const MAX_REMEMBERED: usize = 256;

#[derive(Debug)]
pub(crate) struct Keeper {
    roots: Vec<PathBuf>,
    data: PathBuf,
    namespace: Uuid,
    current: RwLock<Arc<Catalog>>,
    remembered: Mutex<HashMap<BundleDigest, Pinned>>,
}

impl Keeper {
    pub(crate) fn new(roots: Vec<PathBuf>, data: PathBuf, namespace: Uuid, now: Timestamp) -> Self {
        let empty = Catalog {
            services: Default::default(),
            problems: Vec::new(),
            loaded_at: now,
        };
        Self {
            roots,
            data,
            namespace,
            current: RwLock::new(Arc::new(empty)),
            remembered: Mutex::new(HashMap::new()),
        }
    }

    fn copies(&self) -> PathBuf {
        self.data.join(COPIES)
    }

    pub(crate) fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the folders again. Blocking.
    pub(crate) fn reload(&self, now: Timestamp) -> Arc<Catalog> {
        let catalog = Arc::new(load::load(&self.roots, &self.data, self.namespace, now));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&catalog);
        catalog
    }

    /// The pinned content of this digest, offered now or not. Blocking.
    ///
    /// # Errors
    /// The copy is missing or damaged.
    pub(crate) fn pinned(&self, digest: BundleDigest) -> io::Result<Pinned> {
        if let Some(pinned) = self
            .current()
            .services
            .values()
            .find(|pinned| pinned.digest == digest)
        {
            return Ok(pinned.clone());
        }
        if let Some(pinned) = self.remembered().get(&digest) {
            return Ok(pinned.clone());
        }
        let bundle = content::snapshot(&self.copies(), digest)?;
        for plan in &bundle.plans {
            plan.schemas.compile();
        }
        let pinned = Pinned {
            digest,
            bundle: Arc::new(bundle),
            folder: content::copy_of(&self.copies(), digest),
        };
        let mut remembered = self.remembered();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        // Of two that read the same, both keep the first.
        let pinned = remembered.entry(digest).or_insert(pinned).clone();
        Ok(pinned)
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<BundleDigest, Pinned>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const YAML: &str = "bundle: 1
service: {name: db, description: A test}
plans:
  - name: small
    description: The only one
    schemas:
      bind: {$schema: 'http://json-schema.org/draft-04/schema#', required: [a]}
actions:
  provision: {command: [sh]}
  bind: {command: [sh]}
  unbind: {command: [sh]}
  deprovision: {command: [sh]}
";

    #[test]
    fn what_has_left_the_catalog_is_read_once_and_its_schemas_go_on_to_hold() {
        let root = tempfile::tempdir().unwrap();
        let offers = root.path().join("offers/db");
        fs::create_dir_all(&offers).unwrap();
        fs::write(offers.join("bundle.yml"), YAML).unwrap();
        let roots = vec![root.path().join("offers")];
        let keeper = Keeper::new(roots, root.path().to_owned(), Uuid::nil(), Timestamp(0));
        let loaded = keeper.reload(Timestamp(1));
        let digest = loaded.services.values().next().unwrap().digest;
        fs::remove_dir_all(&offers).unwrap();
        assert!(keeper.reload(Timestamp(2)).services.is_empty());

        let (first, second) = (
            keeper.pinned(digest).unwrap(),
            keeper.pinned(digest).unwrap(),
        );
        assert!(Arc::ptr_eq(&first.bundle, &second.bundle));
        let schema = first.bundle.plans[0].schemas.bind.as_ref().unwrap();
        assert!(schema.violation(&Default::default()).unwrap().is_some());
    }
}
