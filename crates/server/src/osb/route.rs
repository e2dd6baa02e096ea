//! Methods and paths of the API. Paths are split before they are decoded: `%2F` is part of an id.

use axum::http::Method;
use evenkeel_core::ids::{BindingId, IdError, InstanceId};
use evenkeel_osb::{BadRequest, decode_segment};

/// A route with its ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Catalog,
    Provision(InstanceId),
    Update(InstanceId),
    Deprovision(InstanceId),
    Instance(InstanceId),
    InstancePoll(InstanceId),
    Bind(InstanceId, BindingId),
    Unbind(InstanceId, BindingId),
    Binding(InstanceId, BindingId),
    BindingPoll(InstanceId, BindingId),
}

/// Why a request leads nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoRoute {
    /// 404.
    Path,
    /// 405.
    Method { allowed: &'static str },
    /// 400: an id that no instance or binding can have.
    Id(BadRequest),
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Catalog,
    Instance(&'a str),
    InstancePoll(&'a str),
    Binding(&'a str, &'a str),
    BindingPoll(&'a str, &'a str),
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let mut segments = [""; 7];
        let mut count = 0;
        for segment in path.strip_prefix("/v2/")?.split('/') {
            *segments.get_mut(count)? = segment;
            count += 1;
        }
        let place = match segments[..count] {
            ["catalog"] => Self::Catalog,
            ["service_instances", instance] => Self::Instance(instance),
            ["service_instances", instance, "last_operation"] => Self::InstancePoll(instance),
            ["service_instances", instance, "service_bindings", binding] => {
                Self::Binding(instance, binding)
            }
            [
                "service_instances",
                instance,
                "service_bindings",
                binding,
                "last_operation",
            ] => Self::BindingPoll(instance, binding),
            _ => return None,
        };
        // No id is empty, so a path with an empty one leads nowhere.
        segments[..count]
            .iter()
            .all(|segment| !segment.is_empty())
            .then_some(place)
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Catalog => "/v2/catalog",
            Self::Instance(_) => "/v2/service_instances/{instance_id}",
            Self::InstancePoll(_) => "/v2/service_instances/{instance_id}/last_operation",
            Self::Binding(..) => {
                "/v2/service_instances/{instance_id}/service_bindings/{binding_id}"
            }
            Self::BindingPoll(..) => {
                "/v2/service_instances/{instance_id}/service_bindings/{binding_id}/last_operation"
            }
        }
    }
}

/// The pattern of a path, for logs.
pub(super) fn pattern(path: &str) -> &'static str {
    Place::of(path).map_or("(none)", Place::pattern)
}

impl Route {
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, NoRoute> {
        let place = Place::of(path).ok_or(NoRoute::Path)?;
        // A HEAD is a GET whose body the connection leaves out (RFC 9110, 9.3.2).
        let method = match method.as_str() {
            "HEAD" => "GET",
            other => other,
        };
        Ok(match (place, method) {
            (Place::Catalog, "GET") => Self::Catalog,
            (Place::Instance(id), "PUT") => Self::Provision(instance(id)?),
            (Place::Instance(id), "PATCH") => Self::Update(instance(id)?),
            (Place::Instance(id), "DELETE") => Self::Deprovision(instance(id)?),
            (Place::Instance(id), "GET") => Self::Instance(instance(id)?),
            (Place::InstancePoll(id), "GET") => Self::InstancePoll(instance(id)?),
            (Place::Binding(of, id), "PUT") => Self::Bind(instance(of)?, binding(id)?),
            (Place::Binding(of, id), "DELETE") => Self::Unbind(instance(of)?, binding(id)?),
            (Place::Binding(of, id), "GET") => Self::Binding(instance(of)?, binding(id)?),
            (Place::BindingPoll(of, id), "GET") => Self::BindingPoll(instance(of)?, binding(id)?),
            (Place::Catalog | Place::InstancePoll(_) | Place::BindingPoll(..), _) => {
                return Err(NoRoute::Method {
                    allowed: "GET, HEAD",
                });
            }
            (Place::Instance(_), _) => {
                return Err(NoRoute::Method {
                    allowed: "GET, HEAD, PUT, PATCH, DELETE",
                });
            }
            (Place::Binding(..), _) => {
                return Err(NoRoute::Method {
                    allowed: "GET, HEAD, PUT, DELETE",
                });
            }
        })
    }

