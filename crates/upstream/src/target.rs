//! A source as dispatch needs it. It can't exist without a credential of that very source.

use std::sync::Arc;

use http::HeaderValue;
use waybill_event::{Source, SourceKind};
use waybill_secret::Bearer;
use waybill_wire::endpoint::BaseUrl;

use crate::dispatch::{Endpoint, NoEndpoint};

const CHAT: &str = "chat/completions";

/// Where an attempt goes and with which credential.
#[derive(Debug, Clone)]
pub struct Target {
    pub(crate) base_url: BaseUrl,
    /// The endpoint that nearly all requests go to, made once.
    chat: Arc<Endpoint>,
    /// Marked sensitive, so that neither `Debug` nor HTTP/2 header tables keep it.
    pub(crate) authorization: HeaderValue,
    pub(crate) allow_private: bool,
}

/// Why a target can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// The credential is another source's.
    #[error("the credential is another source's")]
    ForeignCredential,
    /// The credential is empty or only white space.
    #[error("the credential is empty")]
    EmptyCredential,
    /// The credential has characters that can't stand in a header.
    #[error("the credential has characters that can't be sent in a header")]
    UnsendableCredential,
    /// The base URL makes no URL that can be asked for over HTTP.
    #[error("the base URL can't be requested")]
    UnsendableUrl,
}

impl Target {
    /// The target of a source, with its credential. Surrounding white space of the credential is dropped: keys are pasted.
    ///
    /// # Errors
    /// [`TargetFault`] if the credential is another source's, empty, or can't be sent.
    pub fn new(source: Source, base_url: BaseUrl, bearer: &Bearer, allow_private: bool) -> Result<Self, TargetFault> {
        let kind = match source.kind {
            SourceKind::Channel => "channel",
            SourceKind::Account => "account",
        };
        if !bearer.is_of(kind, source.id) {
            return Err(TargetFault::ForeignCredential);
        }
        let credential = bearer.token().trim();
        if credential.is_empty() {
            return Err(TargetFault::EmptyCredential);
        }
        if !credential.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TargetFault::UnsendableCredential);
        }
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {credential}")).map_err(|_| TargetFault::UnsendableCredential)?;
        authorization.set_sensitive(true);
        let chat = Endpoint::of(&base_url.join(CHAT)).map_err(|_| TargetFault::UnsendableUrl)?;
        Ok(Self { chat: Arc::new(chat), base_url, authorization, allow_private })
    }

    /// An endpoint under the base URL.
    pub(crate) fn endpoint(&self, path: &str) -> Result<Arc<Endpoint>, NoEndpoint> {
        if path == CHAT { Ok(self.chat.clone()) } else { Endpoint::of(&self.base_url.join(path)).map(Arc::new) }
    }

    /// The base URL.
    #[must_use]
    pub fn base_url(&self) -> &BaseUrl {
        &self.base_url
    }
}

#[cfg(test)]
mod tests {
    use waybill_secret::{KeyRing, SecretString, Vault};

    use super::*;

    const SOURCE: Source = Source { kind: SourceKind::Channel, id: 1 };

    fn make(credential: &str) -> Result<Target, TargetFault> {
        of(SOURCE, credential)
    }

    fn of(source: Source, credential: &str) -> Result<Target, TargetFault> {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let sealed = vault.seal("channel", 1, &SecretString::from(credential)).unwrap();
        vault.take(&Vault::subject("channel", 1), 3, &sealed).unwrap();
        let base_url = BaseUrl::parse("https://api.example.com").unwrap();
        Target::new(source, base_url, &vault.of_channel(1, 3).unwrap(), false)
    }

    #[test]
    fn no_target_with_anothers_credential() {
        for source in [Source { id: 2, ..SOURCE }, Source { kind: SourceKind::Account, ..SOURCE }] {
            assert_eq!(of(source, "sk-x").unwrap_err(), TargetFault::ForeignCredential);
        }
    }

    #[test]
    fn no_target_without_a_sendable_credential() {
        assert_eq!(make("").unwrap_err(), TargetFault::EmptyCredential);
        assert_eq!(make(" \n").unwrap_err(), TargetFault::EmptyCredential);
        assert_eq!(make("a b").unwrap_err(), TargetFault::UnsendableCredential);
        assert_eq!(make("a\r\nhost: x").unwrap_err(), TargetFault::UnsendableCredential);
        assert_eq!(make("schlüssel").unwrap_err(), TargetFault::UnsendableCredential);
        assert_eq!(make(" sk-x\n").unwrap().authorization, "Bearer sk-x");
    }

    #[test]
    fn debug_shows_no_credential() {
        assert!(!format!("{:?}", make("sk-canary").unwrap()).contains("canary"));
    }
}
