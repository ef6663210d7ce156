//! Whether a source serves now, and what keeps it out: one reason for each thing that does, with its end.

mod evidence;
mod words;

use serde::Serialize;
use waybill_domain::catalog::{Catalog, SourceEntity};
use waybill_domain::history::StoryLine;
use waybill_domain::selector::breaker::{Opening, Phase};
use waybill_domain::selector::eligibility::{Eligibility, eligibility, unknown};
use waybill_domain::selector::factors::Load;
use waybill_domain::selector::state::{ScopeState, is_of_token};
use waybill_event::failure::{Recovery, Strength};
use waybill_event::selection::SkipReason;
use waybill_event::{FailureKind, LogTime, Source};

use super::sources::{Token, facts};
use crate::State;
use crate::live::{InUse, LiveSource};

pub(super) use evidence::attach;
pub(super) use words::span;

/// Whether a source serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// At least one model can be asked for now.
    Serving,
    /// It would serve, but all that it may have at once, or within a minute, is taken.
    Full,
    /// It is asked when nothing better is left.
    LastResort,
    /// A breaker is half open: one request at a time tries it.
    Probing,
    /// It is passed over.
    Out,
}

/// What ends that a source is kept out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ends {
    /// It ends by itself.
    Time,
    /// Room, when a request ends.
    Room,
    /// Requests that try it, from its time on.
    Requests,
    /// Upkeep's probes.
    Probe,
    /// Upkeep's next refresh.
    Refresh,
    /// Another login.
    Login,
    /// An operator's edit.
    Operator,
}

/// One thing that keeps a source, or one model of it, out.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reason {
    pub(super) why: &'static str,
    /// The one model that it keeps out, by its upstream name; absent for all.
    pub(super) model: Option<String>,
    pub(super) kind: Option<FailureKind>,
    pub(super) since: Option<LogTime>,
    /// Until when; absent where no time ends it.
    pub(super) until: Option<LogTime>,
    /// Seconds until then.
    pub(super) left_s: Option<u64>,
    pub(super) ends: Ends,
    /// All of it, in a sentence.
    pub(super) text: String,
    /// What caused it: attempts, requests and edits, the direct cause first.
    pub(super) evidence: Vec<StoryLine>,
    /// The block, opening or disabling, by which its announcement is found.
    #[serde(skip)]
    subject: Option<String>,
}

impl Reason {
    fn new(why: &'static str, ends: Ends) -> Self {
        let text = String::new();
        let (model, kind, since, until, left_s) = (None, None, None, None, None);
        Self { why, model, kind, since, until, left_s, ends, text, evidence: Vec::new(), subject: None }
    }
}

/// How a source stands.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Judged {
    pub(super) standing: Standing,
    /// When it is expected back by itself; absent where it serves, or where no time ends what keeps it out.
    pub(super) returns_at: Option<LogTime>,
    pub(super) reasons: Vec<Reason>,
}

/// All that a judgement goes by.
pub(super) struct Look<'a> {
    pub(super) state: &'a State,
    pub(super) catalog: &'a Catalog,
    pub(super) entity: &'a SourceEntity,
    pub(super) live: Option<&'a LiveSource>,
    pub(super) in_use: &'a InUse,
    pub(super) token: Option<&'a Token>,
    pub(super) now: LogTime,
}

