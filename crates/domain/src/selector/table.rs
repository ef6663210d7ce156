//! The selection table: what plans of one (group, model) are made from. It is computed when eligibility changes and at
//! most once a second besides, and its first use is recorded, so that every plan can be checked afterwards.

mod hash;

use std::sync::Arc;
use std::time::Duration;

use waybill_event::config::Capabilities;
use waybill_event::selection::{Skip, SkipReason, TableHash};
use waybill_event::traffic::{Factors, SelectionTable, TableCandidate};
use waybill_event::{ConfigPosition, GroupId, LogTime, Position, Source, SourceRef};

use super::eligibility::{CatalogFacts, Eligibility, Limited, eligibility, unknown};
use super::factors::{Load, effective, p95_ms};
use super::state::{ByHand, Revisions};
use super::view::View;
use crate::candidate::Candidate;
use crate::catalog::Ability;

pub use hash::recorded_hash;

/// One candidate of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The source, with the version of its entity.
    pub source: SourceRef,
    /// What is sent to it as model.
    pub upstream_model: Arc<str>,
    /// Its tier.
    pub priority: i32,
    /// Its configured weight.
    pub weight: u32,
    /// What it can do, as far as it is declared.
    pub capabilities: Capabilities,
    /// 95th percentile of its response times, in milliseconds.
    pub p95_ms: Option<u32>,
    /// How many requests may be in flight there.
    pub max_concurrent: Option<u32>,
    /// Its factors.
    pub factors: Factors,
    /// Weight times factors.
    pub effective: u64,
    /// Why it is out, if it is.
    pub skip: Option<SkipReason>,
    /// The opening whose probe permit lets one request through.
    pub half_open: Option<Arc<str>>,
    /// How many probes of that opening may run at once in the whole fleet.
    pub probes: u32,
    /// When what keeps it out ends by itself.
    pub returns_at: Option<LogTime>,
    /// Whether only limits keep it out.
    pub busy: bool,
    /// The limit, where that is told by the upstream and is all that keeps it out.
    pub limited: Option<Limited>,
    /// Position of the shared state it was judged by.
    pub position: Option<Position>,
    /// First and last ordinal of own events on top of that.
    pub own: Option<(u64, u64)>,
}

impl Row {
    /// Judges a candidate by this replica's view of its source.
    #[must_use]
    pub fn judge(ability: &Ability, view: Option<&View>, load: Load, by_hand: [ByHand; 2], as_of: LogTime) -> Self {
        let facts = CatalogFacts {
            enabled: ability.enabled,
            has_credential: ability.has_credential(),
            revisions: Revisions {
                credential: ability.credential_revision.unwrap_or(0),
                base_url: ability.base_url_revision,
            },
            by_hand,
        };
        let judged = match view {
            Some(view) => eligibility(view.state(), facts, &ability.upstream_model, load, as_of),
            None => unknown(facts, load, as_of),
        };
        let Eligibility { skip, half_open, probes, returns_at, busy, limited, factors } = judged;
        Self {
            source: ability.source_ref(),
            upstream_model: Arc::clone(&ability.upstream_model),
            priority: ability.priority,
            weight: ability.weight,
            capabilities: ability.capabilities,
            max_concurrent: load.max_concurrent,
            p95_ms: view.and_then(|view| p95_ms(view.state(), &ability.upstream_model)),
            factors,
            effective: effective(ability.weight, factors),
            skip,
            half_open,
            probes,
            returns_at,
            busy,
            limited,
            position: view.and_then(View::position),
            own: view.and_then(View::own_range),
        }
    }

    /// Whether a breaker alone keeps it out, as far as the reason tells.
    #[must_use]
    pub const fn breaker_is_open(&self) -> bool {
        matches!(self.skip, Some(SkipReason::SourceBreakerOpen | SkipReason::ModelBreakerOpen))
    }

    /// Whether a candidate whose turn has come may still be asked, by what is known of it now. What the plan took as a
    /// probe, as a last resort or despite its breaker is still that.
    ///
    /// # Errors
    /// Why not.
    pub fn still_lets(&self, candidate: &Candidate) -> Result<(), SkipReason> {
        match self.skip {
            None => Ok(()),
            Some(SkipReason::Probing) if candidate.probe_of.is_some() && self.half_open == candidate.probe_of => Ok(()),
            Some(SkipReason::SoftBlocked) if candidate.last_resort => Ok(()),
            Some(SkipReason::HintBlocked | SkipReason::HardBlocked)
                if candidate.retry_of().is_some()
                    && self.limited.as_ref().map(|limited| &limited.block) == candidate.retry_of() =>
            {
                Ok(())
            }
            Some(SkipReason::SourceBreakerOpen | SkipReason::ModelBreakerOpen) if candidate.despite_open => Ok(()),
            Some(why) => Err(why),
        }
    }

    fn recorded(&self) -> TableCandidate {
        TableCandidate {
            source: self.source.source,
            priority: self.priority,
            weight: self.weight,
            factors: self.factors,
            skip: self.skip,
            position: self.position,
            own: self.own,
        }
    }
}

