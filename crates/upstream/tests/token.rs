//! Asking an OAuth server for the next access token, against one that rotates, remembers and fails.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use waybill_scripted_upstream::{Script, ScriptedUpstream, Terms, Trouble};
use waybill_secret::{Refreshing, TokenBody};
use waybill_upstream::{DispatchConfig, Dispatcher, Granted, TokenFault};

struct Ground {
    upstream: ScriptedUpstream,
    dispatcher: Dispatcher,
    refreshing: Refreshing,
}

impl Ground {
    async fn new() -> Self {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let upstream = ScriptedUpstream::start(Script::new()).await.unwrap();
        let tokens = upstream.issuer().login("a", Terms::default());
        let refreshing = Refreshing {
            token: SecretString::from(tokens.refresh),
            endpoint: upstream.token_endpoint(),
            body: TokenBody::Form,
            client_id: Some("app".to_owned()),
            client_secret: None,
        };
        let dispatcher = Dispatcher::new(&DispatchConfig::default()).unwrap();
        Self { upstream, dispatcher, refreshing }
    }

    async fn ask(&self) -> Result<Granted, TokenFault> {
        self.dispatcher.refresh(&self.refreshing, true, Duration::from_millis(500)).await
    }
}

#[tokio::test]
async fn a_token_is_given_and_the_former_refresh_token_is_refused_for_good() {
    let mut ground = Ground::new().await;
    let granted = ground.ask().await.unwrap();
    assert_eq!(granted.expires_in, Some(Duration::from_secs(3_600)));
    let again = ground.ask().await.unwrap_err();
    assert!(again.is_final(), "{again}");
    assert!(again.to_string().contains("invalid_grant"), "{again}");
    ground.refreshing.token = granted.refresh.unwrap();
    ground.refreshing.body = TokenBody::Json;
    ground.ask().await.unwrap();
    assert_eq!(ground.upstream.issuer().refreshed("a"), 2);
}

#[tokio::test]
async fn an_outage_is_not_final_and_has_its_deadline() {
    let ground = Ground::new().await;
    for trouble in [Trouble::Status(503), Trouble::Cut, Trouble::Silent, Trouble::LostAnswer] {
        ground.upstream.issuer().trouble(trouble);
        let begun = Instant::now();
        let fault = ground.ask().await.unwrap_err();
        assert!(!fault.is_final(), "{trouble:?}: {fault}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{trouble:?}");
        let shown = format!("{fault} {fault:?}");
        assert!(!shown.contains(ground.refreshing.token.expose_secret()), "{shown}");
    }
    // Nothing is sent twice: what the server did with a token that was lost on the way, nobody could tell.
    assert_eq!(ground.upstream.issuer().calls().len(), 4);
}

#[tokio::test]
async fn an_endpoint_that_may_not_be_asked_is_not_asked() {
    let ground = Ground::new().await;
    let fault = ground.dispatcher.refresh(&ground.refreshing, false, Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(fault, TokenFault::Transport(_)), "private addresses need leave: {fault}");
    for endpoint in ["token", "ftp://127.0.0.1/token", "http://u:p@127.0.0.1/token"] {
        let refreshing = Refreshing { endpoint: endpoint.to_owned(), ..ground.refreshing.clone() };
        let fault = ground.dispatcher.refresh(&refreshing, true, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(fault, TokenFault::Endpoint { .. }), "{endpoint}: {fault}");
    }
    assert!(ground.upstream.issuer().calls().is_empty());
}
