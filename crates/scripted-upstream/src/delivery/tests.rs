use super::*;
use crate::script::Fault;

fn payload(frames: &[&str], framing: Framing) -> Payload {
    Payload {
        content_type: Some("text/plain".into()),
        frames: frames.iter().map(|frame| Bytes::copy_from_slice(frame.as_bytes())).collect(),
        framing,
        wire: false,
    }
}

/// The steps after the head, written shortly.
fn steps(reply: &Reply, frames: &[&str], framing: Framing) -> Vec<String> {
    let plan = plan(reply, payload(frames, framing), "a-1", true);
    let after_head = plan.steps.into_iter().skip_while(|step| !matches!(step, Step::Write { head: true, .. })).skip(1);
    after_head
        .map(|step| match step {
            Step::Write { bytes, .. } => format!("{:?}", String::from_utf8_lossy(&bytes)).trim_matches('"').to_owned(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[track_caller]
fn check(reply: Reply, frames: &[&str], framing: Framing, expected: &[&str]) {
    assert_eq!(steps(&reply, frames, framing), expected);
}

#[test]
fn frames_are_chunks_and_the_end_is_told() {
    check(Reply::default(), &["ab", "c"], Framing::Chunked, &[r"2\r\nab\r\n", r"1\r\nc\r\n", r"0\r\n\r\n"]);
    check(Reply::default(), &["ab", "c"], Framing::Length, &["ab", "c"]);
    check(Reply::default(), &[""], Framing::Chunked, &[r"0\r\n\r\n"]);
}

#[test]
fn waits_stand_between_pieces() {
    check(Reply::default().delay_per_chunk(7), &["a", "b"], Framing::Close, &["a", "Wait(7)", "b"]);
    check(Reply::default().drip(2, 3), &["abc"], Framing::Close, &["ab", "Wait(3)", "c"]);
}

#[test]
fn a_fault_after_bytes_cuts_inside_a_piece_whose_size_was_promised() {
    let reply = Reply::default().fault(After::Bytes(3), Then::Cut);
    check(reply.clone(), &["ab", "cd"], Framing::Chunked, &[r"2\r\nab\r\n", r"2\r\nc", "Cut", r"d\r\n", r"0\r\n\r\n"]);
    check(reply, &["ab", "cd"], Framing::Length, &["ab", "c", "Cut", "d"]);
}

#[test]
fn a_fault_between_pieces_sends_nothing_of_the_next() {
    let reset = |after| Reply::default().fault(after, Then::Reset);
    check(reset(After::Frames(1)), &["ab", "cd"], Framing::Close, &["ab", "Reset", "cd"]);
    check(reset(After::Bytes(0)), &["ab"], Framing::Close, &["Reset", "ab"]);
    check(reset(After::Bytes(2)), &["ab", "cd"], Framing::Close, &["ab", "Reset", "cd"]);
    check(reset(After::Bytes(99)), &["ab"], Framing::Chunked, &[r"2\r\nab\r\n", "Reset", r"0\r\n\r\n"]);
    check(Reply::default().fault(After::Frames(1), Then::Hang), &["a"], Framing::Length, &["a", "Hang"]);
}

#[test]
fn a_fault_after_the_request_comes_before_the_head() {
    let reply = Reply { fault: Some(Fault { after: After::Request, then: Then::Stall { ms: 9 } }), ..Reply::default() };
    let plan = plan(&reply, payload(&["x"], Framing::Length), "a-1", true);
    assert_eq!(plan.steps[0], Step::Wait(9));
}

#[test]
fn characters_are_cut_inside() {
    let reply = Reply::default().chunking(Chunking::SplitUtf8);
    let plan = plan(&reply, payload(&["aé", "€z"], Framing::Close), "a-1", true);
    let written: Vec<Vec<u8>> = plan
        .steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Write { bytes, head: false, .. } => Some(bytes.to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(written, [&b"a\xC3"[..], b"\xA9\xE2", b"\x82\xACz"]);
}

#[test]
fn the_scripts_headers_replace_ours() {
    let reply = Reply::default().header("Content-Type", "text/odd");
    let plan = plan(&reply, payload(&["x"], Framing::Length), "a-1", true);
    let Step::Write { bytes, .. } = &plan.steps[0] else { panic!("no head") };
    let head = String::from_utf8_lossy(bytes);
    assert!(head.contains("Content-Type: text/odd\r\n") && !head.contains("text/plain"), "{head}");
    assert!(head.contains("content-length: 1\r\n") && head.contains("x-request-id: req-a-1\r\n"), "{head}");
    assert!(plan.reusable);
}