/// Candidates of one rank: a plan goes through the ranks in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) priority: i32,
    /// Numbers of the rows that share the rank by weight.
    pub(super) rows: Vec<u32>,
}

/// Why no candidate can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Nothing is configured that could serve.
    Nothing,
    /// All merely wait for limits to pass; with the soonest end, where one is known.
    Busy {
        /// When the first returns.
        retry_at: Option<LogTime>,
    },
    /// They are blocked, open or disabled; with the soonest end, where one is known.
    Down {
        /// When the first returns.
        retry_at: Option<LogTime>,
    },
}

/// What plans of one (group, model) are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    hash: TableHash,
    group: GroupId,
    model: Arc<str>,
    as_of: LogTime,
    config: ConfigPosition,
    rows: Vec<Row>,
    pub(super) tiers: Vec<Rank>,
    pub(super) half_open: Vec<u32>,
    pub(super) weightless: Vec<Rank>,
    pub(super) soft: Vec<Rank>,
    /// Rows that wait for the end of a limit that their upstream has told, the one that ends soonest first.
    pub(super) limited: Vec<u32>,
    /// Rows whose breaker is open, the one that opens soonest first: for plans that ask the least bad.
    pub(super) open: Vec<u32>,
    /// Rows whose breaker is open and that serve all the same, since too much of their tier would be out.
    pub(super) spared: Vec<u32>,
    /// Whether a row declares what it can do.
    pub(super) declares: bool,
}

impl Table {
    /// Judges all candidates and builds their table.
    pub fn build<'a, 'v>(
        (group, model): (GroupId, Arc<str>),
        candidates: impl IntoIterator<Item = &'a Ability>,
        views: impl Fn(Source) -> Option<&'v View>,
        load: impl Fn(&Ability) -> Load,
        as_of: LogTime,
        config: ConfigPosition,
    ) -> Self {
        let judge = |ability: &Ability| {
            Row::judge(ability, views(ability.source), load(ability), <[ByHand; 2]>::default(), as_of)
        };
        Self::of((group, model), candidates.into_iter().map(judge).collect(), as_of, config, 100)
    }

