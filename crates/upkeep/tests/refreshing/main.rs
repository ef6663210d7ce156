//! Refreshing of accounts' tokens, over the log in memory and an OAuth server that rotates, remembers and fails.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

mod world;

use std::time::Duration;

use waybill_domain::refreshing::Wish;
use waybill_event::control::RefreshReason;
use waybill_scripted_upstream::{Terms, Trouble};

use waybill_upkeep::Pace;
use world::{World, pace, until};

fn short() -> Terms {
    Terms { access_life: Duration::from_secs(2), ..Terms::default() }
}

#[tokio::test]
async fn tokens_are_refreshed_ahead_of_their_end_and_once_by_the_fleet() {
    let (world, login) = World::with_account(short()).await;
    let fleet = [world.start("upkeep-1"), world.start("upkeep-2"), world.start("upkeep-3")];
    let first = world.stored(login).await.unwrap();
    let second = world.refreshed(login, first.revision).await;
    assert!(!first.credential.expired((world.clock)().as_millis()), "before they have ended");
    let third = world.refreshed(login, second.revision).await;
    assert_eq!(third.login, login);
    let told = world.told_refreshed(2).await;
    assert_eq!((told[0].replaces, told[0].credential_revision), (first.revision, second.revision));
    assert_eq!((told[1].replaces, told[1].why, told[1].rotated), (second.revision, RefreshReason::Ahead, true));
    assert!(told[0].expires_at > Some((world.clock)() - Duration::from_secs(2)));
    for running in fleet {
        running.stop().await;
    }
    let calls = world.upstream.issuer().calls();
    assert!(calls.iter().all(|call| call.outcome == "refreshed"), "no refresh token was used twice: {calls:?}");
    world.end().await;
}

#[tokio::test]
async fn a_replica_that_meets_an_expired_token_has_it_refreshed_at_once() {
    let (world, login) = World::with_account(Terms::default()).await;
    let fleet = [world.start("upkeep-1"), world.start("upkeep-2")];
    for running in &fleet {
        running.until("all is known", |status| status.current && status.accounts == 1).await;
    }
    world.mark(login, Wish::Expired).await;
    let second = world.refreshed(login, login).await;
    // Who asks for newer tokens than those that are no longer the newest waits for his own watch.
    world.mark(login, Wish::Expired).await;
    world.mark(second.revision, Wish::Expired).await;
    let third = world.refreshed(login, second.revision).await;
    assert_eq!(world.upstream.issuer().refreshed("a"), 2);
    assert_eq!(world.told_refreshed(2).await[1].credential_revision, third.revision);
    for running in fleet {
        running.stop().await;
    }
    world.end().await;
}

#[tokio::test]
async fn an_upstream_that_refuses_every_token_does_not_have_them_refreshed_without_end() {
    let (world, login) = World::with_account(Terms::default()).await;
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.mark(login, Wish::Refused).await;
    let second = world.refreshed(login, login).await;
    assert_eq!(world.told_refreshed(1).await[0].why, RefreshReason::Refused);
    world.mark(second.revision, Wish::Refused).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.upstream.issuer().refreshed("a"), 1);
    running.stop().await;
    world.end().await;
}

#[tokio::test]
async fn what_was_got_and_not_stored_outlives_a_kill() {
    let (world, login) = World::with_account(Terms::default()).await;
    let other = world.start("upkeep-2");
    let first = world.start("upkeep-1");
    for running in [&first, &other] {
        running.until("all is known", |status| status.current).await;
    }
    // Only the first one may be at it.
    let other_log = other.log.clone();
    other.cut_off();
    world.upstream.issuer().trouble(Trouble::SlowAnswer(Duration::from_millis(300)));
    world.mark(login, Wish::Expired).await;
    until("the OAuth server is asked", async || world.upstream.issuer().refreshed("a") == 1).await;
    first.cut_off();
    other_log.set(waybill_journal::faulty::Faults::NONE);
    first.until("the log is away", |status| status.under_way == 1).await;
    until("it is kept on disk", async || world.kept("upkeep-1").exists()).await;
    assert_eq!(world.stored(login).await.unwrap().revision, login, "it can't be stored");
    first.kill().await;
    // The other one is asked for the same, and uses nothing that is used up.
    world.mark(login, Wish::Expired).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.upstream.issuer().calls().len(), 1);
    assert!(world.told_failed().await.is_empty());

    let again = world.start("upkeep-1");
    let stored = world.refreshed(login, login).await;
    assert_eq!(stored.login, login);
    let told = world.told_refreshed(1).await;
    assert_eq!((told[0].why, told[0].credential_revision), (RefreshReason::Recovered, stored.revision));
    assert_eq!(world.upstream.issuer().calls().len(), 1, "it wasn't asked for again");
    // And the account goes on as if nothing had been.
    world.upstream.issuer().trouble(Trouble::None);
    world.mark(stored.revision, Wish::Expired).await;
    world.refreshed(login, stored.revision).await;
    assert_eq!(world.upstream.issuer().refreshed("a"), 2);
    for running in [again, other] {
        running.stop().await;
    }
    world.end().await;
}

/// `upkeep-1` gets the next tokens, can't store them, and is killed.
async fn killed_with_tokens(world: &World, login: u64, pace: Pace) {
    let running = world.start_at("upkeep-1", pace);
    running.until("all is known", |status| status.current).await;
    world.upstream.issuer().trouble(Trouble::SlowAnswer(Duration::from_millis(200)));
    world.mark(login, Wish::Expired).await;
    until("the OAuth server is asked", async || world.upstream.issuer().refreshed("a") == 1).await;
    running.cut_off();
    until("they are kept on disk", async || world.kept("upkeep-1").exists()).await;
    running.kill().await;
    world.upstream.issuer().trouble(Trouble::None);
}

