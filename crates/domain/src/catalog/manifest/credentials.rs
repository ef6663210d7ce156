//! The credentials that a manifest brings along, with what they are to be sealed for.

use waybill_event::config::{CredentialRef, Platform};
use waybill_event::{AccountId, ChannelId, Source};

use super::{Manifest, PlainCredential, PlainLogin};
use crate::catalog::Catalog;

/// A credential in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain<'a> {
    /// The key of a channel.
    Key(&'a PlainCredential),
    /// The login of an account of this platform.
    Login(Platform, &'a PlainLogin),
}

/// A credential of a manifest, with the source it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCredential<'a> {
    /// The source's name.
    pub name: &'a str,
    /// The entry's field, for refusals: `accounts/2/credential`.
    pub field: String,
    /// The source, with the id it has or will get: part of what the credential is sealed for.
    pub source: Source,
    /// The credential.
    pub plain: Plain<'a>,
    /// What the source holds now. Where the fingerprints are equal this is to be supplied again.
    pub held: Option<CredentialRef>,
}

impl Manifest {
    /// The credentials it brings along, each with the id that its source has or, in the order of the manifest, will get.
    #[must_use]
    pub fn credentials<'a>(&'a self, catalog: &Catalog) -> Vec<SourceCredential<'a>> {
        let mut found = Vec::new();
        let mut next = catalog.next_channel_id().get();
        for (i, entry) in self.channels.iter().enumerate() {
            let name = entry.name.trim();
            let existing = catalog.channel_named(name);
            let id = existing.map_or(next, |channel| channel.id.get());
            next += u64::from(existing.is_none());
            if let Some(credential) = &entry.credential {
                let held = existing.and_then(|channel| channel.credential.clone());
                let (field, source) = (format!("channels/{i}/credential"), ChannelId::new(id).into());
                found.push(SourceCredential { name, field, source, plain: Plain::Key(credential), held });
            }
        }
        let mut next = catalog.next_account_id().get();
        for (i, entry) in self.accounts.iter().flatten().enumerate() {
            let name = entry.name.trim();
            let existing = catalog.account_named(name);
            let id = existing.map_or(next, |account| account.id.get());
            next += u64::from(existing.is_none());
            if let Some(login) = &entry.credential {
                let platform = existing.map(|account| account.platform).or(entry.platform).unwrap_or_default();
                let held = existing.and_then(|account| account.credential.clone());
                let (field, source) = (format!("accounts/{i}/credential"), AccountId::new(id).into());
                found.push(SourceCredential { name, field, source, plain: Plain::Login(platform, login), held });
            }
        }
        found
    }
}
