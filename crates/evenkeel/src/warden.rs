//! The parent process of `evenkeel serve`: owns the listening sockets, starts the broker with them,
//! and when it dies writes down how and starts another.
//!
//! It has one thread, no runtime and no log, opens no store and reads nothing that a job wrote: it
//! has next to nothing that could fail. The sockets reach the broker by systemd's protocol
//! (sd_listen_fds(3)), so that systemd can take the warden's place. Connections that come while
//! there is no broker wait in the listen queue.
//!
//! Between the two runs a *line*, a socket pair. The broker sends a beat each second, for the
//! [`watchdog`]; end of file tells the broker that its warden is dead, and that it is to hand over
//! so that another `serve` can start.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use evenkeel_core::ids::BootId;
use evenkeel_engine::faults;
use evenkeel_engine::world::{RealWorld, World as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sd_notify::NotifyState;

use crate::cli::ServeArgs;
use crate::commands;
use crate::config::{Config, Source};
use crate::fail::{Exit, Failure};
use crate::serve::folder;
use crate::serve::listen::{self, Sockets};
use broker::{Broker, End};
use files::{Files, Stderr};
use pause::Pauses;
use sys::{Reaped, Signals};
use voice::Voice;

pub(crate) mod broker;
pub(crate) mod files;
mod pause;
pub(crate) mod sys;
mod voice;
mod watchdog;

/// Runs brokers until one ends that was asked to, or that no restart would help.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let source = commands::config::understood(Source::read(args.config.config.as_deref()))?;
    let config = commands::config::understood(source.config())?;
    // A warden that had begun would have to tell of it again and again.
    crate::serve::judge(&config)?;
    let voice = Voice::new(args.log_format);
    faults::hit("warden.bind.before");
    let sockets = listen::bind(
        &config,
        &listen::Wait {
            limit: Duration::from_secs(args.lock_wait),
            tell: &|text| voice.waits(text),
        },
    )?;
    faults::hit("warden.bind.after");
    let mut warden = Warden {
        files: Files::of(&config.data_dir),
        signals: Signals::catch().map_err(broken)?,
        voice,
        pauses: Pauses::new(config.restart_pause.get()),
        asked: false,
        last: None,
        source,
        config,
        sockets,
    };
    warden.supervise()
}

struct Warden {
    /// What every broker gets: what stands in the file by now is for the next `serve`.
    source: Source,
    config: Config,
    sockets: Sockets,
    files: Files,
    signals: Signals,
    voice: Voice,
    pauses: Pauses,
    /// The end was asked for.
    asked: bool,
    /// The boot that ended last: the next broker asks how.
    last: Option<BootId>,
}

/// What there was to hear.
struct Heard {
    /// Those of our children that have ended.
    dead: Vec<Reaped>,
    /// The broker's end of the line has something, if only its end.
    line: bool,
}

impl Warden {
    fn supervise(&mut self) -> Result<ExitCode, Failure> {
        let mut restarts = 0;
        loop {
            let pause = match self.start(restarts) {
                Ok(broker) => {
                    notify(&[NotifyState::Ready, NotifyState::Status("the broker runs")]);
                    let end = self.watch(broker)?;
                    if let Some(code) = self.is_over(&end) {
                        faults::hit("warden.over");
                        return Ok(code);
                    }
                    let pause = self.pauses.after(end.lived);
                    self.voice.died(&end, pause);
                    let died = format!("the broker {}; another one follows", end.record);
                    notify(&[NotifyState::Status(&died)]);
                    pause
                }
                Err(error) => {
                    let pause = self.pauses.after(Duration::ZERO);
                    self.voice.not_started(&error, pause);
                    pause
                }
            };
            if self.pause(pause)? {
                return Ok(ExitCode::SUCCESS);
            }
            restarts += 1;
        }
    }

    fn start(&mut self, restarts: u64) -> std::io::Result<Broker> {
        let boot = BootId(RealWorld.id());
        Broker::start(
            boot,
            restarts,
            &self.source,
            self.stderr(boot),
            &self.sockets,
            &self.signals,
            self.config.watchdog,
        )
    }

    /// Where the broker's last words go; room is taken for what is to be said of its end. A data
    /// folder that cannot be used is the broker's to tell of; it will.
    fn stderr(&self, boot: BootId) -> Option<Stderr> {
        folder::usable(&self.config.data_dir).ok()?;
        let prepared = self.files.prepare(self.last);
        match prepared.and_then(|()| self.files.stderr(boot)) {
            Ok(stderr) => {
                // There may be room when there is something to write.
                if let Err(error) = self.files.draft(boot) {
                    self.voice.no_room(&error);
                }
                Some(stderr)
            }
            Err(error) => {
                self.voice.no_last_words(&error);
                None
            }
        }
    }

