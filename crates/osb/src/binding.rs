//! What brokers answer about bindings.

use serde::Serialize;

use crate::answer::InProgress;
use crate::body::BadRequest;
use crate::catalog::Requires;
use crate::endpoint::Endpoint;
use crate::fields::{Fields, FromObject};
use crate::secret::SecretObject;
use crate::timestamp::Timestamp;

/// Until when a binding is good.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BindingMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_before: Option<Timestamp>,
}

impl BindingMetadata {
    /// None when `renew_before` comes after `expires_at`.
    pub fn new(expires_at: Option<Timestamp>, renew_before: Option<Timestamp>) -> Option<Self> {
        let in_order = match (&expires_at, &renew_before) {
            (Some(expires_at), Some(renew_before)) => renew_before <= expires_at,
            (None, _) | (_, None) => true,
        };
        in_order.then_some(Self {
            expires_at,
            renew_before,
        })
    }

    /// When it stops to work.
    pub fn expires_at(&self) -> Option<&Timestamp> {
        self.expires_at.as_ref()
    }

    /// When it should have been rotated; not after [`expires_at`](Self::expires_at).
    pub fn renew_before(&self) -> Option<&Timestamp> {
        self.renew_before.as_ref()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl FromObject for BindingMetadata {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let time = |name: &str| -> Result<Option<Timestamp>, BadRequest> {
            let text = fields.text(name)?;
            text.map(|text| {
                text.parse()
                    .map_err(|error: crate::TimestampError| fields.bad(name, error.to_string()))
            })
            .transpose()
        };
        Self::new(time("expires_at")?, time("renew_before")?)
            .ok_or_else(|| fields.bad("renew_before", "must not be after expires_at"))
    }
}

/// How an application may use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum MountMode {
    /// Read only.
    #[serde(rename = "r")]
    Read,
    /// Read and write.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// A volume to mount into an application. `device_type` has one value, `shared`, and is written by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeMount {
    /// The volume driver on the platform.
    pub driver: String,
    /// Where in the application's container.
    pub container_dir: String,
    /// Read only or not.
    pub mode: MountMode,
    /// The volume.
    pub volume_id: String,
    /// What the driver is to know; empty when nothing.
    pub mount_config: SecretObject,
}

impl Serialize for VolumeMount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Device<'a> {
            volume_id: &'a str,
            #[serde(skip_serializing_if = "SecretObject::is_empty")]
            mount_config: &'a SecretObject,
        }
        #[derive(Serialize)]
        struct Wire<'a> {
            driver: &'a str,
            container_dir: &'a str,
            mode: MountMode,
            device_type: &'a str,
            device: Device<'a>,
        }
        Wire {
            driver: &self.driver,
            container_dir: &self.container_dir,
            mode: self.mode,
            device_type: "shared",
            device: Device {
                volume_id: &self.volume_id,
                mount_config: &self.mount_config,
            },
        }
        .serialize(serializer)
    }
}

impl FromObject for VolumeMount {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        if fields.required_text("device_type")? != "shared" {
            return Err(fields.bad("device_type", "must be \"shared\""));
        }
        let device = fields
            .nested("device")?
            .ok_or_else(|| fields.bad("device", "is missing: an object is required"))?;
        Ok(Self {
            driver: fields.required_text("driver")?,
            container_dir: fields.required_text("container_dir")?,
            mode: match fields.required_text("mode")?.as_str() {
                "r" => MountMode::Read,
                "rw" => MountMode::ReadWrite,
                _ => return Err(fields.bad("mode", "must be \"r\" or \"rw\"")),
            },
            volume_id: device.required_text("volume_id")?,
            mount_config: device.map("mount_config")?.unwrap_or_default().into(),
        })
    }
}

