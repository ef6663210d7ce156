use super::*;
use crate::faulty::{Faults, Faulty};

fn start() -> LogTime {
    LogTime::from_micros(1_790_000_000_000_000)
}

fn record(payload: &str, id: Option<&str>) -> Record {
    Record {
        subject: "wb.traffic.0.proxy".to_owned(),
        message_id: id.map(str::to_owned),
        payload: Bytes::from(payload.to_owned()),
    }
}

#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn memory_conforms() {
    use crate::conformance::{Answers, Suite};
    let journal = Memory::started_at(start()).journal();
    Suite::new(&journal, Answers::Always).run().await;
}

#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn memory_with_faults_conforms() {
    use crate::conformance::{Answers, Suite};
    for seed in 0..8 {
        let faulty = Faulty::over(Memory::started_at(start()).journal(), Faults::SOME, seed);
        Suite::new(&faulty.journal(), Answers::Sometimes).run().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_stream_refuses_and_forgets_nothing() {
    let memory = Memory::started_at(start());
    memory.set_max_bytes(Stream::Traffic, 60);
    memory.append(Stream::Traffic, record("0123456789", None), Expect::Anything).await.unwrap();
    memory.append(Stream::Traffic, record("0123456789", None), Expect::Anything).await.unwrap();
    let third = memory.append(Stream::Traffic, record("0123456789", None), Expect::Anything).await;
    assert!(matches!(third, Err(AppendError::Full)));
    memory.remove_before(Stream::Traffic, 2);
    memory.append(Stream::Traffic, record("0123456789", None), Expect::Anything).await.unwrap();
    let bounds = memory.bounds(Stream::Traffic).await.unwrap();
    assert_eq!((bounds.first, bounds.last), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_told_of_a_hole_and_goes_on() {
    let memory = Memory::started_at(start());
    for n in 0..6 {
        memory.append(Stream::Traffic, record(&n.to_string(), None), Expect::Anything).await.unwrap();
    }
    let faulty = Faulty::over(memory.journal(), Faults::NONE, 1).journal();
    let mut followers = [memory.journal().log, faulty.log].map(|log| log.follow(Stream::Traffic, Start::At(1)));
    for following in &mut followers {
        assert_eq!(following.next().await.unwrap().unwrap().sequence, 1);
    }
    memory.remove_before(Stream::Traffic, 4);
    for following in &mut followers {
        let hole = following.next().await.unwrap();
        assert!(matches!(hole, Err(ReadError::Gap { expected: 2, met: 4, .. })), "{hole:?}");
        assert_eq!(following.next().await.unwrap().unwrap().sequence, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_id_is_forgotten_after_the_window() {
    let memory = Memory::started_at(start());
    let message = record("p", Some("id"));
    memory.append(Stream::Traffic, message.clone(), Expect::Anything).await.unwrap();
    tokio::time::advance(Duration::from_secs(121)).await;
    let again = memory.append(Stream::Traffic, message, Expect::Anything).await.unwrap();
    assert_eq!(again, Appended { sequence: 2, duplicate: false });
}
