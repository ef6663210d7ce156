//! The one thread that starts children.
//!
//! The kernel sends a death signal when the *thread* that forked the child ends. Threads of a runtime come and go, so
//! every child is forked by this thread, which lives as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::oneshot;

/// Starts that wait for the thread; a start takes about a millisecond.
const QUEUE: usize = 64;

struct Job {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Starts `command` on the thread; `None` when the thread can't be had.
pub(super) async fn spawn(command: Command) -> Option<io::Result<Child>> {
    static QUEUE_IN: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
    let queue = QUEUE_IN.get_or_init(start).as_ref()?;
    let (reply, answer) = oneshot::channel();
    // Full means that 64 starts already wait; that many children are nobody's plan.
    queue.try_send(Job { command, reply }).ok()?;
    answer.await.ok()
}

fn start() -> Option<SyncSender<Job>> {
    let (queue, jobs) = sync_channel::<Job>(QUEUE);
    let work = move || {
        for mut job in jobs {
            // When nobody waits for it any more, the child comes back here and must not be left behind.
            if let Err(Ok(mut child)) = job.reply.send(job.command.spawn()) {
                let _ended_already = child.kill();
                let _reaped = child.wait();
            }
        }
    };
    std::thread::Builder::new().name("start-children".into()).spawn(work).ok().map(|_lives_as_long_as_we_do| queue)
}
