//! The plan of a request: an ordered list of candidates, made once. Its first place is committed in the wheel; the others
//! are drawn when they are needed, from a private copy, without replacement.

use std::sync::Arc;

use smallvec::SmallVec;
use waybill_event::Source;
use waybill_event::selection::{Skip, SkipReason};

use super::table::{Rank, Row, Table, Unavailable};
use super::wheel::{Commit, Stake, Wheel, mix};
use crate::candidate::{Candidate, Candidates};

/// Where a plan stands: it goes through these in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The tiers, highest first.
    Tiers,
    /// Half-open sources that weren't put first.
    Probes,
    /// Sources of weight 0.
    Weightless,
    /// Softly blocked sources.
    Soft,
    /// Nothing.
    End,
}

impl Stage {
    const fn next(self) -> Self {
        match self {
            Self::Tiers => Self::Probes,
            Self::Probes => Self::Weightless,
            Self::Weightless => Self::Soft,
            Self::Soft | Self::End => Self::End,
        }
    }
}

/// A request's plan.
#[derive(Debug, Clone)]
pub struct Plan {
    table: Arc<Table>,
    stage: Stage,
    /// Rank within the stage that comes next.
    rank: usize,
    place: u32,
    salt: u64,
    /// The wheel's pick, until it is drawn.
    first: Option<u32>,
    commit: Option<Commit>,
    /// What is left of the present rank.
    pool: SmallVec<[Stake; 16]>,
    /// The half-open source that is asked first in its tier.
    probe: Option<u32>,
    /// Other half-open sources whose permit is free.
    probes: SmallVec<[u32; 4]>,
    skips: SmallVec<[Skip; 4]>,
    count: u32,
}

impl Plan {
    /// Plans a request. Call it under the wheel's lock. `probe_free` tells whether the probe permit of a half-open row
    /// seems to be free.
    pub fn new(table: Arc<Table>, wheel: &mut Wheel, mut probe_free: impl FnMut(&Row) -> bool) -> Self {
        let salt = wheel.salt();
        let mut plan = Self {
            stage: Stage::Tiers,
            rank: 0,
            place: 0,
            salt,
            first: None,
            commit: None,
            pool: SmallVec::new(),
            probe: None,
            probes: SmallVec::new(),
            skips: SmallVec::new(),
            count: 0,
            table,
        };
        for number in &plan.table.half_open {
            let Some(row) = row(&plan.table, *number) else { continue };
            if probe_free(row) {
                plan.probes.push(*number);
            } else {
                plan.skips.push(Skip { source: row.source.source, why: SkipReason::Probing });
            }
        }
        plan.choose_probe();
        let pool = &mut plan.pool;
        if let Some((first, commit)) = wheel.take(&plan.table, |stake| pool.push(stake)) {
            plan.first = Some(first);
            plan.commit = Some(commit);
            plan.rank = 1;
        }
        let ranked = [&plan.table.tiers, &plan.table.weightless, &plan.table.soft];
        let rows = ranked.into_iter().flatten().map(|rank| rank.rows.len()).sum::<usize>();
        let probes = plan.probes.len() + usize::from(plan.probe.is_some());
        plan.count = u32::try_from(rows + probes).unwrap_or(u32::MAX);
        plan
    }

    /// The table it is made from.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// How many candidates it had at the beginning.
    #[must_use]
    pub const fn candidate_count(&self) -> u32 {
        self.count
    }

    /// Why there is no candidate, if there was none from the beginning.
    #[must_use]
    pub fn unavailable(&self) -> Option<Unavailable> {
        (self.count == 0).then(|| self.table.unavailable())
    }

    /// The next candidates in order, at most `n`, without drawing them.
    #[must_use]
    pub fn first_candidates(&self, n: usize) -> SmallVec<[Source; 8]> {
        let mut ahead = self.clone();
        std::iter::from_fn(|| ahead.draw()).take(n).filter_map(|(number, _)| self.row(number)).collect::<SmallVec<_>>()
    }

    /// Candidates that were skipped for this request only; the table tells of the others.
    #[must_use]
    pub fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// The place in the wheel that the plan has taken. A request that never dispatches to its source gives it back
    /// ([`Wheel::give_back`]).
    #[must_use]
    pub const fn commit(&self) -> Option<&Commit> {
        self.commit.as_ref()
    }

    fn row(&self, number: u32) -> Option<Source> {
        row(&self.table, number).map(|row| row.source.source)
    }

