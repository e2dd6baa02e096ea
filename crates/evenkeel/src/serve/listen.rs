//! The listening sockets, bound before anything else is touched.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::fail::{Exit, Failure};

/// Bound and listening.
#[derive(Debug)]
pub(crate) struct Sockets {
    osb: TcpListener,
    admin: TcpListener,
}

/// Where the broker really listens, which differs from the configuration for port 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) osb: SocketAddr,
    pub(super) admin: SocketAddr,
}

/// Between two tries to have an address that somebody else has.
const RETRY: Duration = Duration::from_millis(50);

/// How long an address is waited for that is in use. A broker whose warden was killed has the
/// sockets until it has heard of that.
pub(crate) struct Wait<'a> {
    pub(crate) limit: Duration,
    /// Told once for each address, before it is waited for.
    pub(crate) tell: &'a dyn Fn(&str),
}

pub(crate) fn bind(config: &Config, wait: &Wait<'_>) -> Result<Sockets, Failure> {
    take_or_bind(config, None, None, wait)
}

/// What was passed to this process is taken, what was not is bound.
pub(super) fn take_or_bind(
    config: &Config,
    osb: Option<TcpListener>,
    admin: Option<TcpListener>,
    wait: &Wait<'_>,
) -> Result<Sockets, Failure> {
    let until = Instant::now() + wait.limit;
    let usable = |given: Option<TcpListener>, key, address| match given {
        Some(listener) => match listener.set_nonblocking(true) {
            Ok(()) => Ok(listener),
            Err(error) => Err(broken(&error)),
        },
        None => listen(key, address, until, wait),
    };
    let osb = usable(osb, "osb.listen", config.osb.listen)?;
    let admin = usable(admin, "admin.listen", config.admin_listen)?;
    Ok(Sockets { osb, admin })
}

fn listen(
    key: &str,
    address: SocketAddr,
    until: Instant,
    wait: &Wait<'_>,
) -> Result<TcpListener, Failure> {
    let mut told = false;
    let listening = loop {
        let bound = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let in_use = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        if !in_use || Instant::now() >= until {
            break bound;
        }
        if !told {
            told = true;
            (wait.tell)(&format!(
                "{address} is in use; waiting up to {} s for it, as for a broker that hands over",
                wait.limit.as_secs()
            ));
        }
        std::thread::sleep(RETRY);
    };
    listening.map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::AddrInUse {
            format!(
                "another process listens there; end it, or set {key} to another address (port 0 takes a free one); --lock-wait sets how long to wait"
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
    /// To be passed on: OSB, admin.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.osb.as_fd(), self.admin.as_fd()]
    }

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
