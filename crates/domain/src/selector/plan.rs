//! The plan of a request: an ordered list of candidates, made once. Its first place is committed in the wheel; the others
//! are drawn when they are needed, from a private copy, without replacement.

use std::sync::Arc;

use smallvec::SmallVec;
use waybill_event::config::{Capabilities, Capability, Strategy};
use waybill_event::selection::{Skip, SkipReason};
use waybill_event::{LogTime, Source};

use super::sticky;
use super::table::{Rank, Row, Table, Unavailable};
use super::wheel::{Commit, Stake, Wheel, mix};
use crate::candidate::{Candidate, Waiting};
use crate::needs::{Missing, Needs};

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
    /// Sources that wait for the end of a limit: it is waited for, or tried again.
    Limited,
    /// The source whose breaker opens soonest, where the policy asks the least bad.
    Open,
    /// Nothing.
    End,
}

impl Stage {
    const fn next(self) -> Self {
        match self {
            Self::Tiers => Self::Probes,
            Self::Probes => Self::Weightless,
            Self::Weightless => Self::Soft,
            Self::Soft => Self::Limited,
            Self::Limited => Self::Open,
            Self::Open | Self::End => Self::End,
        }
    }
}

/// How a request wants its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manner {
    /// How a source is chosen within a tier.
    pub strategy: Strategy,
    /// Whether the source that opens soonest is asked when there is nobody else.
    pub least_bad: bool,
    /// What the request needs.
    pub needs: Needs,
    /// What the route declares of the target.
    pub declared: Capabilities,
    /// The route's target, from 0.
    pub target: u32,
    /// When the request was admitted, as its id tells it.
    pub admitted: LogTime,
    /// From when on its time is counted.
    pub begun: LogTime,
    /// The conversation that it belongs to, where conversations stay with their source.
    pub session: Option<Session>,
}

/// A conversation that stays with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// What spreads conversations over sources.
    pub number: u64,
    /// Where it was served last, because where it belongs couldn't.
    pub bound: Option<Source>,
}

/// What a plan must know at its moment.
pub trait Moment {
    /// Whether the probe permit of a half-open row seems to be free.
    fn probe_free(&mut self, row: &Row) -> bool;
    /// Requests in flight at the row's source now, as far as known.
    fn in_flight(&self, row: &Row) -> u32;
}

/// A request's plan.
#[derive(Debug, Clone)]
pub struct Plan {
    table: Arc<Table>,
    manner: Manner,
    stage: Stage,
    /// Rank within the stage that comes next.
    rank: usize,
    place: u32,
    salt: u64,
    /// The wheel's pick, or the conversation's home, until it is drawn.
    first: Option<u32>,
    /// What was drawn so.
    asked_first: Option<u32>,
    commit: Option<Commit>,
    /// What is left of the present rank.
    pool: SmallVec<[Stake; 16]>,
    /// Whether the present pool goes on with the wheel's credits.
    wheeling: bool,
    /// The half-open source that is asked first in its tier.
    probe: Option<u32>,
    /// Other half-open sources whose permit is free.
    probes: SmallVec<[u32; 4]>,
    skips: SmallVec<[Skip; 4]>,
    /// Rows that can't give what the request needs.
    unfit: SmallVec<[u32; 4]>,
    /// What they can't give.
    missing: Missing,
    /// Where the conversation belongs.
    home: Option<Source>,
    /// By row: requests in flight, where the strategy goes by it, or the order in which the conversation comes to them.
    loads: SmallVec<[u64; 8]>,
    count: u32,
}

