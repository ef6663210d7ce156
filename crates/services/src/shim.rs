//! What stands between us and a child program for an instant: it ties the child's life to ours, drops root where it
//! must, takes the lock of the child's folder, and becomes the program.
//!
//! A death signal can only be asked for by the child itself, between fork and exec, and safe Rust has no such hook. So
//! the binary is executed again as `<binary> __exec …`, and [`run_if_asked`] does these steps first thing in its
//! `main`. Programs without that hook, such as test binaries, use `setpriv` and `flock` for the same.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// First argument that makes a binary act as the shim.
pub const SUBCOMMAND: &str = "__exec";
/// Exit code of a shim that couldn't become the program.
pub const EXIT_CODE: i32 = 127;

/// An unprivileged user as whom a child runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id; supplementary groups are dropped.
    pub gid: u32,
}

/// How children are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// Through this binary, whose `main` begins with [`run_if_asked`].
    Binary(PathBuf),
    /// Through `setpriv` and `flock` of util-linux, for processes whose own binary has no such `main`.
    UtilLinux,
}

/// What the shim does before it becomes the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Duties {
    /// Sent by the kernel to the child when we die.
    pub(crate) death_signal: Option<Signal>,
    /// User to become.
    pub(crate) run_as: Option<RunAs>,
    /// Held by the child and its own children until the last of them is gone. A successor waits for it, so two servers
    /// never work on one folder.
    pub(crate) lock: Option<PathBuf>,
}

impl Launcher {
    /// Through our own binary. Its `main` must begin with [`run_if_asked`].
    ///
    /// # Errors
    /// When the path of the running binary can't be found out.
    pub fn current_exe() -> io::Result<Self> {
        Ok(Self::Binary(std::env::current_exe()?))
    }

    /// The command that performs `duties` and becomes `program` with `args`.
    pub(crate) fn command(&self, duties: &Duties, program: &Path, args: &[OsString]) -> Command {
        match self {
            Self::Binary(binary) => {
                let mut command = Command::new(binary);
                command.arg(SUBCOMMAND).arg(std::process::id().to_string());
                command.arg(duties.death_signal.map_or(0, Signal::as_raw).to_string());
                match &duties.run_as {
                    Some(user) => command.arg(user.uid.to_string()).arg(user.gid.to_string()),
                    None => command.arg("-").arg("-"),
                };
                command.arg(duties.lock.as_deref().unwrap_or(Path::new("-")));
                command.arg(program).args(args);
                command
            }
            Self::UtilLinux => {
                let mut words: Vec<OsString> = vec!["setpriv".into()];
                if let Some(signal) = duties.death_signal {
                    words.extend(["--pdeathsig".into(), name(signal).into()]);
                }
                // The lock is opened as ourselves; only the innermost `setpriv` becomes the other user. The change of
                // user clears the death signal, so it is asked for twice.
                if let Some(lock) = &duties.lock {
                    words.extend(["flock".into(), "--no-fork".into(), lock.into(), "setpriv".into()]);
                    if let Some(signal) = duties.death_signal {
                        words.extend(["--pdeathsig".into(), name(signal).into()]);
                    }
                }
                if let Some(user) = &duties.run_as {
                    words.extend([format!("--reuid={}", user.uid).into(), format!("--regid={}", user.gid).into()]);
                    words.push("--clear-groups".into());
                }
                let (first, rest) = words.split_first().map_or((OsStr::new("setpriv"), &[][..]), |(f, r)| (f, r));
                let mut command = Command::new(first);
                command.args(rest).arg(program).args(args);
                command
            }
        }
    }
}

/// Acts as the shim when the first argument is [`SUBCOMMAND`], and then never returns. Call it first thing in `main`,
/// before any thread is started: what it changes belongs to the calling thread, which becomes the program.
pub fn run_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(SUBCOMMAND)) {
        return;
    }
    let fault = become_program(args);
    let _nowhere_else_to_say_it = writeln!(io::stderr(), "{SUBCOMMAND}: {fault}");
    std::process::exit(EXIT_CODE);
}

