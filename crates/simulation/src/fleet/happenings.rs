//! What happens by chance while the fleet lives.

use std::time::Duration;

use tokio::time::Instant;

use super::{Due, Fleet, Who};
use crate::admin::{MODELS, ROUTES};
use crate::chance::Chance;
use crate::client::Asked;
use crate::ground::Ground;
use crate::proxy::Death;
use crate::secrets;
use crate::upstream::mood;

const MS: Duration = Duration::from_millis(1);

/// What happens by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Mood,
    ProxyDies,
    ProjectorDies,
    Freeze,
    Cut,
    Jump,
    Edit,
}

/// What happens by chance, and when.
pub(super) struct Happenings {
    pub(super) chance: Chance,
    next: Vec<(Instant, Kind, Duration)>,
}

impl Happenings {
    /// The happenings of a run, from now on.
    pub(super) fn of(ground: &Ground) -> Self {
        let setting = &ground.setting;
        let mut chance = Chance::of(ground.seed, "happenings");
        let kinds = [
            (Kind::Request, Some(setting.request_every)),
            (Kind::Mood, setting.mood_every),
            (Kind::ProxyDies, setting.crash_every),
            (Kind::ProjectorDies, setting.projector_crash_every),
            (Kind::Freeze, setting.freeze_every),
            (Kind::Cut, setting.cut_every),
            (Kind::Jump, setting.jump_every),
            (Kind::Edit, setting.edit_every),
        ];
        let now = Instant::now();
        let next = kinds.into_iter().filter_map(|(kind, every)| Some((now + chance.about(every?), kind, every?)));
        let next = next.collect();
        Self { chance, next }
    }

    /// The next one, and when.
    pub(super) fn next(&self) -> (Instant, Kind) {
        let next = self.next.iter().min_by_key(|(at, _, _)| *at);
        next.map(|(at, kind, _)| (*at, *kind)).expect("requests always come")
    }

    /// It happened: it will again.
    pub(super) fn happened(&mut self, kind: Kind) {
        for (at, one, every) in &mut self.next {
            if *one == kind {
                *at = Instant::now() + self.chance.about(*every);
            }
        }
    }
}

impl Fleet {
    /// Something happens now.
    pub(super) fn happen(&mut self, kind: Kind, chance: &mut Chance) {
        match kind {
            Kind::Request => self.request(chance),
            Kind::Mood => self.change_mood(chance),
            Kind::ProxyDies => self.proxy_dies(chance),
            Kind::ProjectorDies => self.projector_dies(chance),
            Kind::Freeze => self.freeze(chance),
            Kind::Cut => self.cut(chance),
            Kind::Jump => {
                let micros = i64::try_from(chance.below(8_000_000)).unwrap_or(0);
                self.ground.jump(if chance.yes(0.7) { micros } else { -micros / 4 });
            }
            Kind::Edit => self.admin.edit_something(),
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.due.push((Instant::now() + after, due));
    }

    fn request(&mut self, chance: &mut Chance) {
        // Sometimes many come at once.
        let many = if chance.yes(0.1) { chance.among(3, 8) } else { 1 };
        for _ in 0..many {
            self.clients += 1;
            let n = any(chance, self.proxies.len());
            let asked = Asked {
                client: self.clients,
                token: secrets::token(if chance.yes(0.02) { 2 } else { 1 }),
                model: self.model(chance).to_owned(),
                stream: chance.yes(0.6),
                tools: self.ground.setting.routes && chance.yes(0.2),
                retry: u64::from(chance.yes(0.1)),
                deadline: chance.between(MS * 1_500, MS * 9_000),
                leaves_after: chance.yes(0.1).then(|| chance.between(MS, MS * 1_500)),
            };
            self.proxies[n].ask(asked);
        }
    }

    /// What a client asks for: a model, or a route.
    fn model(&self, chance: &mut Chance) -> &'static str {
        if self.ground.setting.routes && chance.yes(0.6) { chance.one_of(&ROUTES) } else { chance.one_of(&MODELS).0 }
    }

    fn change_mood(&mut self, chance: &mut Chance) {
        let channel = chance.one_of(&self.admin.channels());
        if chance.yes(0.15) {
            self.admin.revoke(channel, chance.yes(0.7));
        } else {
            let mood = mood(chance);
            self.ground.trace.note(format_args!("upstream {channel} is {mood:?}"));
            self.upstreams.set(channel, mood);
        }
    }

    fn proxy_dies(&mut self, chance: &mut Chance) {
        let n = any(chance, self.proxies.len());
        let death = match chance.below(10) {
            0..5 => Death::Killed,
            5..9 => Death::Torn,
            _ => Death::Power,
        };
        self.proxies[n].die(death);
        self.later(chance.between(MS * 20, MS * 4_000), Due::Start(Who::Proxy(n)));
    }

    fn projector_dies(&mut self, chance: &mut Chance) {
        match any(chance, self.projectors.len() + 1) {
            n if n < self.projectors.len() => {
                self.projectors[n].die();
                self.later(chance.between(MS * 20, MS * 6_000), Due::Start(Who::Projector(n)));
            }
            _ => {
                self.upkeep.die();
                self.later(chance.between(MS * 20, MS * 2_000), Due::Start(Who::Upkeep));
            }
        }
    }

    /// Projectors are stopped more often than others: it is their writes that must not land afterwards.
    fn freeze(&mut self, chance: &mut Chance) {
        let everybody = self.everybody();
        let who = if chance.yes(0.5) {
            Who::Projector(any(chance, self.projectors.len()))
        } else {
            chance.one_of(&everybody)
        };
        let within = chance.yes(0.5);
        let lasts = chance.between(MS * 300, MS * 12_000);
        let Some(process) = self.process(who) else { return };
        match who {
            Who::Projector(_) if within => process.link.trap(),
            Who::Projector(_) | Who::Proxy(_) | Who::Upkeep => process.freeze(),
        }
        self.later(lasts, Due::Thaw(who));
    }

    /// Replicas are cut off more often than others: they have the most to tell afterwards.
    fn cut(&mut self, chance: &mut Chance) {
        let lasts = chance.between(MS * 200, MS * 7_000);
        let mut whom = self.everybody();
        whom.extend((0..self.proxies.len()).map(Who::Proxy));
        let who = chance.one_of(&whom);
        let Some(process) = self.process(who) else { return };
        self.ground.trace.note(format_args!("{} is cut off", process.name));
        process.link.cut();
        self.later(lasts, Due::Mend(who));
    }
}

/// One of so many.
fn any(chance: &mut Chance, count: usize) -> usize {
    usize::try_from(chance.below(count as u64)).unwrap_or(0)
}