impl Plan {
    /// Plans a request. Call it under the wheel's lock.
    pub fn new(table: Arc<Table>, wheel: &mut Wheel, manner: Manner, moment: &mut dyn Moment) -> Self {
        let salt = wheel.salt();
        let mut plan = Self {
            manner,
            stage: Stage::Tiers,
            rank: 0,
            place: 0,
            salt,
            first: None,
            asked_first: None,
            commit: None,
            pool: SmallVec::new(),
            wheeling: false,
            probe: None,
            probes: SmallVec::new(),
            skips: SmallVec::new(),
            unfit: SmallVec::new(),
            missing: Missing::new(),
            home: None,
            loads: SmallVec::new(),
            count: 0,
            table,
        };
        plan.find_unfit();
        for number in &plan.table.half_open {
            let Some(row) = row(&plan.table, *number) else { continue };
            if plan.unfit.contains(number) {
                continue;
            }
            if moment.probe_free(row) {
                plan.probes.push(*number);
            } else {
                plan.skips.push(Skip { source: row.source.source, why: SkipReason::Probing });
            }
        }
        plan.choose_probe();
        match (manner.session, manner.strategy) {
            (Some(session), _) => plan.settle(session),
            (None, Strategy::SmoothWrr) => plan.turn(wheel),
            (None, Strategy::LeastBusy) => {
                plan.loads = plan.table.rows().iter().map(|row| load_order(moment.in_flight(row), row)).collect();
            }
            (None, Strategy::WeightedRandom | Strategy::LowestLatency) => {}
        }
        let ranked = [&plan.table.tiers, &plan.table.weightless, &plan.table.soft];
        let all = ranked.into_iter().flatten().flat_map(|rank| &rank.rows);
        let rows = all.filter(|number| !plan.unfit.contains(number)).count();
        let probes = plan.probes.len() + usize::from(plan.probe.is_some());
        let open = usize::from(plan.least_bad().is_some());
        plan.count = u32::try_from(rows + probes + open).unwrap_or(u32::MAX);
        plan
    }

    fn find_unfit(&mut self) {
        let Manner { needs, declared, .. } = &self.manner;
        if !self.table.declares && declared.is_empty() {
            return;
        }
        for (number, row) in (0_u32..).zip(self.table.rows()) {
            let missing = needs.missing(&row.capabilities.or(declared));
            if missing.is_empty() {
                continue;
            }
            self.unfit.push(number);
            self.missing.extend(
                missing.into_iter().filter(|capability| !self.missing.contains(capability)).collect::<Missing>(),
            );
            if matches!(row.skip, None | Some(SkipReason::SoftBlocked | SkipReason::Probing)) {
                self.skips.push(Skip { source: row.source.source, why: SkipReason::CapabilityMissing });
            }
        }
    }

    /// Takes the wheel's next place, and the rest of its tier.
    fn turn(&mut self, wheel: &mut Wheel) {
        let pool = &mut self.pool;
        // All at once: a pool that grows as it is filled would be copied again and again.
        pool.reserve_exact(self.table.rows().len());
        if let Some((rank, first, commit)) = wheel.take(&self.table, &self.unfit, |stake| pool.push(stake)) {
            self.first = Some(first);
            self.commit = Some(commit);
            self.rank = rank + 1;
            self.wheeling = true;
        }
    }

    /// A conversation goes where it belongs: where it is bound to, or else where its number falls among all of the highest
    /// tier, whether they can serve now or not, but to no last resort: each turn would be one elsewhere. Who comes after
    /// that falls out of the same numbers, so that all replicas send it to the same one.
    fn settle(&mut self, session: Session) {
        let mut orders = sticky::orders(self.table.rows(), session.number);
        let numbered = || (0_u32..).zip(self.table.rows());
        let weighted = self.table.rows().iter().any(|row| row.weight > 0);
        let asked = |row: &Row| row.weight > 0 || !weighted;
        let highest = self.table.rows().iter().find(|row| asked(row)).map(|row| row.priority);
        let order =
            |number: u32| usize::try_from(number).ok().and_then(|at| orders.get(at)).copied().unwrap_or(u64::MAX);
        let computed =
            numbered().filter(|(_, row)| Some(row.priority) == highest && asked(row)).min_by_key(|(n, _)| order(*n));
        let bound = numbered().find(|(_, row)| Some(row.source.source) == session.bound);
        let home = bound.or(computed).map(|(number, row)| (number, row.source.source));
        self.home = home.map(|(_, source)| source);
        let serving = home.map(|(number, _)| number).filter(|number| {
            let ranks = || self.table.tiers.iter();
            ranks().any(|rank| rank.rows.contains(number)) && !self.unfit.contains(number)
        });
        if let Some(number) = serving {
            // It is asked first, of whatever tier it is.
            self.first = Some(number);
            if let Some(order) = usize::try_from(number).ok().and_then(|at| orders.get_mut(at)) {
                *order = 0;
            }
        }
        self.loads = orders;
    }

    /// Where the request's conversation belongs, if it is of one.
    #[must_use]
    pub const fn home(&self) -> Option<Source> {
        self.home
    }

