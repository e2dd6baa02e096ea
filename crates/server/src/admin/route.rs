//! Methods and paths of the admin API.

use axum::http::Method;
use evenkeel_core::ids::JobId;

/// A route with its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Live,
    Ready,
    Status,
    Boots,
    Catalog,
    Reload,
    Hold,
    Release,
    Jobs,
    Job(JobId),
    Log(JobId),
    Explanation(JobId),
    Act(Act, JobId),
}

/// What an operator can do with a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Retry,
    Discard,
    Cancel,
    Clear,
}

/// Why a request leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRoute {
    /// 404.
    Path,
    /// 404: what stands for a job's id is none.
    Job,
    /// 405.
    Method { allowed: &'static str },
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Live,
    Ready,
    Status,
    Boots,
    Catalog,
    Reload,
    Hold,
    Release,
    Jobs,
    Job(&'a str),
    Log(&'a str),
    Explanation(&'a str),
    Act(Act, &'a str),
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let rest = match path {
            "/livez" => return Some(Self::Live),
            "/readyz" => return Some(Self::Ready),
            _ => path.strip_prefix("/admin/v1/")?,
        };
        let mut segments = rest.split('/');
        let place = match (segments.next()?, segments.next(), segments.next()) {
            ("status", None, None) => Self::Status,
            ("boots", None, None) => Self::Boots,
            ("catalog", None, None) => Self::Catalog,
            ("reload", None, None) => Self::Reload,
            ("hold", None, None) => Self::Hold,
            ("release", None, None) => Self::Release,
            ("jobs", None, None) => Self::Jobs,
            ("jobs", Some(job), None) => Self::Job(job),
            ("jobs", Some(job), Some("log")) => Self::Log(job),
            ("jobs", Some(job), Some("explanation")) => Self::Explanation(job),
            ("jobs", Some(job), Some("retry")) => Self::Act(Act::Retry, job),
            ("jobs", Some(job), Some("discard")) => Self::Act(Act::Discard, job),
            ("jobs", Some(job), Some("cancel")) => Self::Act(Act::Cancel, job),
            ("jobs", Some(job), Some("clear")) => Self::Act(Act::Clear, job),
            _ => return None,
        };
        segments.next().is_none().then_some(place)
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Status => "/admin/v1/status",
            Self::Boots => "/admin/v1/boots",
            Self::Catalog => "/admin/v1/catalog",
            Self::Reload => "/admin/v1/reload",
            Self::Hold => "/admin/v1/hold",
            Self::Release => "/admin/v1/release",
            Self::Jobs => "/admin/v1/jobs",
            Self::Job(_) => "/admin/v1/jobs/{id}",
            Self::Log(_) => "/admin/v1/jobs/{id}/log",
            Self::Explanation(_) => "/admin/v1/jobs/{id}/explanation",
            Self::Act(Act::Retry, _) => "/admin/v1/jobs/{id}/retry",
            Self::Act(Act::Discard, _) => "/admin/v1/jobs/{id}/discard",
            Self::Act(Act::Cancel, _) => "/admin/v1/jobs/{id}/cancel",
            Self::Act(Act::Clear, _) => "/admin/v1/jobs/{id}/clear",
        }
    }
}

/// The pattern of a path, for logs.
pub(super) fn pattern(path: &str) -> &'static str {
    Place::of(path).map_or("(none)", Place::pattern)
}

/// Whether a path is for everybody: a load balancer has no token.
pub(super) fn is_open(path: &str) -> bool {
    matches!(Place::of(path), Some(Place::Live | Place::Ready))
}

impl Route {
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, NoRoute> {
        let place = Place::of(path).ok_or(NoRoute::Path)?;
        let is_get = method == Method::GET || method == Method::HEAD;
        let is_post = method == Method::POST;
        let (fits, allowed) = match place {
            Place::Reload | Place::Hold | Place::Release | Place::Act(..) => (is_post, "POST"),
            Place::Live
            | Place::Ready
            | Place::Status
            | Place::Boots
            | Place::Catalog
            | Place::Jobs
            | Place::Job(_)
            | Place::Log(_)
            | Place::Explanation(_) => (is_get, "GET, HEAD"),
        };
        if !fits {
            return Err(NoRoute::Method { allowed });
        }
        let job = |text: &str| text.parse::<JobId>().map_err(|_| NoRoute::Job);
        Ok(match place {
            Place::Live => Self::Live,
            Place::Ready => Self::Ready,
            Place::Status => Self::Status,
            Place::Boots => Self::Boots,
            Place::Catalog => Self::Catalog,
            Place::Reload => Self::Reload,
            Place::Hold => Self::Hold,
            Place::Release => Self::Release,
            Place::Jobs => Self::Jobs,
            Place::Job(id) => Self::Job(job(id)?),
            Place::Log(id) => Self::Log(job(id)?),
            Place::Explanation(id) => Self::Explanation(job(id)?),
            Place::Act(act, id) => Self::Act(act, job(id)?),
        })
    }

    /// The name of the fault point at the head of its handler.
    pub(super) fn fault_point(self) -> &'static str {
        match self {
            Self::Live => "server.livez",
            Self::Ready => "server.readyz",
            Self::Status => "server.status",
            Self::Boots => "server.boots",
            Self::Catalog => "server.admin_catalog",
            Self::Reload => "server.reload",
            Self::Hold => "server.hold",
            Self::Release => "server.release",
            Self::Jobs => "server.jobs",
            Self::Job(_) => "server.job",
            Self::Log(_) => "server.log",
            Self::Explanation(_) => "server.explanation",
            Self::Act(Act::Retry, _) => "server.retry",
            Self::Act(Act::Discard, _) => "server.discard",
            Self::Act(Act::Cancel, _) => "server.cancel",
            Self::Act(Act::Clear, _) => "server.clear",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "018f6f2e-0000-7000-8000-000000000001";

    #[test]
    fn every_route_has_its_method_and_its_pattern() {
        let job: JobId = JOB.parse().unwrap();
        let act = |act| Route::Act(act, job);
        for (method, path, route) in [
            ("GET", "/livez".to_owned(), Route::Live),
            ("HEAD", "/readyz".to_owned(), Route::Ready),
            ("GET", "/admin/v1/jobs".to_owned(), Route::Jobs),
            ("GET", format!("/admin/v1/jobs/{JOB}"), Route::Job(job)),
            ("GET", format!("/admin/v1/jobs/{JOB}/log"), Route::Log(job)),
            (
                "GET",
                format!("/admin/v1/jobs/{JOB}/explanation"),
                Route::Explanation(job),
            ),
            (
                "POST",
                format!("/admin/v1/jobs/{JOB}/retry"),
                act(Act::Retry),
            ),
            (
                "POST",
                format!("/admin/v1/jobs/{JOB}/discard"),
                act(Act::Discard),
            ),
            (
                "POST",
                format!("/admin/v1/jobs/{JOB}/cancel"),
                act(Act::Cancel),
            ),
            (
                "POST",
                format!("/admin/v1/jobs/{JOB}/clear"),
                act(Act::Clear),
            ),
            ("GET", "/admin/v1/status".to_owned(), Route::Status),
            ("GET", "/admin/v1/boots".to_owned(), Route::Boots),
            ("GET", "/admin/v1/catalog".to_owned(), Route::Catalog),
            ("POST", "/admin/v1/reload".to_owned(), Route::Reload),
            ("POST", "/admin/v1/hold".to_owned(), Route::Hold),
            ("POST", "/admin/v1/release".to_owned(), Route::Release),
        ] {
            let verb: Method = method.parse().unwrap();
            assert_eq!(Route::of(&verb, &path), Ok(route), "{path}");
            assert!(matches!(
                Route::of(&Method::DELETE, &path),
                Err(NoRoute::Method { .. })
            ));
            assert_eq!(pattern(&path), path.replace(JOB, "{id}"));
            assert_eq!(is_open(&path), path.len() < 8, "{path}");
        }
    }

    #[test]
    fn other_paths_and_ids_lead_nowhere() {
        for path in [
            "/",
            "",
            "/admin/v1",
            "/admin/v1/",
            "/admin/v1/jobs/",
            "/livez/",
        ] {
            let found = Route::of(&Method::GET, path);
            assert!(matches!(found, Err(NoRoute::Path | NoRoute::Job)), "{path}");
        }
        let deep = format!("/admin/v1/jobs/{JOB}/log/x");
        assert_eq!(Route::of(&Method::GET, &deep), Err(NoRoute::Path));
        assert_eq!(
            Route::of(&Method::GET, "/admin/v1/jobs/x"),
            Err(NoRoute::Job)
        );
    }
}