#[tokio::test]
async fn whoever_died_is_waited_for_only_so_long_and_may_come_back_later_all_the_same() {
    let (world, login) = World::with_account(Terms::default()).await;
    let soon = Pace { answer: Duration::from_secs(3), return_of_others: Duration::ZERO, ..pace() };
    killed_with_tokens(&world, login, soon).await;
    let other = world.start("upkeep-2");
    other.until("all is known", |status| status.current).await;
    world.mark(login, Wish::Expired).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.upstream.issuer().calls().len(), 1, "it waits");
    other.until("it waits no longer, and is refused", |status| status.refused == 1).await;
    until("it is told", async || world.told_failed().await.iter().any(|told| told.is_final)).await;
    // The one who had died brings them after all.
    let again = world.start("upkeep-1");
    let stored = world.refreshed(login, login).await;
    let told = world.told_refreshed(1).await;
    assert_eq!((told[0].why, told[0].credential_revision), (RefreshReason::Recovered, stored.revision));
    for running in [again, other] {
        running.stop().await;
    }
    world.end().await;
}

#[tokio::test]
async fn what_was_kept_for_an_account_that_is_gone_or_has_another_login_is_dropped() {
    for deleted in [true, false] {
        let (mut world, login) = World::with_account(Terms::default()).await;
        killed_with_tokens(&world, login, pace()).await;
        let mut stands = login;
        if deleted {
            world.delete(login).await;
        } else {
            stands = world.import(&world.login(Terms::default())).await;
            world.edit(stands, true).await;
        }
        let again = world.start("upkeep-1");
        until("they are dropped", async || !world.kept("upkeep-1").exists()).await;
        assert_eq!(world.stored(stands).await.unwrap().revision, stands, "deleted: {deleted}");
        again.stop().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_stop_waits_for_an_answer_that_is_on_its_way() {
    let (world, login) = World::with_account(Terms::default()).await;
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.upstream.issuer().trouble(Trouble::SlowAnswer(Duration::from_millis(300)));
    world.mark(login, Wish::Expired).await;
    until("the OAuth server is asked", async || world.upstream.issuer().refreshed("a") == 1).await;
    running.stop().await;
    assert!(world.stored(login).await.unwrap().revision > login);
    world.end().await;
}

#[tokio::test]
async fn an_outage_of_the_oauth_server_is_told_once_and_passes() {
    let (world, login) = World::with_account(short()).await;
    world.upstream.issuer().trouble(Trouble::Status(503));
    let running = world.start("upkeep-1");
    running.until("it is tried again and again", |status| status.failed >= 4).await;
    let told = world.told_failed().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(!told[0].is_final && told[0].message.contains("503"), "{told:?}");
    world.upstream.issuer().trouble(Trouble::None);
    world.refreshed(login, login).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test]
async fn an_oauth_server_that_wants_to_be_left_alone_is() {
    let (world, login) = World::with_account(Terms::default()).await;
    world.upstream.issuer().trouble(Trouble::Busy(3_600));
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.mark(login, Wish::Expired).await;
    running.until("it is told to wait", |status| status.failed == 1).await;
    // Its pauses alone would be some twenty milliseconds.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.upstream.issuer().calls().len(), 1);
    running.stop().await;
    world.end().await;
}

#[tokio::test]
async fn a_login_that_is_gone_is_told_for_good_and_left_alone() {
    let (mut world, login) = World::with_account(Terms::default()).await;
    world.upstream.issuer().revoke("a");
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.mark(login, Wish::Expired).await;
    running.until("it is refused", |status| status.refused == 1).await;
    until("it is told", async || !world.told_failed().await.is_empty()).await;
    let told = world.told_failed().await;
    assert!(told[0].is_final, "{told:?}");
    assert_eq!((told[0].code.as_deref(), told[0].credential_revision), (Some("invalid_grant"), login));
    // Another login is another beginning.
    let another = world.import(&world.login(Terms::default())).await;
    world.edit(another, true).await;
    world.mark(another, Wish::Expired).await;
    world.refreshed(another, another).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test]
async fn an_import_meanwhile_is_not_overwritten() {
    let (mut world, login) = World::with_account(Terms::default()).await;
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.upstream.issuer().trouble(Trouble::SlowAnswer(Duration::from_millis(300)));
    world.mark(login, Wish::Expired).await;
    until("the OAuth server is asked", async || world.upstream.issuer().refreshed("a") == 1).await;
    let mut imported = world.login(Terms::default());
    imported.scopes = vec!["another".to_owned()];
    let another = world.import(&imported).await;
    // No edit names it yet: what was refreshed goes on being what counts.
    world.refreshed(login, login).await;
    world.edit(another, true).await;
    assert_eq!(world.stored(another).await.unwrap().credential.scopes, ["another"]);
    world.mark(another, Wish::Expired).await;
    world.refreshed(another, another).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test]
async fn nothing_is_sent_for_an_account_that_is_disabled() {
    let (mut world, login) = World::with_account(short()).await;
    world.edit(login, false).await;
    let running = world.start("upkeep-1");
    running.until("all is known", |status| status.current).await;
    world.mark(login, Wish::Expired).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.upstream.issuer().calls().is_empty());
    world.edit(login, true).await;
    world.refreshed(login, login).await;
    running.stop().await;
    world.end().await;
}