    fn least_bad(&self) -> Option<u32> {
        if !self.manner.least_bad {
            return None;
        }
        self.table.open.iter().copied().find(|number| !self.unfit.contains(number))
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

    /// The next candidates in order, at most `n`, without drawing them; none that would be waited for.
    #[must_use]
    pub fn first_candidates(&self, n: usize) -> SmallVec<[Source; 8]> {
        let mut ahead = self.clone();
        let drawn = std::iter::from_fn(|| ahead.draw()).filter(|(_, stage)| *stage != Stage::Limited);
        drawn.take(n).filter_map(|(number, _)| self.row(number)).collect::<SmallVec<_>>()
    }

    /// Whether a source of the plan could give what the request needs, available now or not.
    #[must_use]
    pub fn somebody_fits(&self) -> bool {
        self.unfit.len() < self.table.rows().len()
    }

    /// Candidates that were skipped for this request only; the table tells of the others.
    #[must_use]
    pub fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// Why each source of the table is out, at most `n`: what this request skipped, and then what the table knows.
    #[must_use]
    pub fn all_skips(&self, n: usize) -> Vec<Skip> {
        let told = |row: &Row| self.skips.iter().any(|skip| skip.source == row.source.source);
        let of_table = self.table.rows().iter().filter(|row| !told(row));
        let of_table = of_table.filter_map(|row| Some(Skip { source: row.source.source, why: row.skip? }));
        self.skips.iter().cloned().chain(of_table).take(n).collect()
    }

    /// What candidates of the plan can't give, where some were skipped for it.
    #[must_use]
    pub fn missing(&self) -> &[Capability] {
        &self.missing
    }

    /// How it was wanted.
    #[must_use]
    pub const fn manner(&self) -> &Manner {
        &self.manner
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

    /// The next row's number, and the stage it comes from.
    fn draw(&mut self) -> Option<(u32, Stage)> {
        loop {
            if let Some(probe) = self.due_probe() {
                return Some((probe, Stage::Probes));
            }
            if let Some(first) = self.first.take() {
                self.asked_first = Some(first);
                return Some((first, Stage::Tiers));
            }
            if let Some(stake) = self.draw_from_pool() {
                return Some((stake.row, self.stage));
            }
            if self.stage == Stage::Probes && !self.probes.is_empty() {
                return Some((self.probes.remove(0), Stage::Probes));
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
            Stage::Probes | Stage::Weightless | Stage::Soft | Stage::Limited | Stage::Open | Stage::End => None,
        };
        let next = at.and_then(|at| self.table.tiers.get(at)).map(|rank| rank.priority);
        if next.is_none_or(|next| priority >= next) { self.probe.take() } else { None }
    }

    /// Where the wheel was turned smooth round robin goes on over the private copy. Other ranks are reached by few
    /// requests, each with a fresh copy: those draw by weight from the salt, or all would begin with the heaviest. A
    /// strategy's order goes before the weight.
    fn draw_from_pool(&mut self) -> Option<Stake> {
        let at = if self.wheeling {
            let mut best: Option<(usize, i64)> = None;
            for (at, stake) in self.pool.iter_mut().enumerate() {
                stake.credit = stake.credit.saturating_add(stake.weight);
                if best.is_none_or(|(_, credit)| stake.credit > credit) {
                    best = Some((at, stake.credit));
                }
            }
            best?.0
        } else {
            let lowest = self.pool.iter().map(|stake| stake.order).min()?;
            let among = |stake: &Stake| if stake.order == lowest { stake.weight.unsigned_abs() } else { 0 };
            let total = self.pool.iter().map(among).fold(0_u64, u64::saturating_add);
            self.salt = mix(self.salt);
            let mut lot = below(self.salt, total);
            self.pool.iter().position(|stake| {
                let weight = among(stake);
                let here = lot < weight;
                lot = lot.saturating_sub(weight);
                here
            })?
        };
        // Which of two equals comes first is no promise, and the gap needn't be closed.
        Some(self.pool.swap_remove(at))
    }

    fn advance(&mut self) -> Option<()> {
        self.wheeling = false;
        let ranks: &[Rank] = match self.stage {
            Stage::Tiers => &self.table.tiers,
            Stage::Weightless => &self.table.weightless,
            Stage::Soft => &self.table.soft,
            Stage::Probes | Stage::Limited | Stage::Open => &[],
            Stage::End => return None,
        };
        match ranks.get(self.rank) {
            Some(rank) => {
                let asked = self.home.and(self.asked_first);
                let fit = rank.rows.iter().filter(|number| !self.unfit.contains(number) && Some(**number) != asked);
                let pool = fit.map(|number| self.stake(*number)).collect();
                self.pool = pool;
                self.rank += 1;
            }
            None => {
                self.stage = self.stage.next();
                self.rank = 0;
                match self.stage {
                    Stage::Open => self.pool = self.least_bad().map(|number| self.stake(number)).into_iter().collect(),
                    Stage::Limited => self.pool = self.limited(),
                    Stage::Tiers | Stage::Probes | Stage::Weightless | Stage::Soft | Stage::End => {}
                }
            }
        }
        Some(())
    }

    /// Those that wait for a limit, in the order of its end.
    fn limited(&self) -> SmallVec<[Stake; 16]> {
        let fit = self.table.limited.iter().filter(|number| !self.unfit.contains(number));
        (0_u64..).zip(fit).map(|(order, number)| Stake { order, ..self.stake(*number) }).collect()
    }

    fn stake(&self, number: u32) -> Stake {
        let row = row(&self.table, number);
        let effective = row.map_or(0, |row| row.effective);
        let load = || usize::try_from(number).ok().and_then(|number| self.loads.get(number)).copied().unwrap_or(0);
        let order = match (self.manner.session, self.manner.strategy) {
            (Some(_), _) => load(),
            (None, Strategy::SmoothWrr | Strategy::WeightedRandom) => 0,
            (None, Strategy::LeastBusy) => load(),
            (None, Strategy::LowestLatency) => row.map_or(0, latency_order),
        };
        Stake { row: number, weight: i64::try_from(effective).unwrap_or(i64::MAX).max(1), credit: 0, order }
    }

    /// The next candidate of this plan. A request's candidates are those of all its route's targets: that is its caller's.
    pub fn next_candidate(&mut self) -> Option<Candidate> {
        let (number, stage) = self.draw()?;
        let row = row(&self.table, number)?;
        let candidate = Candidate {
            source: row.source,
            upstream_model: Arc::clone(&row.upstream_model),
            priority: row.priority,
            place: self.place,
            probe_of: row.half_open.clone(),
            probes: row.probes,
            last_resort: stage == Stage::Soft,
            despite_open: stage == Stage::Open || row.breaker_is_open(),
            capabilities: row.capabilities.or(&self.manner.declared),
            target: self.manner.target,
            health: row.factors.health,
            sticky: stage == Stage::Tiers && Some(row.source.source) == self.home,
            waiting: if stage == Stage::Limited { self.waiting(row) } else { None },
        };
        self.place = self.place.saturating_add(1);
        Some(candidate)
    }

    fn waiting(&self, row: &Row) -> Option<Waiting> {
        let (limited, ends) = (row.limited.as_ref()?, row.returns_at?);
        Some(Waiting {
            why: row.skip?,
            ends,
            not_before: ends.since(self.manner.begun),
            retry_of: (limited.retry_from <= self.manner.admitted).then(|| Arc::clone(&limited.block)),
        })
    }
}

/// Requests in flight per hundred of the limit; without a limit their number. Few is less whatever the limit.
fn load_order(in_flight: u32, row: &Row) -> u64 {
    let scaled = u64::from(in_flight) * 1_000_000;
    row.max_concurrent.filter(|most| *most > 0).map_or(scaled, |most| scaled * 100 / u64::from(most))
}

/// Response times within an eighth of each other are equal: what is measured isn't finer. Those that were never measured
/// go first, or they would never be.
fn latency_order(row: &Row) -> u64 {
    row.p95_ms.map_or(0, |ms| {
        let ms = u64::from(ms.max(1));
        let octave = u64::from(ms.ilog2());
        1 + octave * 8 + (((ms << 3) >> octave) - 8)
    })
}

fn row(table: &Table, number: u32) -> Option<&Row> {
    usize::try_from(number).ok().and_then(|number| table.rows().get(number))
}

/// A number below `bound` from a random one.
fn below(random: u64, bound: u64) -> u64 {
    u64::try_from((u128::from(random) * u128::from(bound)) >> 64).unwrap_or(0)
}
