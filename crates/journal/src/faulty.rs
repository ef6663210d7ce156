//! A journal that misbehaves as a real one may, by a seed: answers get lost, calls fail or dawdle, followers are cut.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::Journal;
use crate::keyed::{Bucket, Entry, Held, Keyed, Watched, Watching};
use crate::log::{AppendError, Appended, Bounds, Expect, Following, Log, Message, ReadError, Record, Start, Stream};
use crate::resume::{FollowPoint, WatchPoint};

/// How often what goes wrong; shares between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// Writes that are done but whose answer is lost.
    pub lost_answer: f64,
    /// Calls that fail before anything is done.
    pub unavailable: f64,
    /// Messages before which a follower or a watch is cut.
    pub cut: f64,
    /// Calls take up to this much longer.
    pub longest_delay: Duration,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self { lost_answer: 0.0, unavailable: 0.0, cut: 0.0, longest_delay: Duration::ZERO };

    /// Each tenth call goes wrong in one way or another.
    pub const SOME: Self =
        Self { lost_answer: 0.1, unavailable: 0.1, cut: 0.1, longest_delay: Duration::from_millis(3) };
}

/// A journal with faults; clones share the seed's course and the faults.
#[derive(Clone)]
pub struct Faulty {
    inner: Journal,
    course: Arc<Mutex<Course>>,
}

struct Course {
    faults: Faults,
    random: ChaCha8Rng,
}

/// What one call meets.
struct Fate {
    delay: Duration,
    unavailable: bool,
    lost_answer: bool,
}

impl Faulty {
    /// Wraps a journal.
    #[must_use]
    pub fn over(inner: Journal, faults: Faults, seed: u64) -> Self {
        let course = Course { faults, random: ChaCha8Rng::seed_from_u64(seed) };
        Self { inner, course: Arc::new(Mutex::new(course)) }
    }

    /// Both halves of the port.
    #[must_use]
    pub fn journal(&self) -> Journal {
        Journal { log: Arc::new(self.clone()), keyed: Arc::new(self.clone()) }
    }

    /// From now on other things go wrong.
    pub fn set(&self, faults: Faults) {
        self.course.lock().faults = faults;
    }

    async fn fate(&self) -> Fate {
        let fate = {
            let mut course = self.course.lock();
            let Faults { lost_answer, unavailable, longest_delay, .. } = course.faults;
            Fate {
                delay: longest_delay.mul_f64(course.random.random_range(0.0..1.0)),
                unavailable: course.random.random_bool(unavailable),
                lost_answer: course.random.random_bool(lost_answer),
            }
        };
        if !fate.delay.is_zero() {
            tokio::time::sleep(fate.delay).await;
        }
        fate
    }

    fn cut(&self) -> bool {
        let mut course = self.course.lock();
        let share = course.faults.cut;
        course.random.random_bool(share)
    }

    async fn reading(&self) -> Result<(), ReadError> {
        let fate = self.fate().await;
        if fate.unavailable { Err(ReadError::Unavailable { reason: "a fault".to_owned() }) } else { Ok(()) }
    }

    async fn writing<T>(&self, write: impl Future<Output = Result<T, AppendError>>) -> Result<T, AppendError> {
        let fate = self.fate().await;
        if fate.unavailable {
            return Err(AppendError::Unknown { reason: "a fault before the write".to_owned() });
        }
        let written = write.await;
        if fate.lost_answer {
            return Err(AppendError::Unknown { reason: "a fault after the write".to_owned() });
        }
        written
    }
}

#[async_trait]
impl Log for Faulty {
    async fn append(&self, stream: Stream, record: Record, expect: Expect) -> Result<Appended, AppendError> {
        self.writing(self.inner.log.append(stream, record, expect)).await
    }

    async fn append_all(
        &self,
        stream: Stream,
        records: Vec<Record>,
        expected_last: u64,
    ) -> Result<Appended, AppendError> {
        self.writing(self.inner.log.append_all(stream, records, expected_last)).await
    }

    async fn bounds(&self, stream: Stream) -> Result<Bounds, ReadError> {
        self.reading().await?;
        self.inner.log.bounds(stream).await
    }

