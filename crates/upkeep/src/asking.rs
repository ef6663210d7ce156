//! One probe or check, from the permit to the record.

use waybill_domain::catalog::SourceEntity;
use waybill_domain::probing::Purpose;
use waybill_domain::verdict::Rulebook;
use waybill_event::config::CheckBy;
use waybill_event::control::{CheckEvidence, ProbeFinished, ProbeOf, SourceChecked};
use waybill_event::{Body, ConfigPosition, Draft, FailureKind, LogTime, Scope};

use crate::permit::{NotNow, Permit};
use crate::probe::{PROBE_LIFE, Probed, brings_back};
use crate::runner::{ASK_AGAIN, Upkeep};
use crate::schedule::Wanted;

/// What is due, with what was known when it was.
pub(crate) struct Asked {
    pub(crate) wanted: Wanted,
    pub(crate) entity: SourceEntity,
    pub(crate) config: ConfigPosition,
    pub(crate) rules: Rulebook,
}

/// What became of something that was due.
pub(crate) struct Done {
    pub(crate) wanted: Wanted,
    pub(crate) next: LogTime,
}

impl Upkeep {
    pub(crate) async fn ask(&self, asked: Asked) -> Done {
        let now = (self.clock)();
        let permit = match self.permits.claim(&asked.wanted, now, PROBE_LIFE).await {
            Ok(permit) => permit,
            Err(NotNow::Until { until }) => return Done { wanted: asked.wanted, next: until },
            Err(error @ NotNow::Store { .. }) => return self.unready(asked.wanted, &error.to_string()),
        };
        let Asked { wanted, entity, rules, .. } = &asked;
        let probed = match wanted.purpose {
            Purpose::Disabled => self.prober.probe(rules, entity, permit.tries(), now).await,
            Purpose::Check { .. } => self.prober.check(rules, entity, now).await,
        };
        let probed = match probed {
            Ok(probed) => probed,
            Err(error) => {
                self.permits.give_up(wanted, &permit).await;
                return self.unready(asked.wanted, &error.to_string());
            }
        };
        let kind = probed.verdict.kind;
        match wanted.purpose {
            Purpose::Disabled => self.probed(&asked, &permit, probed),
            Purpose::Check { .. } => self.checked(&asked, &permit, probed),
        }
        // After a success it is kept too: a source that is soon disabled again isn't probed at once again.
        let next = self.permits.keep(&asked.wanted, permit, kind, (self.clock)()).await;
        Done { wanted: asked.wanted, next }
    }

    fn probed(&self, asked: &Asked, permit: &Permit, probed: Probed) {
        let Asked { wanted, entity, .. } = asked;
        let kind = probed.verdict.kind;
        let ok = brings_back(kind);
        tracing::info!(source = %wanted.source, %kind, ok, probe = permit.tries(), "a disabled source was probed");
        let used = entity.revisions();
        let recorded = self.record(
            asked,
            ProbeFinished {
                probe: ProbeOf::Disabled { disabling: wanted.disabling.to_string() },
                scope: Scope { source: wanted.source, model: None },
                ok,
                kind,
                credential_revision: used.credential,
                base_url_revision: used.base_url,
                upstream_model: probed.upstream_model,
                rule: Some(probed.verdict.rule.to_string()),
                message: probed.message,
            },
        );
        let mut status = self.status.write();
        status.probes += 1;
        status.brought_back += u64::from(ok && recorded);
        status.unrecorded += u64::from(!recorded);
    }

    fn checked(&self, asked: &Asked, permit: &Permit, probed: Probed) {
        let Asked { wanted, entity, .. } = asked;
        let kind = probed.verdict.kind;
        let ok = match entity.probe().check_by {
            CheckBy::Chat => brings_back(kind),
            CheckBy::Models => kind == FailureKind::Success,
        };
        let counts = entity.probe().checks_count;
        let mut unrecorded = false;
        // What says the same as before is no news, unless it is evidence.
        if counts || permit.last() != Some(kind) {
            let used = entity.revisions();
            let took_ms = u32::try_from(probed.took.as_millis()).unwrap_or(u32::MAX);
            let verdict = probed.verdict;
            let evidence = probed.upstream_model.filter(|_| counts).map(|upstream_model| CheckEvidence {
                upstream_model,
                source_health: verdict.source_health,
                model_health: verdict.model_health,
                latency_ms: ok.then_some(took_ms),
                block: verdict.block,
            });
            unrecorded = !self.record(
                asked,
                SourceChecked {
                    scope: Scope { source: wanted.source, model: None },
                    by: entity.probe().check_by,
                    ok,
                    kind,
                    rule: verdict.rule.to_string(),
                    credential_revision: used.credential,
                    base_url_revision: used.base_url,
                    took_ms,
                    message: probed.message,
                    evidence,
                },
            );
        }
        let mut status = self.status.write();
        status.checks += 1;
        status.checks_failed += u64::from(!ok);
        status.unrecorded += u64::from(unrecorded);
    }

    fn unready(&self, wanted: Wanted, error: &str) -> Done {
        tracing::warn!(source = %wanted.source, error, "a source can't be probed now");
        self.status.write().unready += 1;
        Done { wanted, next: (self.clock)() + ASK_AGAIN }
    }

    /// Writes a result down; says whether that worked.
    fn record(&self, asked: &Asked, body: impl Into<Body>) -> bool {
        let Asked { wanted, entity, config, .. } = asked;
        let draft =
            Draft { source: Some(entity.source_ref()), config: Some(*config), ..Draft::new((self.clock)(), body) };
        let appended = draft.encode().map_err(|e| e.to_string());
        let appended = appended.and_then(|event| self.outbox.append(&[event]).map_err(|e| e.to_string()));
        if let Err(error) = &appended {
            tracing::error!(error, source = %wanted.source, "a probe's result can't be recorded");
        }
        appended.is_ok()
    }
}