/// A binding: the body of a 200 or 201 to a bind.
///
/// ```
/// use evenkeel_osb::{Binding, BindingMetadata, BindingRule, Endpoint, MountMode, Ports, Protocol, Requires, VolumeMount};
/// use serde_json::{json, to_value};
///
/// let ports = vec![Ports::one(5432).unwrap(), Ports::range(6000, 6010).unwrap()];
/// let binding = Binding {
///     metadata: BindingMetadata::new(
///         Some("2030-01-31T00:00:00Z".parse()?),
///         Some("2030-01-24T00:00:00Z".parse()?),
///     )
///     .expect("renewed before it expires"),
///     endpoints: vec![Endpoint::new("db.example", ports, Protocol::Tcp).expect("a host and ports")],
///     volume_mounts: vec![VolumeMount {
///         driver: "nfs".into(),
///         container_dir: "/data".into(),
///         mode: MountMode::ReadWrite,
///         volume_id: "v-1".into(),
///         mount_config: Default::default(),
///     }],
///     ..Binding::default()
/// };
/// assert_eq!(binding.check(&[]), Err(BindingRule::VolumeMountNotRequired));
/// assert_eq!(binding.check(&[Requires::VolumeMount]), Ok(()));
/// let wire = to_value(&binding)?;
/// assert_eq!(wire["endpoints"], json!([{ "host": "db.example", "ports": ["5432", "6000-6010"] }]));
/// assert_eq!(wire["metadata"]["expires_at"], "2030-01-31T00:00:00.0Z");
/// assert_eq!(wire.get("credentials"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Binding {
    /// Until when it is good.
    #[serde(skip_serializing_if = "BindingMetadata::is_empty")]
    pub metadata: BindingMetadata,
    /// What the application logs in with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretObject>,
    /// Where the application's logs go; see [`Requires::SyslogDrain`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog_drain_url: Option<String>,
    /// The proxy in front of the application; see [`Requires::RouteForwarding`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_service_url: Option<String>,
    /// Volumes; see [`Requires::VolumeMount`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// All network endpoints that the application needs to reach; empty when they are not told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
}

/// A binding that its service offering's `requires` does not allow. Cloud Foundry refuses it and starts orphan
/// mitigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindingRule {
    /// Not allowed.
    #[error("syslog_drain_url needs \"syslog_drain\" in the service's requires")]
    SyslogDrainNotRequired,
    /// Required.
    #[error("the service requires \"syslog_drain\": syslog_drain_url must be given")]
    SyslogDrainMissing,
    /// Not allowed.
    #[error("route_service_url needs \"route_forwarding\" in the service's requires")]
    RouteForwardingNotRequired,
    /// Platforms take https only.
    #[error("route_service_url must be https:// with a host")]
    RouteServiceUrl,
    /// Not allowed.
    #[error("volume_mounts need \"volume_mount\" in the service's requires")]
    VolumeMountNotRequired,
}

impl Binding {
    /// Checks the binding against what its service offering requires.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, requires: &[Requires]) -> Result<(), BindingRule> {
        let syslog_drain = requires.contains(&Requires::SyslogDrain);
        if self.syslog_drain_url.is_some() && !syslog_drain {
            return Err(BindingRule::SyslogDrainNotRequired);
        }
        if self.syslog_drain_url.is_none() && syslog_drain {
            return Err(BindingRule::SyslogDrainMissing);
        }
        if let Some(url) = &self.route_service_url {
            if !requires.contains(&Requires::RouteForwarding) {
                return Err(BindingRule::RouteForwardingNotRequired);
            }
            let authority = url
                .strip_prefix("https://")
                .and_then(|rest| rest.split(['/', '?', '#']).next());
            if authority.is_none_or(|authority| authority.is_empty() || authority.starts_with(':'))
            {
                return Err(BindingRule::RouteServiceUrl);
            }
        }
        if !self.volume_mounts.is_empty() && !requires.contains(&Requires::VolumeMount) {
            return Err(BindingRule::VolumeMountNotRequired);
        }
        Ok(())
    }
}

impl FromObject for Binding {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            metadata: fields.read("metadata")?.unwrap_or_default(),
            credentials: fields.map("credentials")?.map(SecretObject::from),
            syslog_drain_url: fields.text("syslog_drain_url")?,
            route_service_url: fields.text("route_service_url")?,
            volume_mounts: fields.list("volume_mounts")?,
            endpoints: fields.list("endpoints")?,
        })
    }
}

/// The answer to a bind. A binding in progress has no credentials to show:
///
/// ```compile_fail,E0308
/// use evenkeel_osb::{BindAnswer, Binding};
/// BindAnswer::InProgress(Binding::default());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum BindAnswer {
    /// 201: made by this request.
    Created(Binding),
    /// 200: was there, with the same attributes.
    Exists(Binding),
    /// 202: being made; only when the request accepts it.
    InProgress(InProgress),
}

impl BindAnswer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Created(_) => 201,
            Self::Exists(_) => 200,
            Self::InProgress(_) => 202,
        }
    }
}

/// `GET …/service_bindings/:binding_id`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BindingDetails {
    /// The binding.
    #[serde(flatten)]
    pub binding: Binding,
    /// Its parameters, or those that the broker shows.
    #[serde(skip_serializing_if = "SecretObject::is_empty")]
    pub parameters: SecretObject,
}

impl FromObject for BindingDetails {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            binding: Binding::from_fields(fields)?,
            parameters: fields.map("parameters")?.unwrap_or_default().into(),
        })
    }
}
