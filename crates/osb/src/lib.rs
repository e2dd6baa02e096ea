//! The Open Service Broker API v2.17 on the wire, for brokers and platforms.

mod answer;
mod bind_request;
mod binding;
mod body;
pub mod catalog;
#[cfg(feature = "client")]
pub mod client;
mod endpoint;
mod error;
mod fields;
pub mod headers;
mod mitigation;
mod operation;
mod request;
mod secret;
mod timestamp;
mod uri;

pub use answer::{
    DeleteAnswer, InProgress, InstanceDetails, InstanceInProgress, InstanceInfo, InstanceMetadata,
    ProvisionAnswer, UpdateAnswer,
};
pub use bind_request::{BindDetails, BindRequest, BindResource, NewBinding, Rotation};
pub use binding::{
    BindAnswer, Binding, BindingDetails, BindingMetadata, BindingRule, MountMode, VolumeMount,
};
pub use body::{BadRequest, MAX_DEPTH, parse_body};
pub use catalog::{
    Catalog, CatalogProblem, DashboardClient, Plan, Requires, Schemas, ServiceOffering,
};
pub use endpoint::{Endpoint, Ports, PortsError, Protocol};
pub use error::{DeprovisionError, ErrorBody, ErrorCode, MAX_DESCRIPTION_BYTES, UpdateError};
pub use fields::{Fields, FromObject};
pub use headers::{
    ApiVersion, ApiVersionError, IdentityError, OriginatingIdentity, RequestIdentity, RetryAfter,
    RetryAfterError,
};
pub use mitigation::{Action, Orphan, Received, orphan_mitigation};
pub use operation::{
    InstanceLastOperation, LastOperation, MAX_OPERATION_CHARS, Operation, OperationError,
    OperationState,
};
pub use request::{Context, MaintenanceInfo, PreviousValues, ProvisionRequest, UpdateRequest};
pub use secret::SecretObject;
pub use timestamp::{Timestamp, TimestampError};
pub use uri::{Query, decode_segment, encode_segment};
