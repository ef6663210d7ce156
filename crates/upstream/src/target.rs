//! A source as dispatch needs it. It can't exist without a credential.

use std::sync::Arc;

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
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
    /// A target with a bearer credential. Surrounding white space of the credential is dropped: keys are pasted.
    ///
    /// # Errors
    /// [`TargetFault`] if the credential is empty or can't be sent.
    pub fn new(base_url: BaseUrl, credential: &SecretString, allow_private: bool) -> Result<Self, TargetFault> {
        let credential = credential.expose_secret().trim();
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
    use super::*;

    fn make(credential: &str) -> Result<Target, TargetFault> {
        Target::new(BaseUrl::parse("https://api.example.com").unwrap(), &SecretString::from(credential), false)
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
