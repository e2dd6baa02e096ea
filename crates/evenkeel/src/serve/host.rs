//! What kind of host this is.

use std::path::Path;

use evenkeel_engine::OnShutdown;

use crate::config;

/// The kernel's id of this boot of the host.
pub(super) fn boot_id() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim_end().to_owned())
}

/// What becomes of runs at the end, and the same in words.
/// `has_warden`: this process has a parent that ends with it.
pub(super) fn on_shutdown(wish: config::OnShutdown, has_warden: bool) -> (OnShutdown, String) {
    let contained = ends_its_runs(has_warden);
    let choice = match wish {
        config::OnShutdown::Detach => OnShutdown::Detach,
        config::OnShutdown::Drain => OnShutdown::Drain,
        config::OnShutdown::Auto if contained.is_some() => OnShutdown::Drain,
        config::OnShutdown::Auto => OnShutdown::Detach,
    };
    let why = match (wish, contained) {
        (config::OnShutdown::Auto, Some(why)) => format!("because {why}"),
        (config::OnShutdown::Auto, None) => "because runs can outlive the broker here".to_owned(),
        (config::OnShutdown::Detach | config::OnShutdown::Drain, _) => {
            "by configuration".to_owned()
        }
    };
    let what = match choice {
        OnShutdown::Detach => {
            "detach: runs go on when the broker ends, and the next start picks them up"
        }
        OnShutdown::Drain => "drain: runs are waited for, then stopped, when the broker ends",
    };
    (choice, format!("on_shutdown is {what} ({why})"))
}

/// Why runs would end with the broker, if they would.
fn ends_its_runs(has_warden: bool) -> Option<&'static str> {
    let set = |name| std::env::var_os(name).is_some();
    if std::process::id() == 1 {
        Some("the broker is process 1")
    } else if has_warden && std::os::unix::process::parent_id() == 1 {
        Some("the warden is process 1")
    } else if set("KUBERNETES_SERVICE_HOST") {
        Some("the broker is in a pod")
    } else if set("container")
        || Path::new("/run/.containerenv").exists()
        || Path::new("/.dockerenv").exists()
    {
        Some("the broker is in a container")
    } else {
        None
    }
}
