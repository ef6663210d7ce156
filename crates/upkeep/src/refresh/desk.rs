//! What is known of the accounts, and where the refreshing of each stands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use waybill_domain::catalog::SourceEntity;
use waybill_domain::refreshing::{Mark, Wish, leased, marked, source};
use waybill_domain::selector::state::is_of_token;
use waybill_event::control::RefreshReason;
use waybill_event::failure::Recovery;
use waybill_event::{ConfigPosition, LogTime, SourceKind};
use waybill_journal::{Message, Watched};
use waybill_secret::{AccountTokens, Vault};

use super::one::{Came, Done, Job};
use super::pace::{Pace, Stand};
use super::spool::Kept;
use crate::known::{About, Known};

#[derive(Debug, Default)]
struct Entry {
    stand: Stand,
    /// Revision of the tokens that the stand is about.
    revision: u64,
    /// Revision of the tokens that the wish is about.
    wished: u64,
    /// Until when somebody else's refresh is waited for.
    held_until: LogTime,
    under_way: bool,
}

/// Catalogue, states and the stand of every account.
#[derive(Default)]
pub(super) struct Desk {
    known: Known,
    /// Position up to which sealed credentials were heard of.
    secret: u64,
    entries: BTreeMap<u64, Entry>,
    found: VecDeque<Kept>,
}

impl Desk {
    /// A desk with what an earlier start left.
    pub(super) fn new(found: Vec<Kept>) -> Self {
        let mut desk = Self { found: found.into(), ..Self::default() };
        // Their old refresh tokens are used up.
        let accounts: BTreeSet<u64> = desk.found.iter().map(|kept| kept.account).collect();
        for account in accounts {
            desk.entries.entry(account).or_default().under_way = true;
        }
        desk
    }

    pub(super) fn is_current(&self, config: u64, secret: u64) -> bool {
        let position = self.known.snapshot().position();
        position >= ConfigPosition(config) && self.secret >= secret && self.known.states_current()
    }

    pub(super) fn position(&self) -> ConfigPosition {
        self.known.snapshot().position()
    }

    pub(super) fn next_found(&mut self) -> Option<Kept> {
        self.found.pop_front()
    }

    pub(super) fn entity(&self, account: u64) -> Option<SourceEntity> {
        self.known.entity(source(account))
    }

    pub(super) fn heard_secret(&mut self, sequence: u64) {
        self.secret = self.secret.max(sequence);
    }

    pub(super) fn edit(&mut self, message: &Message) -> bool {
        // Also what isn't about an account brings the position on.
        let _about = self.known.edit(message);
        true
    }

    pub(super) fn state(&mut self, watched: &Watched) -> bool {
        match self.known.watched(watched.clone()) {
            About::Source(source) => source.kind == SourceKind::Account,
            About::All => true,
            About::Nothing => false,
        }
    }

    /// A mark was set, or somebody's lease has ended.
    pub(super) fn marked(&mut self, watched: &Watched, vault: &Vault) -> bool {
        match watched {
            Watched::Put(entry) => {
                let Some(account) = marked(&entry.key) else { return false };
                let Ok(mark) = serde_json::from_slice::<Mark>(&entry.value) else { return false };
                let held = self.entity(account).and_then(|entity| tokens(vault, &entity));
                // Whoever has older ones has to wait for his own watch. What isn't known yet is judged when it is.
                if held.is_some_and(|held| mark.revision < held.revision) {
                    return false;
                }
                let entry = self.entries.entry(account).or_default();
                if entry.stand.wish != Some(Wish::Expired) || entry.wished < mark.revision {
                    entry.stand.wish = Some(mark.why);
                }
                entry.wished = entry.wished.max(mark.revision);
                true
            }
            Watched::Gone { key, .. } => {
                let Some(entry) = leased(key).and_then(|account| self.entries.get_mut(&account)) else { return false };
                let waited = entry.held_until > LogTime::default();
                entry.held_until = LogTime::default();
                waited
            }
            Watched::Current => false,
        }
    }

