use serde_json::json;

use super::*;

fn check(case: Value, ending: Ending) {
    let case = RecordedCase::of_object(case.as_object().unwrap()).unwrap();
    assert_eq!(recorded(&case).ending, ending, "{case:?}");
}

fn fault(fault: Fault, phase: Phase, sent: Sent, word: &str) -> Ending {
    Ending::Transport(TransportFault { phase, fault, sent, received: 0, detail: word.to_owned() })
}

#[test]
fn words_of_gateways_are_endings() {
    let of = |word: &str, phase: &str| json!({"where": "transport", "facts": {"error": word, "phase": phase}});
    check(of("dns", "connect"), fault(Fault::Dns, Phase::Resolve, Sent::Nothing, "dns"));
    let refused = fault(Fault::Refused, Phase::Connect, Sent::Nothing, "connection_refused");
    check(of("connection_refused", "connect"), refused);
    check(of("tls_certificate", "tls"), fault(Fault::Tls, Phase::Tls, Sent::Nothing, "tls_certificate"));
    let reset = fault(Fault::Reset, Phase::Tls, Sent::Nothing, "tls_handshake_reset");
    check(of("tls_handshake_reset", "tls"), reset);
    let stream = fault(Fault::Closed, Phase::Head, Sent::Nothing, "h2_refused_stream");
    check(of("h2_refused_stream", "request"), stream);
    let timed_out = fault(Fault::TimedOut, Phase::Connect, Sent::Nothing, "connect_timeout");
    check(of("connect_timeout", "connect"), timed_out);
    let first = Ending::TimedOut { limit: Limit::FirstContent, sent: Sent::Request };
    check(of("first_byte_timeout", "response_headers"), first);
    let idle = Ending::TimedOut { limit: Limit::Idle, sent: Sent::Response };
    check(of("stream_idle_timeout", "response_body"), idle);
    check(of("client_disconnected", ""), Ending::ClientGone);
    check(of("response_conversion_failed", ""), Ending::Local);
    let deadline = Ending::TimedOut { limit: Limit::Deadline, sent: Sent::Request };
    check(of("total_deadline_exceeded", ""), deadline);
}

#[test]
fn answers_go_through_the_protocols_reading() {
    let status = |status, shape| Ending::Status { status, shape };
    check(json!({"where": "status", "status": 502, "body": "<html></html>"}), status(502, Shape::Html));
    check(json!({"where": "status", "status": 429, "body": {"error": {"message": "m"}}}), status(429, Shape::Error));
    let wrong = |shape| Ending::Wrong2xx { status: 200, shape };
    check(json!({"where": "body200", "status": 200, "body": {"choices": []}}), wrong(Shape::EmptyOutput));
    let gzip = json!({"where": "body200", "status": 200, "body": "x", "headers": {"content-encoding": "gzip"}});
    check(gzip, wrong(Shape::Text));
    let stream = |body: &str| {
        json!({"where": "sse_first", "status": 200, "protocol": "openai-chat", "body": body,
        "headers": {"content-type": "text/event-stream"}})
    };
    check(stream("data: [DONE]\n\n"), wrong(Shape::EmptyOutput));
    check(stream("data: {\"error\":{\"message\":\"m\"}}\n\n"), wrong(Shape::Error));
    let unasked = json!({"where": "sse_first", "status": 200, "body": {"error_code": 18, "error_msg": "m"}});
    check(unasked, wrong(Shape::Error));
    check(
        json!({"where": "sse_first", "status": 200, "nothing": "known",
        "body": {"choices": [{"message": {"content": "x"}}]}}),
        Ending::Success,
    );
}
