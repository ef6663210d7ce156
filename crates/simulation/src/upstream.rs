//! Upstreams: each has moods, and answers by its mood and by chance. What they say are bytes as real ones send them, which
//! the product's own code reads and judges.

mod answer;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::chance::Chance;

pub use answer::Answer;
pub use wire::{Call, Calls, Shared, Wire};

/// What an upstream is like for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// It answers.
    Well,
    /// It answers, but not soon.
    Slow,
    /// Every other call fails in some way.
    Shaky,
    /// Nothing works, in one way.
    Down(Trouble),
    /// Asked for too much, it says when to come again.
    Busy,
}

/// A way of not working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// 500.
    Error,
    /// 502 with a page.
    Edge,
    /// 503, 529.
    Overloaded,
    /// 429 without a hint.
    Limited,
    /// 429 with a hint.
    LimitedFor,
    /// 429: nothing is left in the wallet.
    Broke,
    /// 404: it hasn't got the model.
    NoModel,
    /// 400: the caller's fault.
    Invalid,
    /// Nobody listens.
    Refused,
    /// The connection is reset before the head.
    Reset,
    /// No head ever comes.
    Hang,
    /// The answer has nothing in it.
    Empty,
    /// The body breaks off.
    Cut,
    /// The body falls silent.
    Stall,
    /// An error in the stream.
    ErrorEvent,
}

impl Trouble {
    const ALL: [Self; 15] = [
        Self::Error,
        Self::Edge,
        Self::Overloaded,
        Self::Limited,
        Self::LimitedFor,
        Self::Broke,
        Self::NoModel,
        Self::Invalid,
        Self::Refused,
        Self::Reset,
        Self::Hang,
        Self::Empty,
        Self::Cut,
        Self::Stall,
        Self::ErrorEvent,
    ];
}

#[derive(Debug)]
struct Upstream {
    mood: Mood,
    chance: Chance,
}

/// All upstreams of a run.
#[derive(Debug)]
pub struct Upstreams {
    seed: u64,
    held: Mutex<BTreeMap<u64, Upstream>>,
    /// Credentials that aren't taken.
    revoked: Mutex<BTreeSet<String>>,
}

impl Upstreams {
    /// Upstreams that are well.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, held: Mutex::default(), revoked: Mutex::default() }
    }

    /// An upstream's mood changes.
    pub fn set(&self, channel: u64, mood: Mood) {
        self.with(channel, |upstream| upstream.mood = mood);
    }

    /// All are well, and take every credential.
    pub fn heal(&self) {
        self.held.lock().values_mut().for_each(|upstream| upstream.mood = Mood::Well);
        self.revoked.lock().clear();
    }

    /// A credential is taken no longer, or again.
    pub fn revoke(&self, credential: &str, revoked: bool) {
        let mut held = self.revoked.lock();
        if revoked {
            held.insert(credential.to_owned());
        } else {
            held.remove(credential);
        }
    }

    /// What a call brings.
    #[must_use]
    pub fn answer(&self, channel: u64, credential: &str, stream: bool, model: &str) -> Answer {
        if self.revoked.lock().contains(credential) {
            return Answer::unauthorised();
        }
        self.with(channel, |Upstream { mood, chance }| {
            let soon = chance.between(Duration::from_millis(5), Duration::from_millis(400));
            let trouble = match *mood {
                Mood::Well => chance.yes(0.01).then(|| chance.one_of(&Trouble::ALL)),
                Mood::Slow => {
                    let late = chance.between(Duration::from_millis(600), Duration::from_millis(7_000));
                    return Answer::good(chance, late, stream, model);
                }
                Mood::Shaky => chance.yes(0.5).then(|| chance.one_of(&Trouble::ALL)),
                Mood::Down(trouble) => Some(trouble),
                Mood::Busy => chance.yes(0.8).then_some(Trouble::LimitedFor),
            };
            match trouble {
                None => Answer::good(chance, soon, stream, model),
                Some(trouble) => Answer::bad(trouble, chance, soon, stream, model),
            }
        })
    }

    fn with<T>(&self, channel: u64, then: impl FnOnce(&mut Upstream) -> T) -> T {
        let mut held = self.held.lock();
        let new = || Upstream { mood: Mood::Well, chance: Chance::of(self.seed, &format!("upstream {channel}")) };
        then(held.entry(channel).or_insert_with(new))
    }
}

/// A mood by chance.
pub fn mood(chance: &mut Chance) -> Mood {
    match chance.below(10) {
        0..3 => Mood::Well,
        3 => Mood::Slow,
        4..6 => Mood::Shaky,
        6 => Mood::Busy,
        _ => Mood::Down(chance.one_of(&Trouble::ALL)),
    }
}