    /// The next account whose time has come, which counts as under way from now on; or when the next one is due.
    pub(super) fn due(&mut self, vault: &Vault, pace: &Pace, now: LogTime) -> (Option<Job>, Option<LogTime>) {
        let mut next: Option<LogTime> = None;
        let accounts: Vec<SourceEntity> =
            self.known.snapshot().catalog().accounts.values().cloned().map(SourceEntity::from).collect();
        for entity in accounts {
            let Some(tokens) = tokens(vault, &entity).filter(|held| held.shown.refreshable && entity.enabled()) else {
                continue;
            };
            if self.is_given_up(&entity, tokens.revision) {
                continue;
            }
            let account = entity.id();
            let entry = self.entries.entry(account).or_default();
            if entry.under_way {
                continue;
            }
            if entry.revision != tokens.revision {
                entry.revision = tokens.revision;
                let Stand { refused_at, refreshed_at, wish, .. } = entry.stand;
                let wish = wish.filter(|_| entry.wished >= tokens.revision);
                entry.stand = Stand { refused_at, refreshed_at, wish, ..Stand::default() };
                entry.held_until = LogTime::default();
            }
            let Some((at, why)) = entry.stand.due(pace, account, tokens.revision, &tokens.shown) else { continue };
            let at = at.max(entry.held_until);
            if at > now {
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            entry.under_way = true;
            let (failures, config) = (entry.stand.failures, self.known.snapshot().position());
            return (Some(Job { entity, tokens, why, failures, config }), None);
        }
        (None, next)
    }

    /// What came of a refresh.
    pub(super) fn done(&mut self, done: &Done, pace: &Pace, spread: u64, now: LogTime) {
        let Some(entry) = self.entries.get_mut(&done.account) else { return };
        entry.under_way = false;
        match done.came {
            Came::Refreshed => {
                let refused_at = if done.why == RefreshReason::Refused { Some(now) } else { entry.stand.refused_at };
                entry.stand = Stand { refused_at, refreshed_at: Some(now), ..Stand::default() };
            }
            Came::Newer => {
                let Stand { refused_at, refreshed_at, .. } = entry.stand;
                entry.stand = Stand { refused_at, refreshed_at, ..Stand::default() };
            }
            Came::NotNow { until } => entry.held_until = until,
            Came::Failed { wait } => {
                entry.stand.failures = entry.stand.failures.saturating_add(1);
                let told = wait.unwrap_or_default().min(pace.longest_told);
                entry.stand.not_before = now + pace.pause(entry.stand.failures, spread).max(told);
            }
            // The state that says so is on its way.
            Came::Refused => {
                entry.stand.failures = entry.stand.failures.saturating_add(1);
                entry.stand.not_before = now + pace.longest_pause;
            }
        }
    }

    /// Accounts whose tokens can be refreshed, and those of them whose access token has expired.
    pub(super) fn count(&self, vault: &Vault, now: LogTime) -> (usize, usize) {
        let accounts = self.known.snapshot().catalog().accounts.values().cloned().map(SourceEntity::from);
        let held: Vec<AccountTokens> =
            accounts.filter_map(|entity| tokens(vault, &entity)).filter(|held| held.shown.refreshable).collect();
        let expired = held.iter().filter(|held| held.credential.expired(now.as_millis())).count();
        (held.len(), expired)
    }

    /// Whether only an operator can bring the account back, so that nothing is sent on its behalf.
    fn is_given_up(&self, entity: &SourceEntity, revision: u64) -> bool {
        let disabled = self.known.disabled(entity.source());
        disabled.is_some_and(|disabled| {
            let of_these = if is_of_token(disabled.kind) {
                disabled.revisions.credential >= revision
            } else {
                !disabled.revisions.older_than(entity.revisions())
            };
            disabled.recovery == Recovery::Operator && of_these
        })
    }
}

/// The tokens in use of an account.
fn tokens(vault: &Vault, entity: &SourceEntity) -> Option<AccountTokens> {
    vault.account(entity.id(), entity.credential()?.revision)
}
