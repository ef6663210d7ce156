//! One connection: reads a request, does what the plan says, reads the next.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::answer::{self, Purpose};
use crate::calls::{Call, Outcome};
use crate::delivery::{self, Plan, Step};
use crate::request::{Inbox, NoRequest, Request, write_all};
use crate::script::Reply;
use crate::server::Shared;

/// How long a connection may wait for its next request.
const IDLE: Duration = Duration::from_secs(120);

/// Path of the OAuth server's token endpoint.
pub(crate) const TOKEN_PATH: &str = "/oauth/token";

/// Serves a connection until either side ends it. `own` names the source when the port is its own.
pub(crate) async fn serve(stream: TcpStream, own: Option<String>, shared: &Shared, stop: CancellationToken) {
    // Small pieces must go out as they are written.
    let _best_effort = stream.set_nodelay(true);
    let mut inbox = Inbox::default();
    loop {
        let request = tokio::select! {
            () = stop.cancelled() => return,
            request = tokio::time::timeout(IDLE, inbox.request(&stream)) => request,
        };
        let goes_on = match request {
            Ok(Ok(request)) => exchange(&stream, &mut inbox, own.as_deref(), request, shared, &stop).await,
            Ok(Err(NoRequest::Bad(why))) => {
                let answer = format!("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{why}\n");
                let _gone_is_fine = write_all(&stream, answer.as_bytes()).await;
                false
            }
            Ok(Err(NoRequest::Gone)) | Err(_) => false,
        };
        if !goes_on {
            return;
        }
    }
}

/// Answers one request; whether the connection goes on.
async fn exchange(
    stream: &TcpStream,
    inbox: &mut Inbox,
    own: Option<&str>,
    request: Request,
    shared: &Shared,
    stop: &CancellationToken,
) -> bool {
    let name = own.map_or_else(|| first_segment(&request.path), str::to_owned);
    let purpose = Purpose::of(&request.method, &request.path);
    let (source, turn) = shared.turn(&name, purpose);
    let number = shared.calls.begin(Call {
        number: 0,
        source: name.clone(),
        turn,
        method: request.method.clone(),
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: request.body.clone(),
        received: Instant::now(),
        answered: None,
        ended: None,
        sent_bytes: 0,
    });
    let call = format!("{name}-{number}");
    let reply = match &source.login {
        _ if own.is_none() && request.method == "POST" && request.path == TOKEN_PATH => shared.issuer.token(&request),
        Some(login) if !shared.issuer.admits(&name, login, &request) => Reply::error(401, "token_expired"),
        Some(_) | None => answer::reply(&source, &request, purpose, turn),
    };
    let payload = answer::payload(&reply.body, &source, &request, reply.status, &call);
    let plan = delivery::plan(&reply, payload, &call, request.keep_alive);
    let outcome = perform(stream, inbox, &plan, number, shared, stop).await;
    shared.calls.end(number, &name, outcome);
    outcome == Outcome::Sent && plan.reusable
}

async fn perform(
    stream: &TcpStream,
    inbox: &mut Inbox,
    plan: &Plan,
    number: u64,
    shared: &Shared,
    stop: &CancellationToken,
) -> Outcome {
    for step in &plan.steps {
        match step {
            Step::Cut => return Outcome::Cut,
            Step::Reset => {
                let _best_effort = stream.set_zero_linger();
                return Outcome::Reset;
            }
            Step::Wait(_) | Step::Hang | Step::Write { .. } => {}
        }
        tokio::select! {
            // In this order: a client that has gone is noticed before more is written to it.
            biased;
            () = stop.cancelled() => return Outcome::Stopped,
            () = inbox.gone(stream) => return Outcome::ClientGone,
            done = act(stream, step) => if done.is_err() { return Outcome::ClientGone },
        }
        if let Step::Write { body, head, .. } = step {
            shared.calls.note(number, |call| {
                call.sent_bytes += body;
                if *head {
                    call.answered = Some(Instant::now());
                }
            });
        }
    }
    Outcome::Sent
}

async fn act(stream: &TcpStream, step: &Step) -> std::io::Result<()> {
    match step {
        Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        Step::Write { bytes, .. } => write_all(stream, bytes).await?,
        Step::Hang => std::future::pending().await,
        Step::Cut | Step::Reset => {}
    }
    Ok(())
}

/// The source's name in a path.
fn first_segment(path: &str) -> String {
    path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default().to_owned()
}
