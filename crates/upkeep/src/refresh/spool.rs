//! Tokens that were got and aren't in the log yet: a file for each account, sealed, on disk before anything else is done
//! with them, since a rotated refresh token exists nowhere else.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use waybill_event::control::RefreshReason;

/// Room that is made before a refresh token is used, in bytes: what comes back must fit also on a disk that is full.
const RESERVED: usize = 96 * 1024;
const KEPT: &str = "json";

/// Tokens that were got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The account.
    pub account: u64,
    /// Revision of the login they descend from.
    pub login: u64,
    /// Revision of the tokens they replace.
    pub replaces: u64,
    /// Id of their message: however often it is sent, it is stored once.
    pub message_id: String,
    /// Their message, sealed.
    pub message: String,
    /// Whether there is another refresh token among them.
    pub rotated: bool,
    /// When the access token expires, in milliseconds UTC.
    pub expires_ms: Option<i64>,
    /// Why they were asked for.
    pub why: RefreshReason,
}

/// The folder of such files.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
}

/// Room for what a refresh brings.
#[derive(Debug)]
pub struct Room {
    file: File,
    draft: PathBuf,
    kept: PathBuf,
    dir: PathBuf,
}

impl Spool {
    /// Opens the folder, which only its owner may read, and makes it where it isn't there.
    ///
    /// # Errors
    /// It can't be made.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        sync_dir(dir.parent().unwrap_or(&dir))?;
        Ok(Self { dir })
    }

    /// Makes room for an account's next tokens, on disk.
    ///
    /// # Errors
    /// There is none: the refresh token mustn't be used then.
    pub fn reserve(&self, account: u64) -> io::Result<Room> {
        let draft = self.dir.join(format!("{account}.draft"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all_at(&vec![b' '; RESERVED], 0)?;
        file.sync_all()?;
        Ok(Room { file, draft, kept: self.path(account), dir: self.dir.clone() })
    }

    /// What is kept, of all accounts. A file that can't be read is left where it is and named.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != KEPT) {
                continue;
            }
            match fs::read(&path).map_err(|e| e.to_string()).and_then(|t| parse(&t)) {
                Ok(kept) => found.push(kept),
                Err(error) => tracing::error!(error, path = %path.display(), "refreshed tokens can't be read back"),
            }
        }
        found.sort_by_key(|kept| kept.account);
        Ok(found)
    }

    /// What was kept of an account is in the log, or of no use any more.
    pub fn forget(&self, account: u64) {
        let removed = fs::remove_file(self.path(account)).and_then(|()| sync_dir(&self.dir));
        if let Err(error) = removed {
            // It would be found again at the next start, and is recognised then.
            tracing::warn!(%error, account, "the file of refreshed tokens can't be removed");
        }
    }

    fn path(&self, account: u64) -> PathBuf {
        self.dir.join(format!("{account}.{KEPT}"))
    }
}

impl Room {
    /// Keeps what was got; it is on disk afterwards.
    ///
    /// # Errors
    /// It can't be written, although there was room for it.
    pub fn keep(self, kept: &Kept) -> io::Result<()> {
        let text = serde_json::to_vec(kept)?;
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))?;
        self.file.sync_all()?;
        fs::rename(&self.draft, &self.kept)?;
        sync_dir(&self.dir)
    }

    /// Nothing was got.
    pub fn give_back(self) {
        if let Err(error) = fs::remove_file(&self.draft) {
            tracing::debug!(%error, "room for tokens can't be given back");
        }
    }
}

fn parse(text: &[u8]) -> Result<Kept, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(account: u64, n: u64) -> Kept {
        Kept {
            account,
            login: 3,
            replaces: n,
            message_id: format!("m{n}"),
            message: r#"{"sealed":{}}"#.to_owned(),
            rotated: true,
            expires_ms: Some(7),
            why: RefreshReason::Ahead,
        }
    }

    #[test]
    fn what_is_kept_is_found_again_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path().join("refreshed")).unwrap();
        spool.reserve(8).unwrap().keep(&kept(8, 1)).unwrap();
        spool.reserve(7).unwrap().keep(&kept(7, 1)).unwrap();
        spool.reserve(7).unwrap().keep(&kept(7, 2)).unwrap();
        // Killed between asking and getting: there is nothing to be found.
        let unused = spool.reserve(9).unwrap();
        assert_eq!(Spool::open(dir.path().join("refreshed")).unwrap().kept().unwrap(), [kept(7, 2), kept(8, 1)]);
        unused.give_back();
        spool.forget(7);
        spool.forget(7);
        assert_eq!(spool.kept().unwrap(), [kept(8, 1)]);
    }

    #[test]
    fn only_its_owner_reads_it_and_a_broken_file_stops_nobody() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path().join("refreshed")).unwrap();
        spool.reserve(7).unwrap().keep(&kept(7, 1)).unwrap();
        fs::write(dir.path().join("refreshed/8.json"), "{").unwrap();
        assert_eq!(spool.kept().unwrap().len(), 1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("refreshed")), 0o700);
        assert_eq!(mode(&dir.path().join("refreshed/7.json")), 0o600);
    }
}