    /// The table of these rows, which may come in any order. Open breakers take at most `max_ejected_percent` of a tier
    /// out; of those that are spared the heaviest come first.
    #[must_use]
    pub fn of(
        (group, model): (GroupId, Arc<str>),
        mut rows: Vec<Row>,
        as_of: LogTime,
        config: ConfigPosition,
        max_ejected_percent: u32,
    ) -> Self {
        rows.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.source.source.cmp(&b.source.source)));
        let spared = if max_ejected_percent < 100 { spared(&rows, max_ejected_percent) } else { Vec::new() };
        let serves = |number: u32, row: &Row| row.skip.is_none() || spared.contains(&number);
        let ranked = |wanted: &dyn Fn(u32, &Row) -> bool| ranks(&rows, wanted);
        let tiers = ranked(&|number, row| serves(number, row) && row.effective > 0);
        let weightless = ranked(&|number, row| serves(number, row) && row.effective == 0);
        let soft = ranked(&|_, row| row.skip == Some(SkipReason::SoftBlocked));
        let half_open = ranked(&|_, row| row.half_open.is_some()).into_iter().flat_map(|rank| rank.rows).collect();
        let still_open = |(number, row): &(u32, &Row)| row.breaker_is_open() && !spared.contains(number);
        let mut open: Vec<(u32, &Row)> = (0_u32..).zip(&rows).filter(still_open).collect();
        open.sort_by_key(|(number, row)| (row.returns_at.is_none(), row.returns_at, *number));
        let open = open.into_iter().map(|(number, _)| number).collect();
        let mut limited: Vec<(u32, &Row)> = (0_u32..).zip(&rows).filter(|(_, row)| row.limited.is_some()).collect();
        limited.sort_by_key(|(number, row)| (row.returns_at, *number));
        let limited = limited.into_iter().map(|(number, _)| number).collect();
        let declares = rows.iter().any(|row| !row.capabilities.is_empty());
        let hash = TableHash(0);
        let mut table = Self {
            hash,
            group,
            model,
            as_of,
            config,
            rows,
            tiers,
            half_open,
            weightless,
            soft,
            limited,
            open,
            spared,
            declares,
        };
        table.hash = recorded_hash(&table.to_event());
        table
    }

    /// The event that the table's first use leaves.
    #[must_use]
    pub fn to_event(&self) -> SelectionTable {
        SelectionTable {
            hash: self.hash,
            group: self.group,
            model: self.model.to_string(),
            as_of: self.as_of,
            candidates: self.rows.iter().map(Row::recorded).collect(),
        }
    }

    /// The table as an event tells it, as far as draws go: upstream names, versions and times of return aren't recorded.
    /// `None` if the content isn't what its hash names.
    #[must_use]
    pub fn from_event(event: &SelectionTable, config: ConfigPosition, max_ejected_percent: u32) -> Option<Self> {
        let model: Arc<str> = event.model.as_str().into();
        let row = |candidate: &TableCandidate| Row {
            source: SourceRef { source: candidate.source, rev: 0 },
            upstream_model: Arc::clone(&model),
            priority: candidate.priority,
            weight: candidate.weight,
            capabilities: Capabilities::default(),
            p95_ms: None,
            max_concurrent: None,
            factors: candidate.factors,
            effective: effective(candidate.weight, candidate.factors),
            skip: candidate.skip,
            half_open: (candidate.skip == Some(SkipReason::Probing)).then(|| "".into()),
            probes: 1,
            returns_at: None,
            busy: candidate.skip == Some(SkipReason::HintBlocked),
            limited: None,
            position: candidate.position,
            own: candidate.own,
        };
        let rows = event.candidates.iter().map(row).collect();
        let table = Self::of((event.group, Arc::clone(&model)), rows, event.as_of, config, max_ejected_percent);
        (table.hash == event.hash).then_some(table)
    }

    /// Names the recorded content.
    #[must_use]
    pub const fn hash(&self) -> TableHash {
        self.hash
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.group
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The time it was judged at.
    #[must_use]
    pub const fn as_of(&self) -> LogTime {
        self.as_of
    }

    /// The configuration it was built under.
    #[must_use]
    pub const fn config(&self) -> ConfigPosition {
        self.config
    }

    /// All candidates, highest priority first, then by source.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a source.
    #[must_use]
    pub fn row_of(&self, source: Source) -> Option<&Row> {
        self.rows.iter().find(|row| row.source.source == source)
    }

    /// The candidates that are out, and why.
    pub fn skips(&self) -> impl Iterator<Item = Skip> + '_ {
        self.rows.iter().filter_map(|row| row.skip.map(|why| Skip { source: row.source.source, why }))
    }

    /// Whether both let the same candidates through, for the same reasons: then the older one may serve until its second
    /// is over.
    #[must_use]
    pub fn same_eligibility(&self, other: &Self) -> bool {
        let same = |a: &Row, b: &Row| {
            (a.source, a.priority, a.weight, a.skip) == (b.source, b.priority, b.weight, b.skip)
                && a.half_open == b.half_open
                && a.upstream_model == b.upstream_model
        };
        self.rows.len() == other.rows.len() && self.rows.iter().zip(&other.rows).all(|(a, b)| same(a, b))
    }

    /// The earliest time after `as_of` at which a candidate that is out returns by itself: the table must be built anew
    /// by then.
    #[must_use]
    pub fn changes_at(&self) -> Option<LogTime> {
        self.rows.iter().filter_map(|row| row.returns_at).filter(|at| *at > self.as_of).min()
    }

    /// When a row that is out may serve again: at the end of what keeps it out, or when its limit may be tried again.
    fn may_serve_from(&self, row: &Row) -> Option<LogTime> {
        let soon = self.as_of + Duration::from_secs(1);
        let retried = row.limited.as_ref().map(|limited| limited.retry_from.max(soon));
        row.returns_at.map(|ends| retried.map_or(ends, |from| ends.min(from)))
    }

    /// Why nothing of it can be asked, for plans without a candidate. What only an edit or a probe of ours can bring back
    /// counts only where there is nothing else.
    #[must_use]
    pub fn unavailable(&self) -> Unavailable {
        let returning = || self.rows.iter().filter(|row| row.returns_at.is_some());
        let retry_at = returning().filter_map(|row| self.may_serve_from(row)).min();
        match (self.rows.is_empty(), retry_at) {
            (true, _) => Unavailable::Nothing,
            (false, Some(_)) if returning().all(|row| row.busy) => Unavailable::Busy { retry_at },
            (false, _) => Unavailable::Down { retry_at },
        }
    }
}

fn ranks(rows: &[Row], wanted: &dyn Fn(u32, &Row) -> bool) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = Vec::new();
    for (number, row) in (0_u32..).zip(rows).filter(|(number, row)| wanted(*number, row)) {
        match ranks.last_mut().filter(|rank| rank.priority == row.priority) {
            Some(rank) => rank.rows.push(number),
            None => ranks.push(Rank { priority: row.priority, rows: vec![number] }),
        }
    }
    ranks
}

/// The rows with an open breaker that serve all the same, tier by tier: chosen by what a table's event records.
fn spared(rows: &[Row], max_ejected_percent: u32) -> Vec<u32> {
    let mut spared = Vec::new();
    let tiers = ranks(rows, &|_, row| row.breaker_is_open() || row.skip.is_none() || row.half_open.is_some());
    for tier in tiers {
        let row = |number: &u32| usize::try_from(*number).ok().and_then(|number| rows.get(number));
        let open = tier.rows.iter().filter_map(|number| Some((*number, row(number)?)));
        let mut open: Vec<(u32, &Row)> = open.filter(|(_, row)| row.breaker_is_open()).collect();
        let percent = usize::try_from(max_ejected_percent).unwrap_or(100);
        let too_many = open.len().saturating_sub(tier.rows.len() * percent / 100);
        open.sort_by_key(|(number, row)| (std::cmp::Reverse(row.effective), *number));
        spared.extend(open.into_iter().take(too_many).map(|(number, _)| number));
    }
    spared
}
