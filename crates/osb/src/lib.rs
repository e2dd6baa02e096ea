//! The [Open Service Broker API] v2.17 on the wire, for brokers and platforms: types, headers, error bodies and, with
//! the feature `client`, a typed client. It brings no HTTP server and decides nothing about services.
//!
//! Readers are lenient: unknown fields are ignored, `null`, `""` and `{}` count as absent, and what is wrong is told
//! by its JSON pointer. Writers are strict: what is absent is left out, never `null` and never an empty array.
//! Where the specification forbids a combination, the types have no room for it.
//!
//! # A broker reads a request
//!
//! ```
//! use evenkeel_osb::{ErrorBody, FromObject, ProvisionRequest, Query, decode_segment};
//!
//! // PUT /v2/service_instances/a%2Fb?accepts_incomplete=true
//! assert_eq!(decode_segment("a%2Fb")?, "a/b");
//! assert!(Query::parse("accepts_incomplete=true").accepts_incomplete);
//!
//! let request = ProvisionRequest::from_body(
//!     br#"{"service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "x", "parameters": null}"#,
//! )?;
//! assert!(request.parameters.is_empty());
//!
//! let error = ProvisionRequest::from_body(br#"{"service_id": "s", "plan_id": ""}"#).unwrap_err();
//! assert_eq!(error.pointer, "/plan_id");
//! assert_eq!(ErrorBody::from(error).status(), 400);
//! # Ok::<(), evenkeel_osb::BadRequest>(())
//! ```
//!
//! # A broker writes answers
//!
//! ```
//! use evenkeel_osb::{BindAnswer, Binding, ErrorBody, InProgress, Operation, UpdateError};
//! use serde_json::{json, to_value};
//!
//! let credentials = json!({ "uri": "postgres://…" }).as_object().cloned().map(Into::into);
//! let created = BindAnswer::Created(Binding { credentials, ..Binding::default() });
//! assert_eq!(created.status(), 201);
//! assert_eq!(to_value(&created)?, json!({ "credentials": { "uri": "postgres://…" } }));
//!
//! let accepted = BindAnswer::InProgress(InProgress { operation: Some(Operation::new("bind-1")?) });
//! assert_eq!(accepted.status(), 202);
//! assert_eq!(to_value(&accepted)?, json!({ "operation": "bind-1" }));
//!
//! let refused = UpdateError::from(ErrorBody::unprocessable("Plans cannot be made smaller.")).update_repeatable(false);
//! assert_eq!(refused.body().status(), 422);
//! assert_eq!(
//!     to_value(&refused)?,
//!     json!({ "description": "Plans cannot be made smaller.", "update_repeatable": false })
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A broker reads headers
//!
//! ```
//! use evenkeel_osb::{ApiVersion, ErrorBody, OriginatingIdentity, RequestIdentity};
//!
//! assert_eq!(ApiVersion::of_request(Some(b"2.15"))?.minor, 15);
//! let refused = ApiVersion::of_request(Some(b"3.0")).unwrap_err();
//! assert_eq!(ErrorBody::from(refused).status(), 412);
//!
//! let identity = OriginatingIdentity::parse(b"cloudfoundry eyJ1c2VyX2lkIjoidTEifQ==").unwrap();
//! assert_eq!((identity.platform(), identity.user()), ("cloudfoundry", Some("u1")));
//!
//! let echoed = RequestIdentity::of_request(Some(b"e26cee84-6b38-4456-b34e-d1a9f002c956")).unwrap();
//! assert_eq!(echoed.as_bytes(), b"e26cee84-6b38-4456-b34e-d1a9f002c956");
//! # Ok::<(), evenkeel_osb::ApiVersionError>(())
//! ```
#![cfg_attr(
    feature = "client",
    doc = r#"
# A platform asks a broker

```no_run
use evenkeel_osb::client::{Client, ClientError, Mode, Target, WaitOptions};
use evenkeel_osb::{Action, InstanceLastOperation, ProvisionAnswer, ProvisionRequest, Query};

# async fn order() -> Result<(), Box<dyn std::error::Error>> {
let client = Client::new("http://127.0.0.1:8080", "platform", "secret".into())?;
let catalog = client.catalog().await?;
let service = catalog.services.first().ok_or("the catalog is empty")?;
let request = ProvisionRequest {
    service_id: service.id.clone(),
    plan_id: service.plans[0].id.clone(),
    organization_guid: "org".into(),
    space_guid: "space".into(),
    ..ProvisionRequest::default()
};
let answer = client.provision("db-1", &request, Mode::AcceptsIncomplete).await?;
if let ProvisionAnswer::InProgress(started) = answer {
    let hints = Query { operation: started.operation, ..Query::default() };
    let target = Target::Instance { instance_id: "db-1" };
    let tell = |poll: Result<&InstanceLastOperation, &ClientError>| match poll {
        Ok(operation) => println!("{}", operation.state()),
        Err(trouble) => println!("{trouble}"),
    };
    let end = client.wait(Action::Provision, target, &hints, &WaitOptions::default(), tell).await?;
    println!("{end:?}");
}
# Ok(())
# }
```
"#
)]
//!
//! [Open Service Broker API]: https://github.com/openservicebrokerapi/servicebroker/blob/v2.17/spec.md

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

/// The README's example compiles and holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
