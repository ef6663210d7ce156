use proptest::prelude::*;

use super::*;

type Said = (Kind, Option<String>, Vec<u8>);

fn split(chunks: &[&[u8]]) -> (Vec<Frame>, Option<Frame>) {
    let mut splitter = Splitter::new(1 << 20);
    let mut frames = Vec::new();
    for chunk in chunks {
        splitter.push(&Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    let last = splitter.finish();
    (frames, last)
}

fn said(frame: &Frame) -> Said {
    (frame.kind, frame.event().map(str::to_owned), frame.data().to_vec())
}

fn check(chunks: &[&str], expected: &[(Option<&str>, &str)]) {
    let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.as_bytes()).collect();
    let (frames, last) = split(&chunks);
    let events: Vec<_> = frames.iter().chain(&last).filter(|frame| frame.kind == Kind::Event).map(said).collect();
    let expected: Vec<Said> = expected
        .iter()
        .map(|(event, data)| (Kind::Event, event.map(str::to_owned), data.as_bytes().to_vec()))
        .collect();
    assert_eq!(events, expected, "{chunks:?}");
}

#[test]
fn all_line_ends_and_spellings() {
    for end in ["\n", "\r\n", "\r"] {
        let text =
            ["event: a", "data: one", "data:two", "data", "", ": note", "", "data:  x", "id: 7", "", ""].join(end);
        check(&[&text], &[(Some("a"), "one\ntwo\n"), (None, " x")]);
    }
    check(&["data: a\r\n\ndata: b\r\r"], &[(None, "a"), (None, "b")]);
    check(&["\u{feff}data: a\n\n"], &[(None, "a")]);
    check(&["data\n\ndatax: 1\n\ndata: \n\n"], &[(None, ""), (None, "")]);
}

#[test]
fn utf8_may_be_split_anywhere() {
    let text = "data: é漢\n\n".as_bytes();
    let chunks: Vec<&[u8]> = text.chunks(1).collect();
    let (frames, last) = split(&chunks);
    assert_eq!(frames[0].data(), "é漢".as_bytes());
    assert_eq!(last, None);
}

#[test]
fn kinds_are_told_apart() {
    let (frames, _) = split(&[b": ping\n\nevent: ping\n\nretry: 5\n\n\n\ndata: x\n\n"]);
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [Kind::KeepAlive, Kind::KeepAlive, Kind::KeepAlive, Kind::Blank, Kind::Blank, Kind::Event]);
}

#[test]
fn a_frame_within_a_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"data: a\n\ndata: b\n\ndata: c");
    let mut splitter = Splitter::new(100);
    splitter.push(&chunk);
    let one = splitter.next_frame().unwrap().unwrap();
    let two = splitter.next_frame().unwrap().unwrap();
    assert_eq!(one.raw.as_ptr(), chunk.as_ptr());
    assert_eq!(two.data().as_ptr(), chunk[9 + 6..].as_ptr());
    assert_eq!(splitter.next_frame().unwrap(), None);
    assert_eq!(splitter.rest(), "data: c");
}

#[test]
fn nothing_waits_for_the_next_byte() {
    let mut splitter = Splitter::new(100);
    splitter.push(&Bytes::from_static(b"data: a\r\n\r"));
    assert_eq!(splitter.next_frame().unwrap().unwrap().data(), b"a");
    splitter.push(&Bytes::from_static(b"\ndata: b\r\n\r\n"));
    let blank = splitter.next_frame().unwrap().unwrap();
    assert_eq!((blank.kind, &blank.raw[..]), (Kind::Blank, &b"\n"[..]));
    assert_eq!(splitter.next_frame().unwrap().unwrap().data(), b"b");
}

#[test]
fn an_unfinished_end_is_read_and_can_be_terminated() {
    for (end, terminated) in [
        ("data: [DONE]", "data: [DONE]\n\n"),
        ("data: [DONE]\n", "data: [DONE]\n\n"),
        ("data: [DONE]\r\n", "data: [DONE]\r\n\n"),
    ] {
        let (frames, last) = split(&[b"data: a\n\n", end.as_bytes()]);
        let last = last.unwrap();
        assert_eq!((frames.len(), last.complete, last.data()), (1, false, &b"[DONE]"[..]));
        assert_eq!(last.terminated(), terminated);
    }
}

#[test]
fn too_large_a_frame_is_an_error_for_good() {
    let mut splitter = Splitter::new(10);
    for _ in 0..3 {
        splitter.push(&Bytes::from_static(b"data: "));
        if splitter.next_frame().is_err() {
            break;
        }
    }
    assert_eq!(splitter.next_frame(), Err(FrameTooLarge { limit: 10 }));
}

#[test]
fn undrained_chunks_are_joined() {
    let mut splitter = Splitter::new(100);
    splitter.push(&Bytes::from_static(b"data: a\n"));
    splitter.push(&Bytes::from_static(b"\ndata: b\n\n"));
    assert_eq!(splitter.next_frame().unwrap().unwrap().data(), b"a");
    assert_eq!(splitter.next_frame().unwrap().unwrap().data(), b"b");
}

fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 12] =
        ["data:", "data: ", "event: e", ": c", "x", "\n", "\r", "\r\n", "\n\n", "é", "\u{feff}", "{\"a\":1}"];
    let piece = proptest::sample::select(&PIECES[..]).prop_map(str::as_bytes);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_chunking_decodes_alike(bytes in stream_bytes(), cuts in proptest::collection::vec(1usize..9, 1..60)) {
        let (whole, whole_last) = split(&[&bytes]);
        let mut chunks = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (chunk, after) = rest.split_at((*cut).min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        let (frames, last) = split(&chunks);
        let raw: Vec<u8> = frames.iter().chain(&last).flat_map(|frame| frame.raw.to_vec()).collect();
        prop_assert_eq!(&raw, &bytes);
        let facts = |frames: &[Frame], last: &Option<Frame>| -> Vec<Said> {
            frames.iter().chain(last).filter(|frame| frame.kind != Kind::Blank).map(said).collect()
        };
        prop_assert_eq!(facts(&frames, &last), facts(&whole, &whole_last));
    }
}
