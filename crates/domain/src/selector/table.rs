//! The selection table: what plans of one (group, model) are made from. It is computed when eligibility changes and at
//! most once a second besides, and its first use is recorded, so that every plan can be checked afterwards.

mod hash;

use std::sync::Arc;

use waybill_event::selection::{Skip, SkipReason, TableHash};
use waybill_event::traffic::{Factors, SelectionTable, TableCandidate};
use waybill_event::{ConfigPosition, GroupId, LogTime, Position, Source, SourceRef};

use super::eligibility::{CatalogFacts, Eligibility, eligibility, unknown};
use super::factors::{Load, effective};
use super::state::Revisions;
use super::view::View;
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
    /// Its factors.
    pub factors: Factors,
    /// Weight times factors.
    pub effective: u64,
    /// Why it is out, if it is.
    pub skip: Option<SkipReason>,
    /// The opening whose probe permit lets one request through.
    pub half_open: Option<Arc<str>>,
    /// When what keeps it out ends by itself.
    pub returns_at: Option<LogTime>,
    /// Whether only limits keep it out.
    pub busy: bool,
    /// Position of the shared state it was judged by.
    pub position: Option<Position>,
    /// First and last ordinal of own events on top of that.
    pub own: Option<(u64, u64)>,
}

impl Row {
    /// Judges a candidate by this replica's view of its source.
    #[must_use]
    pub fn judge(ability: &Ability, view: Option<&View>, load: Load, as_of: LogTime) -> Self {
        let facts = CatalogFacts {
            enabled: ability.enabled,
            has_credential: ability.has_credential(),
            revisions: Revisions {
                credential: ability.credential_revision.unwrap_or(0),
                base_url: ability.base_url_revision,
            },
        };
        let judged = match view {
            Some(view) => eligibility(view.state(), facts, &ability.upstream_model, load, as_of),
            None => unknown(facts, load),
        };
        let Eligibility { skip, half_open, returns_at, busy, factors } = judged;
        Self {
            source: ability.source_ref(),
            upstream_model: Arc::clone(&ability.upstream_model),
            priority: ability.priority,
            weight: ability.weight,
            factors,
            effective: effective(ability.weight, factors),
            skip,
            half_open,
            returns_at,
            busy,
            position: view.and_then(View::position),
            own: view.and_then(View::own_range),
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
        let judge = |ability: &Ability| Row::judge(ability, views(ability.source), load(ability), as_of);
        Self::of((group, model), candidates.into_iter().map(judge).collect(), as_of, config)
    }

    /// The table of these rows, which may come in any order.
    #[must_use]
    pub fn of((group, model): (GroupId, Arc<str>), mut rows: Vec<Row>, as_of: LogTime, config: ConfigPosition) -> Self {
        rows.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.source.source.cmp(&b.source.source)));
        let ranked = |wanted: &dyn Fn(&Row) -> bool| ranks(&rows, wanted);
        let tiers = ranked(&|row| row.skip.is_none() && row.effective > 0);
        let weightless = ranked(&|row| row.skip.is_none() && row.effective == 0);
        let soft = ranked(&|row| row.skip == Some(SkipReason::SoftBlocked));
        let half_open = ranked(&|row| row.half_open.is_some()).into_iter().flat_map(|rank| rank.rows).collect();
        let hash = TableHash(0);
        let mut table = Self { hash, group, model, as_of, config, rows, tiers, half_open, weightless, soft };
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
    pub fn from_event(event: &SelectionTable, config: ConfigPosition) -> Option<Self> {
        let model: Arc<str> = event.model.as_str().into();
        let row = |candidate: &TableCandidate| Row {
            source: SourceRef { source: candidate.source, rev: 0 },
            upstream_model: Arc::clone(&model),
            priority: candidate.priority,
            weight: candidate.weight,
            factors: candidate.factors,
            effective: effective(candidate.weight, candidate.factors),
            skip: candidate.skip,
            half_open: (candidate.skip == Some(SkipReason::Probing)).then(|| "".into()),
            returns_at: None,
            busy: candidate.skip == Some(SkipReason::HintBlocked),
            position: candidate.position,
            own: candidate.own,
        };
        let rows = event.candidates.iter().map(row).collect();
        let table = Self::of((event.group, Arc::clone(&model)), rows, event.as_of, config);
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

    /// Why nothing of it can be asked, for plans without a candidate. What only an edit or a probe of ours can bring back
    /// counts only where there is nothing else.
    #[must_use]
    pub fn unavailable(&self) -> Unavailable {
        let returning = || self.rows.iter().filter(|row| row.returns_at.is_some());
        let retry_at = returning().filter_map(|row| row.returns_at).min();
        match (self.rows.is_empty(), retry_at) {
            (true, _) => Unavailable::Nothing,
            (false, Some(_)) if returning().all(|row| row.busy) => Unavailable::Busy { retry_at },
            (false, _) => Unavailable::Down { retry_at },
        }
    }
}

fn ranks(rows: &[Row], wanted: &dyn Fn(&Row) -> bool) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = Vec::new();
    for (number, row) in (0_u32..).zip(rows).filter(|(_, row)| wanted(row)) {
        match ranks.last_mut().filter(|rank| rank.priority == row.priority) {
            Some(rank) => rank.rows.push(number),
            None => ranks.push(Rank { priority: row.priority, rows: vec![number] }),
        }
    }
    ranks
}
