//! Where the cluster lies and whose it is.
//!
//! Postgres refuses to run as root. As root, then, the data belong to an unprivileged user, who must be able to walk to
//! them: when a folder above is closed to others (a home of mode 700, say), they lie under `/var/tmp` instead, and the
//! file `location` in the configured folder says where.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::PostgresError;
use crate::files;
use crate::shim::RunAs;

/// Users to run as, in order of preference.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Place for data that can't lie in the configured folder. It outlives a restart of the machine, unlike `/tmp`.
const ELSEWHERE: &str = "/var/tmp";

/// The cluster's files.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The configured folder, absolute.
    pub(super) dir: PathBuf,
    /// Folder of the owner, in which `data` is made.
    pub(super) home: PathBuf,
    /// The cluster itself.
    pub(super) data: PathBuf,
    /// The superuser's password.
    pub(super) password: PathBuf,
    /// Log of server and initdb.
    pub(super) log: PathBuf,
    /// The owner, when it isn't us.
    pub(super) run_as: Option<RunAs>,
}

impl Place {
    /// Creates what is missing, except the cluster.
    pub(super) fn prepare(dir: &Path) -> Result<Self, PostgresError> {
        let fault = |step, path: &Path| {
            let path = path.to_owned();
            move |source| PostgresError::Prepare { step, path, source }
        };
        let dir = files::created(dir).map_err(fault("create", dir))?;
        let run_as = if rustix::process::geteuid().is_root() { Some(unprivileged_user()?) } else { None };
        let home = match &run_as {
            None => dir.join("cluster"),
            Some(_) if files::traversable_by_all(&dir) => dir.join("cluster"),
            Some(_) => {
                let outer = Path::new(ELSEWHERE).join(format!("waybill-{}", files::short_name(&dir)));
                files::own_folder(&outer).map_err(fault("create", &outer))?;
                let home = outer.join("cluster");
                let location = dir.join("location");
                let text = format!("{}\n", home.display());
                files::write_private(&location, &text).map_err(fault("write", &location))?;
                tracing::info!(folder = %home.display(), "the configured folder is closed to others; data lie here");
                home
            }
        };
        fs::create_dir_all(&home).map_err(fault("create", &home))?;
        if let Some(user) = &run_as {
            chown(&home, Some(user.uid), Some(user.gid)).map_err(fault("hand over", &home))?;
        }
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).map_err(fault("close", &home))?;
        Ok(Self {
            data: home.join("data"),
            password: home.join("password"),
            log: dir.join("postgres.log"),
            dir,
            home,
            run_as,
        })
    }

    /// Major version of the Postgres that made the cluster; `None` before there is one.
    pub(super) fn major(&self) -> Option<u32> {
        fs::read_to_string(self.data.join("PG_VERSION")).ok()?.trim().parse().ok()
    }

    /// Removes the cluster, and the folder elsewhere in which it may lie.
    pub(super) fn remove(&self) -> Result<(), PostgresError> {
        let outer = self.home.parent().filter(|outer| *outer != self.dir).unwrap_or(&self.home);
        fs::remove_dir_all(outer).map_err(self.fault("remove", outer))?;
        let _absent_is_fine = fs::remove_file(self.dir.join("location"));
        Ok(())
    }

    /// Gives a file to the cluster's owner.
    pub(super) fn hand_over(&self, path: &Path) -> io::Result<()> {
        match &self.run_as {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        }
    }

    /// An error of ours about a file.
    #[expect(clippy::unused_self, reason = "reads as a method beside the other uses of a place")]
    pub(super) fn fault(&self, step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PostgresError + use<> {
        let path = path.to_owned();
        move |source| PostgresError::Prepare { step, path, source }
    }
}

fn unprivileged_user() -> Result<RunAs, PostgresError> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    USERS.iter().find_map(|name| user_in(&passwd, name)).ok_or(PostgresError::NoUser)
}

fn user_in(passwd: &str, name: &str) -> Option<RunAs> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (found, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let user = RunAs { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (found == name && user.uid != 0).then_some(user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_from_passwd() {
        let passwd = "root:x:0:0::/root:/bin/sh\nodd line\npostgres:x:101:104:PostgreSQL:/var/lib:/bin/bash\n";
        assert_eq!(user_in(passwd, "postgres"), Some(RunAs { uid: 101, gid: 104 }));
        assert_eq!(user_in(passwd, "root"), None);
        assert_eq!(user_in(passwd, "nobody"), None);
    }
}
