//! What a binding may hand out: what its offering's `requires` makes platforms grant.

use super::said;
use crate::bundle::Requirement;
use crate::request::Outputs;

impl Outputs {
    /// Whether platforms take a binding with these outputs from an offering that `requires` so
    /// much (specification, "Service Offering Object" and "Binding"; Cloud Foundry cleans a
    /// binding up that hands out what was not granted).
    ///
    /// # Errors
    /// What the action wrote, or did not, and what would have to stand in the bundle.
    pub fn check_granted(&self, requires: &[Requirement]) -> Result<(), String> {
        let volumes = self.volume_mounts.as_ref();
        let parts = [
            (
                "syslog_drain_url",
                said(self.syslog_drain_url.as_deref()).is_some(),
                Requirement::SyslogDrain,
                "syslog_drain",
            ),
            (
                "route_service_url",
                said(self.route_service_url.as_deref()).is_some(),
                Requirement::RouteForwarding,
                "route_forwarding",
            ),
            (
                "volume_mounts",
                volumes.is_some_and(|mounts| !mounts.is_empty()),
                Requirement::VolumeMount,
                "volume_mount",
            ),
        ];
        for (field, written, requirement, word) in parts {
            if written && !requires.contains(&requirement) {
                return Err(format!(
                    "`{field}` in the output needs {word:?} in the service's `requires`"
                ));
            }
        }
        // A binding of an offering that also forwards routes may be one of a route, which drains
        // nothing.
        let drains = requires.contains(&Requirement::SyslogDrain)
            && !requires.contains(&Requirement::RouteForwarding);
        if drains && said(self.syslog_drain_url.as_deref()).is_none() {
            return Err(
                "the service requires syslog_drain, so that `syslog_drain_url` must be in the output"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(document: Value, requires: &[Requirement]) -> Result<(), String> {
        Outputs::checked(document).unwrap().check_granted(requires)
    }

    #[test]
    fn what_is_handed_out_has_to_be_granted() {
        let drain = json!({ "syslog_drain_url": "syslog://logs.example:514" });
        let route = json!({ "route_service_url": "https://route.example" });
        let mount = json!({
            "driver": "nfs", "container_dir": "/data", "mode": "rw", "device_type": "shared",
            "device": { "volume_id": "v" },
        });
        let volumes = json!({ "volume_mounts": [mount] });
        for (document, requirement) in [
            (drain, Requirement::SyslogDrain),
            (route, Requirement::RouteForwarding),
            (volumes, Requirement::VolumeMount),
        ] {
            assert_eq!(checked(document.clone(), &[requirement]), Ok(()));
            let error = checked(document, &[]).unwrap_err();
            assert!(error.contains("`requires`"), "{error}");
        }
        assert_eq!(
            checked(json!({ "volume_mounts": [], "credentials": {} }), &[]),
            Ok(())
        );
    }

    #[test]
    fn a_drain_that_is_required_has_to_be_there() {
        let error = checked(json!({ "credentials": {} }), &[Requirement::SyslogDrain]).unwrap_err();
        assert!(error.contains("syslog_drain_url"), "{error}");
    }
}
