//! Files are written over, and what they held before is never read as what they hold now.

use super::*;

/// The files of a directory that bear this extension, in the order of their names.
fn files(dir: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|other| other == extension)).collect();
    paths.sort();
    paths
}

/// Writes events, all of which the log has, until the segment in use is one that was written over and has begun with some
/// further ones, and kills the boot. Gives how many there are in all, and what of the segment is new.
async fn written_over(dir: &Path, memory: &Memory) -> (u64, usize) {
    let (outbox, publisher) = Outbox::open(config(dir), boot(1)).unwrap();
    let running = run(publisher, memory.journal().log);
    let mut n = 0;
    loop {
        n += 1;
        assert!(n < 2_000, "no file is used again");
        // As requests do: what is promised to one is given back before the log has its end.
        let promised = outbox.reserve().unwrap();
        outbox.append_reserved(&promised, &[event(n)]).unwrap();
        drop(promised);
        assert!(outbox.wait_acknowledged(n).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let segments = files(dir, "seg");
        assert!(segments.len() <= 2 && files(dir, "spare").len() <= 12, "{segments:?}");
        let bytes = std::fs::read(segments.last().unwrap()).unwrap();
        // A file that nobody wrote to before is blank behind what is in it.
        if n > 60 && bytes.len() == 4096 && bytes[4000..].iter().any(|byte| *byte != 0) && bytes[0] != 0 {
            let first: u64 = segments.last().unwrap().to_str().unwrap().rsplit('.').nth(1).unwrap().parse().unwrap();
            let length = bytes.len();
            if n == first + 2 {
                running.stop().await;
                drop(outbox);
                return (n, length);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_file_held_before_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (n, length) = written_over(dir.path(), &memory).await;
    assert_eq!(length, 4096);
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(2)).unwrap();
    let running = run(publisher, memory.journal().log);
    assert!(outbox.wait_acknowledged(1).await);
    running.stop().await;
    let mut expected = marks(boot(1), 1..=n);
    expected.push((boot(2), 1, format!("drained {} {n}", boot(1))));
    assert_eq!(logged(&memory).await, expected);
    assert_eq!(outbox.status().damages, 0);
}

/// A write that was cut short leaves the beginning of its record, and behind it what stood there before.
#[tokio::test(start_paused = true)]
async fn a_torn_record_over_older_ones_is_cut_off() {
    for kept in (1..300).step_by(13) {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::started_at(start());
        let (n, _) = written_over(dir.path(), &memory).await;
        let path = files(dir.path(), "seg").pop().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = super::super::record::records(&bytes)
            .scan(0, |end, record| {
                *end += record.size();
                Some(*end)
            })
            .collect();
        let [.., begin, end] = ends[..3] else { panic!("three records: {ends:?}") };
        let kept = kept.min(end - begin - 1);
        bytes[begin + kept..end].fill(b'x');
        std::fs::write(&path, &bytes).unwrap();
        // What was acknowledged is known from elsewhere; here the boot has to look for itself.
        std::fs::remove_file(dir.path().join(format!("{}.acked", boot(1)))).unwrap();
        let (outbox, publisher) = Outbox::open(config(dir.path()), boot(2)).unwrap();
        let running = run(publisher, memory.journal().log);
        assert!(outbox.wait_acknowledged(1).await);
        running.stop().await;
        let told: Vec<_> = logged(&memory).await.into_iter().filter(|(of, ..)| *of == boot(2)).collect();
        assert_eq!(told, [(boot(2), 1, format!("drained {} {}", boot(1), n - 1))], "{kept} bytes kept");
        assert_eq!(outbox.status().damages, 0);
    }
}
