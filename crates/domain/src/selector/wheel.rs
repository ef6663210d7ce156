//! Smooth weighted round robin over the tiers of one (group, model), as nginx does it: each pick adds every member's
//! weight to its credit and takes the total from the one that had most. One wheel per (group, model) and replica, under
//! a lock of the caller's that is held for one pass over integers.

use smallvec::SmallVec;
use waybill_event::Source;
use waybill_event::selection::TableHash;

use super::table::{Rank, Table};

/// A wheel.
#[derive(Debug, Clone)]
pub struct Wheel {
    phase: u64,
    picks: u64,
    table: Option<TableHash>,
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone)]
struct Lane {
    priority: i32,
    total: i64,
    members: Vec<Member>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    source: Source,
    row: u32,
    /// Effective weight; 0 while it is out.
    weight: i64,
    credit: i64,
}

/// A place that was taken from the wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    table: TableHash,
    priority: i32,
    total: i64,
    /// Rows that took no part.
    unfit: SmallVec<[u32; 4]>,
    /// The source that has the place.
    pub source: Source,
}

/// A member that a plan may still draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stake {
    pub(super) row: u32,
    pub(super) weight: i64,
    pub(super) credit: i64,
    /// Lower goes first, whatever the weight.
    pub(super) order: u64,
}

impl Wheel {
    /// A wheel that begins at a phase: a random number, so that replicas don't all begin with the same source.
    #[must_use]
    pub const fn new(phase: u64) -> Self {
        Self { phase, picks: 0, table: None, lanes: Vec::new() }
    }

    /// A number that differs from pick to pick.
    pub(super) fn salt(&mut self) -> u64 {
        self.picks = self.picks.wrapping_add(1);
        mix(self.phase ^ self.picks)
    }

    /// Takes the next place of the first tier that has a member which isn't `unfit`; the tier's other members go to
    /// `rest`, with their credits. Also gives the tier's rank.
    pub(super) fn take(
        &mut self,
        table: &Table,
        unfit: &[u32],
        mut rest: impl FnMut(Stake),
    ) -> Option<(usize, u32, Commit)> {
        self.adapt(table);
        let fits = |row: u32| unfit.is_empty() || !unfit.contains(&row);
        let rank = table.tiers.iter().position(|rank| rank.rows.iter().any(|row| fits(*row)))?;
        let priority = table.tiers.get(rank)?.priority;
        let lane = self.lanes.iter_mut().find(|lane| lane.priority == priority)?;
        let takes_part = |member: &Member| member.weight > 0 && fits(member.row);
        let total = if unfit.is_empty() {
            lane.total
        } else {
            lane.members.iter().filter(|m| takes_part(m)).map(|m| m.weight).fold(0_i64, i64::saturating_add)
        };
        let mut best: Option<(usize, i64)> = None;
        for (number, member) in lane.members.iter_mut().enumerate().filter(|(_, member)| takes_part(member)) {
            member.credit = member.credit.saturating_add(member.weight);
            if best.is_none_or(|(_, credit)| member.credit > credit) {
                best = Some((number, member.credit));
            }
        }
        let (best, _) = best?;
        let taken = lane.members.get_mut(best)?;
        taken.credit = taken.credit.saturating_sub(total);
        let (row, source) = (taken.row, taken.source);
        for (number, member) in lane.members.iter().enumerate() {
            if number != best && takes_part(member) {
                rest(Stake { row: member.row, weight: member.weight, credit: member.credit, order: 0 });
            }
        }
        Some((rank, row, Commit { table: table.hash(), priority, total, unfit: unfit.into(), source }))
    }

    /// Gives back a place whose source was never dispatched to. After the table has changed it is too late, and one turn
    /// is lost.
    pub fn give_back(&mut self, commit: &Commit) {
        if self.table != Some(commit.table) {
            return;
        }
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.priority == commit.priority) else { return };
        for member in lane.members.iter_mut().filter(|member| !commit.unfit.contains(&member.row)) {
            member.credit = member.credit.saturating_sub(member.weight);
            if member.source == commit.source {
                member.credit = member.credit.saturating_add(commit.total);
            }
        }
    }

    /// Follows the table: members that stay keep their credit, measured by the tier's total, since factors may change it
    /// by orders of magnitude.
    fn adapt(&mut self, table: &Table) {
        if self.table == Some(table.hash()) {
            return;
        }
        self.table = Some(table.hash());
        let before = std::mem::take(&mut self.lanes);
        for rank in &table.tiers {
            let old = before.iter().find(|lane| lane.priority == rank.priority);
            self.lanes.push(lane(self.phase, table, rank, old));
        }
        // A tier that is out as a whole for a while comes back where it was.
        let gone = |lane: &Lane| {
            self.lanes.iter().all(|l| l.priority != lane.priority)
                && table.rows().iter().any(|row| row.priority == lane.priority)
        };
        let kept: Vec<Lane> = before.iter().filter(|lane| gone(lane)).cloned().collect();
        self.lanes.extend(kept);
    }
}

fn lane(phase: u64, table: &Table, rank: &Rank, old: Option<&Lane>) -> Lane {
    let weight_of = |number: u32| {
        let row = usize::try_from(number).ok().and_then(|number| table.rows().get(number));
        row.map_or(0, |row| i64::try_from(row.effective).unwrap_or(i64::MAX))
    };
    let total = rank.rows.iter().map(|row| weight_of(*row)).fold(0_i64, i64::saturating_add).max(1);
    let mut members = Vec::new();
    for (number, row) in (0_u32..).zip(table.rows()).filter(|(_, row)| row.priority == rank.priority) {
        let source = row.source.source;
        let weight = if rank.rows.contains(&number) { weight_of(number) } else { 0 };
        let kept = old.and_then(|old| old.members.iter().find(|m| m.source == source).map(|m| (m.credit, old.total)));
        let credit = match kept {
            Some((credit, old_total)) => rescale(credit, old_total, total),
            None => start(phase, source, total),
        };
        members.push(Member { source, row: number, weight, credit });
    }
    Lane { priority: rank.priority, total, members }
}

fn rescale(credit: i64, old_total: i64, total: i64) -> i64 {
    let scaled = i128::from(credit) * i128::from(total) / i128::from(old_total.max(1));
    let bound = i128::from(total);
    i64::try_from(scaled.clamp(-bound, bound)).unwrap_or(0)
}

/// Where a member begins: anywhere within one turn, so that the first to be picked is a matter of the phase.
fn start(phase: u64, source: Source, total: i64) -> i64 {
    let random = mix(phase ^ mix(number_of(source)));
    let within = (u128::from(random) * u128::from(total.unsigned_abs())) >> 64;
    i64::try_from(within).unwrap_or(0) - total / 2
}

/// A number of a source's own.
pub(super) const fn number_of(source: Source) -> u64 {
    let kind: u64 = match source.kind {
        waybill_event::SourceKind::Channel => 0x5bd1_e995,
        waybill_event::SourceKind::Account => 0x9e37_79b9,
    };
    source.id ^ (kind << 32)
}

/// The finalizer of splitmix64: spreads any number over all 64 bits.
pub(super) const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