    /// One probe a request: of the highest tier that has one. Which, of several, changes from request to request.
    fn choose_probe(&mut self) {
        let priority = |number: &u32| row(&self.table, *number).map(|row| row.priority);
        let Some(highest) = self.probes.first().and_then(priority) else { return };
        let among = self.probes.iter().take_while(|number| priority(number) == Some(highest)).count();
        let chosen = below(self.salt, u64::try_from(among).unwrap_or(1));
        self.probe = usize::try_from(chosen).ok().filter(|at| *at < self.probes.len()).map(|at| self.probes.remove(at));
    }

    /// The next row's number, and whether it is a last resort.
    fn draw(&mut self) -> Option<(u32, bool)> {
        loop {
            if let Some(probe) = self.due_probe() {
                return Some((probe, false));
            }
            if let Some(first) = self.first.take() {
                return Some((first, false));
            }
            if let Some(stake) = self.draw_from_pool() {
                return Some((stake.row, self.stage == Stage::Soft));
            }
            if self.stage == Stage::Probes && !self.probes.is_empty() {
                return Some((self.probes.remove(0), false));
            }
            self.advance()?;
        }
    }

    /// The probe, when the tier that is being drawn from is not above its own.
    fn due_probe(&mut self) -> Option<u32> {
        let priority = row(&self.table, self.probe?)?.priority;
        let at = match self.stage {
            Stage::Tiers if self.first.is_some() || !self.pool.is_empty() => self.rank.checked_sub(1),
            Stage::Tiers => Some(self.rank),
            Stage::Probes | Stage::Weightless | Stage::Soft | Stage::End => None,
        };
        let next = at.and_then(|at| self.table.tiers.get(at)).map(|rank| rank.priority);
        if next.is_none_or(|next| priority >= next) { self.probe.take() } else { None }
    }

    /// Within the first tier smooth round robin goes on over the private copy. Lower ranks are reached by few requests,
    /// each with a fresh copy: those draw by weight from the salt, or all would begin with the heaviest.
    fn draw_from_pool(&mut self) -> Option<Stake> {
        let at = if self.stage == Stage::Tiers && self.rank == 1 {
            let mut best: Option<(usize, i64)> = None;
            for (at, stake) in self.pool.iter_mut().enumerate() {
                stake.credit = stake.credit.saturating_add(stake.weight);
                if best.is_none_or(|(_, credit)| stake.credit > credit) {
                    best = Some((at, stake.credit));
                }
            }
            best?.0
        } else {
            let total = self.pool.iter().map(|stake| stake.weight.unsigned_abs()).fold(0_u64, u64::saturating_add);
            self.salt = mix(self.salt);
            let mut lot = below(self.salt, total);
            self.pool.iter().position(|stake| {
                let weight = stake.weight.unsigned_abs();
                let here = lot < weight;
                lot = lot.saturating_sub(weight);
                here
            })?
        };
        Some(self.pool.remove(at))
    }

    fn advance(&mut self) -> Option<()> {
        let ranks: &[Rank] = match self.stage {
            Stage::Tiers => &self.table.tiers,
            Stage::Weightless => &self.table.weightless,
            Stage::Soft => &self.table.soft,
            Stage::Probes => &[],
            Stage::End => return None,
        };
        match ranks.get(self.rank) {
            Some(rank) => {
                let stakes = rank.rows.iter().map(|number| {
                    let effective = row(&self.table, *number).map_or(0, |row| row.effective);
                    Stake { row: *number, weight: i64::try_from(effective).unwrap_or(i64::MAX).max(1), credit: 0 }
                });
                self.pool = stakes.collect();
                self.rank += 1;
            }
            None => {
                self.stage = self.stage.next();
                self.rank = 0;
            }
        }
        Some(())
    }
}

impl Candidates for Plan {
    fn next_candidate(&mut self) -> Option<Candidate> {
        let (number, last_resort) = self.draw()?;
        let row = row(&self.table, number)?;
        let candidate = Candidate {
            source: row.source,
            upstream_model: Arc::clone(&row.upstream_model),
            priority: row.priority,
            place: self.place,
            probe_of: row.half_open.clone(),
            last_resort,
        };
        self.place = self.place.saturating_add(1);
        Some(candidate)
    }
}

fn row(table: &Table, number: u32) -> Option<&Row> {
    usize::try_from(number).ok().and_then(|number| table.rows().get(number))
}

/// A number below `bound` from a random one.
fn below(random: u64, bound: u64) -> u64 {
    u64::try_from((u128::from(random) * u128::from(bound)) >> 64).unwrap_or(0)
}