    async fn read(&self, stream: Stream, from: u64, limit: usize) -> Result<Vec<Message>, ReadError> {
        self.reading().await?;
        self.inner.log.read(stream, from, limit).await
    }

    async fn last_of_subject(&self, stream: Stream, subject: &str) -> Result<Option<Message>, ReadError> {
        self.reading().await?;
        self.inner.log.last_of_subject(stream, subject).await
    }

    async fn purge_before(&self, stream: Stream, first: u64) -> Result<u64, AppendError> {
        self.writing(self.inner.log.purge_before(stream, first)).await
    }

    fn follow(&self, stream: Stream, start: Start) -> Following {
        let begun = (self.clone(), None, None);
        stream::unfold(begun, move |(faulty, point, following)| faulty.follow_on(stream, start, point, following))
            .boxed()
    }
}

type Followed = Option<(Result<Message, ReadError>, (Faulty, Option<FollowPoint>, Option<Following>))>;

impl Faulty {
    async fn follow_on(
        self,
        stream: Stream,
        start: Start,
        point: Option<FollowPoint>,
        mut following: Option<Following>,
    ) -> Followed {
        let mut point = match point {
            Some(point) => point,
            None => match self.inner.log.bounds(stream).await {
                Ok(bounds) => FollowPoint::new(start, bounds.last),
                Err(error) => return Some((Err(error), (self, None, None))),
            },
        };
        loop {
            let mut inner = following.take().unwrap_or_else(|| self.inner.log.follow(stream, point.start()));
            match inner.next().await? {
                Ok(message) => {
                    let before = point;
                    if !point.admit(message.sequence) {
                        following = Some(inner);
                        continue;
                    }
                    // Only what is told can be cut, so that a follower that begins again comes to an end.
                    if self.cut() {
                        let error = ReadError::Unavailable { reason: "a fault cut the follower".to_owned() };
                        return Some((Err(error), (self, Some(before), None)));
                    }
                    return Some((Ok(message), (self, Some(point), Some(inner))));
                }
                Err(error) => {
                    if let ReadError::Gap { met, .. } = error {
                        point.pass_hole(met);
                    }
                    return Some((Err(error), (self, Some(point), Some(inner))));
                }
            }
        }
    }
}

#[async_trait]
impl Keyed for Faulty {
    async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<Entry>, ReadError> {
        self.reading().await?;
        self.inner.keyed.get(bucket, key).await
    }

    async fn write(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
    ) -> Result<u64, AppendError> {
        self.writing(self.inner.keyed.write(bucket, key, value, held, ttl)).await
    }

    async fn delete(&self, bucket: Bucket, key: &str, held: Held) -> Result<(), AppendError> {
        self.writing(self.inner.keyed.delete(bucket, key, held)).await
    }

    fn watch(&self, bucket: Bucket) -> Watching {
        let begun = (self.clone(), WatchPoint::default(), None, VecDeque::new());
        stream::unfold(begun, move |(faulty, point, watching, told)| faulty.watch_on(bucket, point, watching, told))
            .boxed()
    }
}

type WatchState = (Faulty, WatchPoint, Option<Watching>, VecDeque<Watched>);

impl Faulty {
    async fn watch_on(
        self,
        bucket: Bucket,
        mut point: WatchPoint,
        mut watching: Option<Watching>,
        mut told: VecDeque<Watched>,
    ) -> Option<(Result<Watched, ReadError>, WatchState)> {
        loop {
            if let Some(next) = told.pop_front() {
                return Some((Ok(next), (self, point, watching, told)));
            }
            let mut inner = watching.take().unwrap_or_else(|| {
                point.begin(u64::MAX);
                self.inner.keyed.watch(bucket)
            });
            match inner.next().await? {
                Ok(watched) => {
                    let news = point.accept(watched);
                    let cut = !news.is_empty() && self.cut();
                    told.extend(news);
                    if cut {
                        let error = ReadError::Unavailable { reason: "a fault cut the watch".to_owned() };
                        return Some((Err(error), (self, point, None, told)));
                    }
                    watching = Some(inner);
                }
                Err(error) => return Some((Err(error), (self, point, Some(inner), told))),
            }
        }
    }
}