    /// Until the broker has ended; leaves its death record.
    fn watch(&mut self, mut broker: Broker) -> Result<End, Failure> {
        let mut next_round = Instant::now() + watchdog::ROUND;
        let dead = loop {
            let heard = self.listen(Some(&broker), next_round)?;
            if heard.line {
                broker.hear();
            }
            if let Some(dead) = heard.dead.into_iter().find(|dead| broker.is(dead)) {
                break dead;
            }
            // One round however late it is: what this process has slept through does not count.
            if Instant::now() >= next_round {
                next_round = Instant::now() + watchdog::ROUND;
                broker.round();
                notify(&[NotifyState::Watchdog]);
            }
        };
        faults::hit("warden.reaped");
        let end = broker.end(&dead, self.asked);
        self.last = Some(end.boot);
        // Where the data folder cannot be used the broker has said so.
        if let Err(error) = self.files.record(end.boot, &end.record)
            && !end.is_final()
        {
            self.voice.not_recorded(&error);
        }
        Ok(end)
    }

    /// Waits for `until`; says whether the end was asked for meanwhile.
    fn pause(&mut self, pause: Duration) -> Result<bool, Failure> {
        let until = Instant::now() + pause;
        loop {
            // At least once: a signal may have come with the death.
            self.listen(None, until)?;
            if self.asked || Instant::now() >= until {
                return Ok(self.asked);
            }
        }
    }

    /// Waits for something to happen, at most until then. Signals are passed on, the dead reaped.
    ///
    /// No wake-up is lost: SIGCHLD waits in the descriptor until it is read, and whoever has died
    /// before it is read is found by `wait4`, however many there are of one signal. The dead are
    /// looked for first, and signals left for later if the broker is among them: whoever asks for
    /// the end of a broker that is dead has not ended it.
    fn listen(&mut self, broker: Option<&Broker>, until: Instant) -> Result<Heard, Failure> {
        let line = broker.and_then(Broker::line);
        let mut heard = Heard {
            dead: Vec::new(),
            line: ready(&self.signals, line, until)?,
        };
        bury(&mut heard.dead)?;
        if broker.is_some_and(|broker| heard.dead.iter().any(|dead| broker.is(dead))) {
            return Ok(heard);
        }
        while let Some(caught) = self.signals.next().map_err(broken)? {
            if caught.signal == libc::SIGCHLD {
                continue;
            }
            if caught.signal != libc::SIGHUP {
                if !self.asked {
                    notify(&[NotifyState::Stopping]);
                }
                self.asked = true;
                faults::hit("warden.asked");
            }
            // A terminal tells its whole foreground group, of which the broker is.
            if let Some(broker) = broker
                && !caught.by_terminal
            {
                broker.signal(caught.signal);
                faults::hit("warden.passed_on");
            }
        }
        bury(&mut heard.dead)?;
        Ok(heard)
    }

    /// The exit code, if no other broker is to follow.
    fn is_over(&self, end: &End) -> Option<ExitCode> {
        let code = end
            .record
            .exit_code
            .and_then(|code| u8::try_from(code).ok());
        if self.asked {
            return Some(match (code, end.record.signal) {
                (Some(code), _) => code.into(),
                // Told before it could hear: nothing was under way.
                (None, Some(libc::SIGTERM | libc::SIGINT)) => ExitCode::SUCCESS,
                (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(u8::MAX).into(),
                (None, None) => Exit::Failed.into(),
            });
        }
        code.filter(|_| end.is_final()).map(ExitCode::from)
    }
}

/// Reaps all the dead that there are.
fn bury(dead: &mut Vec<Reaped>) -> Result<(), Failure> {
    while let Some(one) = sys::reap().map_err(broken)? {
        dead.push(one);
    }
    Ok(())
}

/// Waits for a signal or for the line, at most until then; says whether the line has something.
fn ready(signals: &Signals, line: Option<BorrowedFd<'_>>, until: Instant) -> Result<bool, Failure> {
    let timeout = until.saturating_duration_since(Instant::now());
    let timeout =
        Timespec::try_from(timeout).map_err(|error| broken(std::io::Error::other(error)))?;
    let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    fds.extend(line.map(|line| PollFd::from_borrowed_fd(line, PollFlags::IN)));
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => Ok(fds.get(1).is_some_and(|line| !line.revents().is_empty())),
        // Stopped and gone on.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(broken(error.into())),
    }
}

/// Tells systemd, where it wants to be told; whether it listens is its own affair.
fn notify(state: &[NotifyState<'_>]) {
    sd_notify::notify(false, state).ok();
}

fn broken(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the warden cannot go on: {error}"))
}
