//! The listening sockets, bound before anything else is touched.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use crate::config::Config;
use crate::fail::{Exit, Failure};

/// Bound and listening.
#[derive(Debug)]
pub(super) struct Sockets {
    osb: TcpListener,
    admin: TcpListener,
}

/// Where the broker really listens, which differs from the configuration for port 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) osb: SocketAddr,
    pub(super) admin: SocketAddr,
}

pub(super) fn bind(config: &Config) -> Result<Sockets, Failure> {
    let osb = listen("osb.listen", config.osb.listen)?;
    let admin = listen("admin.listen", config.admin_listen)?;
    Ok(Sockets { osb, admin })
}

fn listen(key: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let listening = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listening.map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::AddrInUse {
            format!(
                "another process listens there; end it, or set {key} to another address (port 0 takes a free one)"
            )
        } else if error.kind() == io::ErrorKind::PermissionDenied {
            format!("ports below 1024 need a privilege; set {key} to a higher one")
        } else {
            format!("set {key} to an address of this host")
        };
        Failure::new(Exit::Listen, format!("cannot listen on {address}: {error}")).hint(hint)
    })
}

impl Sockets {
    pub(super) fn into_tokio(
        self,
    ) -> Result<(tokio::net::TcpListener, tokio::net::TcpListener), Failure> {
        let tokio = |listener| tokio::net::TcpListener::from_std(listener).map_err(|e| broken(&e));
        Ok((tokio(self.osb)?, tokio(self.admin)?))
    }
}

impl Addresses {
    pub(super) fn of(
        osb: &tokio::net::TcpListener,
        admin: &tokio::net::TcpListener,
    ) -> Result<Self, Failure> {
        let local = |listener: &tokio::net::TcpListener| {
            listener.local_addr().map_err(|error| broken(&error))
        };
        Ok(Self {
            osb: local(osb)?,
            admin: local(admin)?,
        })
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Listen,
        format!("a listening socket cannot be used: {error}"),
    )
}

/// How the address is reached from this host.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}
