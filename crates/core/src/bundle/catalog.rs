//! What must be unique over all bundles of a catalog.

use std::collections::BTreeMap;
use std::fmt;

use super::Bundle;

/// What two bundles both claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Claim {
    /// The name of the offering.
    ServiceName,
    /// The id of the offering or of a plan: both are unique together.
    Id,
    /// The id of the dashboard's OAuth client.
    DashboardClientId,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceName => "service name",
            Self::Id => "service or plan id",
            Self::DashboardClientId => "dashboard client id",
        })
    }
}

/// Why a bundle is left out of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bundle {folder:?} is skipped: its {claim} {value:?} belongs to bundle {holder:?}")]
pub struct CatalogError {
    /// The folder of the bundle that is left out.
    pub folder: String,
    /// The folder of the bundle that was first.
    pub holder: String,
    /// What both claim.
    pub claim: Claim,
    /// The name or id in question.
    pub value: String,
}

/// Decides which bundles make up the catalog: names and ids of offerings, ids of plans and ids
/// of dashboard clients belong to the first bundle, in the order of folder names. A later one
/// that claims any of them is left out as a whole, so that its other ids stay free.
///
/// Returns the indexes of the accepted bundles in the order of folder names, and every claim
/// that was refused.
pub fn check_catalog(bundles: &[(&str, &Bundle)]) -> (Vec<usize>, Vec<CatalogError>) {
    let mut order: Vec<usize> = (0..bundles.len()).collect();
    order.sort_by_key(|index| bundles[*index].0);
    let mut held: BTreeMap<(Claim, &str), &str> = BTreeMap::new();
    let mut accepted = Vec::new();
    let mut errors = Vec::new();
    for index in order {
        let (folder, bundle) = bundles[index];
        let claims = claims_of(bundle);
        let refused = claims.iter().filter_map(|(claim, value)| {
            let holder = held.get(&(*claim, *value))?;
            Some(CatalogError {
                folder: folder.to_owned(),
                holder: (*holder).to_owned(),
                claim: *claim,
                value: (*value).to_owned(),
            })
        });
        let before = errors.len();
        errors.extend(refused);
        if errors.len() == before {
            held.extend(claims.into_iter().map(|claim| (claim, folder)));
            accepted.push(index);
        }
    }
    (accepted, errors)
}

fn claims_of(bundle: &Bundle) -> Vec<(Claim, &str)> {
    let service = &bundle.service;
    let mut claims = vec![
        (Claim::ServiceName, service.name.as_str()),
        (Claim::Id, service.id.as_str()),
    ];
    claims.extend(
        bundle
            .plans
            .iter()
            .map(|plan| (Claim::Id, plan.id.as_str())),
    );
    let client = service.dashboard_client.as_ref();
    claims.extend(client.map(|client| (Claim::DashboardClientId, client.id.as_str())));
    claims
}