#[derive(Debug, thiserror::Error)]
enum ShimFault {
    #[error("usage: {SUBCOMMAND} PARENT SIGNAL UID GID LOCK PROGRAM [ARGS…]")]
    Usage,
    #[error("cannot {step}: {source}")]
    Step { step: &'static str, source: io::Error },
    #[error("the parent is gone already")]
    Orphan,
    #[error("cannot run {}: {source}", program.display())]
    Exec { program: PathBuf, source: io::Error },
}

impl ShimFault {
    fn at(step: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::Step { step, source: source.into() }
    }
}

fn become_program(args: impl Iterator<Item = OsString>) -> ShimFault {
    match prepare(args) {
        Ok((program, mut command)) => ShimFault::Exec { program, source: command.exec() },
        Err(fault) => fault,
    }
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<(PathBuf, Command), ShimFault> {
    let mut next = || args.next().ok_or(ShimFault::Usage);
    let (parent, signal, uid, gid) = (number(next()?)?, number(next()?)?, next()?, next()?);
    let (lock, program) = (next()?, PathBuf::from(next()?));
    let signal = i32::try_from(signal).map_err(|_| ShimFault::Usage)?;
    // Asked for before the lock, since that may take a while, and again after the change of user, which clears it.
    tie_to_parent(signal, parent)?;
    if lock != "-" {
        hold(Path::new(&lock)).map_err(|source| ShimFault::Step { step: "take the lock", source })?;
    }
    if uid != "-" {
        let (uid, gid) = (Uid::from_raw(number(uid)?), Gid::from_raw(number(gid)?));
        set_thread_groups(&[gid]).map_err(ShimFault::at("drop the groups"))?;
        set_thread_gid(gid).map_err(ShimFault::at("change the group"))?;
        set_thread_uid(uid).map_err(ShimFault::at("change the user"))?;
        tie_to_parent(signal, parent)?;
    }
    let mut command = Command::new(&program);
    command.args(args);
    Ok((program, command))
}

/// What `setpriv` calls a signal; it takes no numbers.
fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::TERM => "TERM",
        Signal::INT => "INT",
        Signal::QUIT => "QUIT",
        _ => "KILL",
    }
}

fn number(text: OsString) -> Result<u32, ShimFault> {
    text.to_str().and_then(|text| text.parse().ok()).ok_or(ShimFault::Usage)
}

/// Asks for the death signal, then looks whether the parent is still there: one that died before we asked would never
/// be told of.
fn tie_to_parent(signal: i32, parent: u32) -> Result<(), ShimFault> {
    if signal == 0 {
        return Ok(());
    }
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        let signal = Signal::from_named_raw(signal).ok_or(ShimFault::Usage)?;
        rustix::process::set_parent_process_death_signal(Some(signal))
            .map_err(ShimFault::at("ask for the death signal"))?;
    }
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now.and_then(|pid| u32::try_from(pid).ok()) == Some(parent) { Ok(()) } else { Err(ShimFault::Orphan) }
}

/// Takes the lock and leaves its file open across exec, so that it is released by the kernel when the program and all
/// that it started are gone.
fn hold(path: &Path) -> io::Result<()> {
    let file: File = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    if file.try_lock().is_err() {
        writeln!(io::stderr(), "waiting for {}: another server still works in this folder", path.display())?;
        file.lock()?;
    }
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    let _left_open_for_the_program = file.into_raw_fd();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(launcher: &Launcher, duties: &Duties, expected: &[&str]) {
        let command = launcher.command(duties, Path::new("/bin/prog"), &["-x".into()]);
        let words: Vec<&str> =
            std::iter::once(command.get_program()).chain(command.get_args()).map(|w| w.to_str().unwrap()).collect();
        assert_eq!(words, expected);
    }

    fn full() -> Duties {
        Duties {
            death_signal: Some(Signal::QUIT),
            run_as: Some(RunAs { uid: 7, gid: 8 }),
            lock: Some("/d/lock".into()),
        }
    }

    #[test]
    fn our_own_binary_gets_its_duties_as_words() {
        let me = std::process::id().to_string();
        let launcher = Launcher::Binary("/bin/wb".into());
        check(&launcher, &full(), &["/bin/wb", "__exec", &me, "3", "7", "8", "/d/lock", "/bin/prog", "-x"]);
        check(&launcher, &Duties::default(), &["/bin/wb", "__exec", &me, "0", "-", "-", "-", "/bin/prog", "-x"]);
    }

    #[test]
    fn util_linux_asks_for_the_death_signal_again_after_the_change_of_user() {
        check(
            &Launcher::UtilLinux,
            &full(),
            &[
                "setpriv",
                "--pdeathsig",
                "QUIT",
                "flock",
                "--no-fork",
                "/d/lock",
                "setpriv",
                "--pdeathsig",
                "QUIT",
                "--reuid=7",
                "--regid=8",
                "--clear-groups",
                "/bin/prog",
                "-x",
            ],
        );
        check(&Launcher::UtilLinux, &Duties::default(), &["setpriv", "/bin/prog", "-x"]);
    }

    #[test]
    fn a_shim_whose_parent_is_gone_refuses() {
        let args = ["1073741824", "15", "-", "-", "-", "/bin/true"].map(OsString::from);
        assert!(matches!(prepare(args.into_iter()), Err(ShimFault::Orphan)));
    }

    #[test]
    fn missing_words_are_a_usage_fault() {
        assert!(matches!(prepare([OsString::from("1")].into_iter()), Err(ShimFault::Usage)));
    }
}