impl Look<'_> {
    pub(super) fn judge(&self) -> Judged {
        let models = self.models();
        let mut reasons = self.whole();
        // What keeps the whole out, whatever its models are.
        let shut = !reasons.is_empty();
        let well = |name: &str| models.iter().any(|(model, judged)| *model == name && judged.skip.is_none());
        if let Some(live) = self.live
            && models.iter().any(|(_, judged)| judged.skip.is_some())
        {
            self.scope(&live.state.whole, None, &mut reasons);
            for (model, state) in live.state.models.iter().filter(|(model, _)| !well(model)) {
                if models.iter().any(|(name, _)| name == model) {
                    self.scope(state, Some(model), &mut reasons);
                }
            }
        }
        let full = self.full();
        let any = |skip: Option<SkipReason>| models.iter().any(|(_, judged)| judged.skip == skip);
        let standing = match () {
            () if shut => Standing::Out,
            () if any(None) && !full.is_empty() => Standing::Full,
            () if any(None) => Standing::Serving,
            () if any(Some(SkipReason::Probing)) => Standing::Probing,
            () if any(Some(SkipReason::SoftBlocked)) => Standing::LastResort,
            () => Standing::Out,
        };
        let returns_at = match standing {
            Standing::Serving => None,
            Standing::Full => full.iter().filter_map(|reason| reason.until).max(),
            Standing::LastResort | Standing::Probing | Standing::Out if shut => None,
            Standing::LastResort | Standing::Probing | Standing::Out => {
                models.iter().filter_map(|(_, judged)| judged.returns_at).min()
            }
        };
        reasons.extend(full);
        for reason in &mut reasons {
            reason.left_s = reason.until.map(|until| until.since(self.now).as_secs());
            reason.text = words::of(reason, self);
        }
        Judged { standing, returns_at, reasons }
    }

    fn models(&self) -> Vec<(&str, Eligibility)> {
        let load = Load { in_flight: 0, max_concurrent: self.entity.limits().max_concurrent };
        let judged = |upstream| {
            let facts = facts(self.catalog, self.entity, upstream);
            match self.live {
                Some(live) => eligibility(&live.state, facts, upstream, load, self.now),
                None => unknown(facts, load, self.now),
            }
        };
        let models = self.entity.models().iter().map(waybill_event::config::ChannelModel::upstream_name);
        models.map(|upstream| (upstream, judged(upstream))).collect()
    }

    /// What keeps the whole source out, but for blocks and breakers.
    fn whole(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if !self.entity.enabled() {
            reasons.push(Reason::new("disabled_by_operator", Ends::Operator));
        }
        reasons.extend(self.disabled());
        if self.entity.models().is_empty() {
            reasons.push(Reason::new("no_models", Ends::Operator));
        }
        let mut groups = self.entity.groups().iter().filter_map(|id| self.catalog.groups.get(id));
        if !groups.any(|group| group.enabled) {
            reasons.push(Reason::new("no_group", Ends::Operator));
        }
        let account = matches!(self.entity, SourceEntity::Account(_));
        match self.token {
            _ if self.entity.credential().is_none() => {
                let ends = if account { Ends::Login } else { Ends::Operator };
                reasons.push(Reason::new("no_credential", ends));
            }
            Some(token) if token.expired => {
                // Who was given up for its login isn't refreshed any more.
                let given_up = reasons.iter().any(|reason| reason.ends == Ends::Login);
                let ends = if token.refreshable && !given_up { Ends::Refresh } else { Ends::Login };
                reasons.push(Reason { since: token.expires_at, ..Reason::new("credential_expired", ends) });
            }
            Some(_) | None => {}
        }
        for (at, done) in self.catalog.by_hand(self.entity.source(), "").iter().enumerate() {
            // The second is a model's, and no model is called so.
            if let Some(held) = done.holds(self.now).filter(|_| at == 0) {
                let ends = if held.until.is_some() { Ends::Time } else { Ends::Operator };
                reasons.push(Reason { until: held.until, ..Reason::new("held_open", ends) });
            }
        }
        reasons
    }

    fn disabled(&self) -> Option<Reason> {
        let disabled = self.live?.state.disabled.as_ref()?;
        if disabled.revisions.older_than(self.entity.revisions()) {
            return None;
        }
        let ends = match disabled.recovery {
            Recovery::Probe => Ends::Probe,
            Recovery::Operator if is_of_token(disabled.kind) => Ends::Login,
            Recovery::Operator => Ends::Operator,
        };
        let probe = self.state.live().probes(self.entity.source(), &disabled.id);
        Some(Reason {
            kind: Some(disabled.kind),
            since: Some(disabled.since),
            until: probe.filter(|_| ends == Ends::Probe).map(|hold| hold.until),
            subject: Some(disabled.id.to_string()),
            ..Reason::new("disabled_by_verdict", ends)
        })
    }

    /// Blocks and the breaker of the whole, or of a model.
    fn scope(&self, scope: &ScopeState, model: Option<&str>, reasons: &mut Vec<Reason>) {
        let valid = self.entity.revisions();
        let model = model.map(str::to_owned);
        if let Some(held) = model.as_deref().and_then(|name| {
            let [_, done] = self.catalog.by_hand(self.entity.source(), name);
            done.holds(self.now)
        }) {
            let ends = if held.until.is_some() { Ends::Time } else { Ends::Operator };
            reasons.push(Reason { until: held.until, model: model.clone(), ..Reason::new("held_open", ends) });
        }
        let strengths =
            [(Strength::Hard, "hard_blocked"), (Strength::Hint, "hint_blocked"), (Strength::Soft, "soft_blocked")];
        for (strength, why) in strengths {
            let block = scope.blocks.active(strength, self.now).filter(|block| !block.revisions.older_than(valid));
            reasons.extend(block.map(|block| Reason {
                model: model.clone(),
                kind: Some(block.kind),
                since: Some(block.since),
                until: Some(block.until),
                subject: Some(block.id.to_string()),
                ..Reason::new(why, Ends::Time)
            }));
        }
        let opened = |opening: &Opening, why| Reason {
            model: model.clone(),
            since: Some(opening.since),
            until: Some(opening.open_until).filter(|until| *until > self.now),
            subject: Some(opening.id.to_string()),
            ..Reason::new(why, Ends::Requests)
        };
        let open = if model.is_none() { "source_breaker_open" } else { "model_breaker_open" };
        match scope.breaker.phase(self.now) {
            Phase::Closed => {}
            Phase::Open(opening) if opening.revisions.older_than(valid) => {}
            Phase::HalfOpen(opening) if opening.revisions.older_than(valid) => {}
            Phase::Open(opening) => reasons.push(opened(opening, open)),
            Phase::HalfOpen(opening) => reasons.push(opened(opening, "probing")),
        }
    }

    /// Limits that are used up.
    fn full(&self) -> Vec<Reason> {
        let (limits, used) = (self.entity.limits(), self.in_use);
        let mut reasons = Vec::new();
        // 0 is no limit.
        if limits.max_concurrent.is_some_and(|most| most > 0 && used.in_flight >= most) {
            reasons.push(Reason::new("concurrency", Ends::Room));
        }
        if limits.requests_per_minute.is_some_and(|most| most > 0 && used.rate_used >= most) {
            reasons.push(Reason { until: used.rate_frees_at, ..Reason::new("rpm", Ends::Time) });
        }
        reasons
    }

    /// The source.
    pub(super) fn source(&self) -> Source {
        self.entity.source()
    }
}