    /// The name of the fault point at the head of its handler.
    pub(super) fn fault_point(&self) -> &'static str {
        match self {
            Self::Catalog => "server.catalog",
            Self::Provision(_) => "server.provision",
            Self::Update(_) => "server.update",
            Self::Deprovision(_) => "server.deprovision",
            Self::Instance(_) => "server.instance",
            Self::InstancePoll(_) => "server.instance_poll",
            Self::Bind(..) => "server.bind",
            Self::Unbind(..) => "server.unbind",
            Self::Binding(..) => "server.binding",
            Self::BindingPoll(..) => "server.binding_poll",
        }
    }
}

fn instance(segment: &str) -> Result<InstanceId, NoRoute> {
    id("instance_id", segment, InstanceId::new)
}

fn binding(segment: &str) -> Result<BindingId, NoRoute> {
    id("binding_id", segment, BindingId::new)
}

fn id<T>(
    name: &str,
    segment: &str,
    new: impl FnOnce(String) -> Result<T, IdError>,
) -> Result<T, NoRoute> {
    let text = decode_segment(segment).map_err(NoRoute::Id)?;
    new(text).map_err(|error| NoRoute::Id(BadRequest::new("", format!("{name}: {error}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str) -> Result<Route, NoRoute> {
        Route::of(&Method::from_bytes(method.as_bytes()).unwrap(), path)
    }

    #[test]
    fn ids_are_decoded_once_and_after_the_path_was_split() {
        for (segment, id) in [
            ("plain", "plain"),
            ("a%2Fb", "a/b"),
            ("a%252Fb", "a%2Fb"),
            ("a%20b+c", "a b+c"),
            ("%F0%9F%9A%A2", "🚢"),
            ("last_operation", "last_operation"),
            ("..", ".."),
        ] {
            let instance = InstanceId::new(id).unwrap();
            let binding = BindingId::new(id).unwrap();
            let path = format!("/v2/service_instances/{segment}");
            assert_eq!(of("PUT", &path), Ok(Route::Provision(instance.clone())));
            assert_eq!(
                of("GET", &format!("{path}/last_operation")),
                Ok(Route::InstancePoll(instance.clone()))
            );
            assert_eq!(
                of("DELETE", &format!("{path}/service_bindings/{segment}")),
                Ok(Route::Unbind(instance, binding))
            );
        }
    }

    #[test]
    fn paths_that_are_not_of_the_api_lead_nowhere() {
        for path in [
            "/",
            "*",
            "",
            "/v2",
            "/v2/",
            "/v2/catalog/",
            "//v2/catalog",
            "/v2/%63atalog",
            "/v3/catalog",
            "/v2/service_instances",
            "/v2/service_instances/",
            "/v2/service_instances//last_operation",
            "/v2/service_instances/a/b",
            "/v2/service_instances/a/service_bindings",
            "/v2/service_instances/a/service_bindings/",
            "/v2/service_instances/a/service_bindings/b/c",
            "/v2/service_instances/a/service_bindings/b/last_operation/c/d/e/f/g",
        ] {
            assert_eq!(of("GET", path), Err(NoRoute::Path), "{path}");
            assert_eq!(pattern(path), "(none)", "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_which_are_right() {
        let allowed = |path: &str| match of("TRACE", path) {
            Err(NoRoute::Method { allowed }) => allowed,
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(allowed("/v2/catalog"), "GET, HEAD");
        assert_eq!(
            allowed("/v2/service_instances/i"),
            "GET, HEAD, PUT, PATCH, DELETE"
        );
        assert_eq!(
            allowed("/v2/service_instances/i/service_bindings/b"),
            "GET, HEAD, PUT, DELETE"
        );
        assert_eq!(of("HEAD", "/v2/catalog"), Ok(Route::Catalog));
    }

    #[test]
    fn ids_that_nothing_can_have_are_bad_requests() {
        let long = "x".repeat(evenkeel_core::ids::MAX_ID_BYTES + 1);
        for segment in ["%FF", "a%00b", "a%0Ab", long.as_str()] {
            let path = format!("/v2/service_instances/{segment}");
            assert!(matches!(of("GET", &path), Err(NoRoute::Id(_))), "{segment}");
        }
    }
}
