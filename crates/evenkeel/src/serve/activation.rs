//! Descriptors that a parent passed to this process: systemd, or the warden, by systemd's protocol
//! (sd_listen_fds(3)).

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use listenfd::ListenFd;

use crate::fail::{Exit, Failure};
use crate::warden::sys::own;

/// What was passed.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) osb: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
    /// The line to the warden, if there is one.
    pub(super) line: Option<UnixStream>,
    /// The configuration as the warden has read it.
    pub(super) config: Option<File>,
    /// Where messages and the log go, if not to standard error.
    pub(super) log: Option<File>,
}

/// Takes what was passed to this very process; none if nothing was.
pub(super) fn take() -> Result<Option<Given>, Failure> {
    let own_pid = std::process::id().to_string();
    if std::env::var("LISTEN_PID").ok() != Some(own_pid) {
        return Ok(None);
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let mut given = Given::default();
    for index in 0..passed.len() {
        let name = names.next().unwrap_or_default();
        place(&mut given, &mut passed, index, name).map_err(|error| {
            Failure::new(
                Exit::Listen,
                format!("descriptor {index} ({name:?}) of those that were passed: {error}"),
            )
            .hint("pass listening TCP sockets named osb and admin, in this order if without names")
        })?;
    }
    Ok(Some(given))
}

fn place(given: &mut Given, passed: &mut ListenFd, index: usize, name: &str) -> io::Result<()> {
    let taken = || io::Error::other("one of that kind was passed already");
    match name {
        "warden" => {
            let (family, kind) = (libc::AF_UNIX, libc::SOCK_STREAM);
            given.line = passed.take_custom(index, family, kind, "line to a warden")?;
        }
        "log" | "config" => {
            let fd = passed.take_raw_fd(index)?;
            let slot = match name {
                "log" => &mut given.log,
                _ => &mut given.config,
            };
            *slot = fd.map(own).transpose()?.map(File::from);
        }
        // systemd names a socket after its unit where it has no name of its own.
        _ => {
            let slot = match name {
                "osb" => &mut given.osb,
                "admin" => &mut given.admin,
                _ if given.osb.is_none() => &mut given.osb,
                _ => &mut given.admin,
            };
            if slot.is_some() {
                return Err(taken());
            }
            *slot = passed.take_tcp_listener(index)?;
        }
    }
    Ok(())
}
