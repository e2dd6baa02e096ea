//! Holds the present catalog, and finds pinned content by digest.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = remembered.get(&digest) {
            return Ok(pinned.clone());
        }
        let pinned = Pinned {
            digest,
            bundle: Arc::new(content::snapshot(&self.copies(), digest)?),
            folder: content::copy_of(&self.copies(), digest),
        };
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(digest, pinned.clone());
        Ok(pinned)
    }
}
