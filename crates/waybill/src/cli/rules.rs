//! `waybill rules`.

mod eval;
mod layer;
mod shadow;
mod test;

use clap::{Args, Subcommand};

use super::With;

pub(crate) use eval::Eval;
pub(crate) use layer::{Drop, Promote, Revert, Set, Shipped, Show};
pub(crate) use shadow::Shadow;
pub(crate) use test::Test;

/// Rules of verdicts: what an upstream's failure means.
#[derive(Debug, Args)]
pub struct Rules {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done with rules.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show which scopes say what otherwise than the shipped rules; with a scope, its layer as JSON.
    Show(With<Show>),
    /// Print the shipped rules as JSON.
    Shipped(With<Shipped>),
    /// Put a scope's layer in force, or let it look on as a candidate.
    Set(With<Set>),
    /// Put a scope's candidate in force.
    Promote(With<Promote>),
    /// Let a scope's candidate look on no longer.
    Drop(With<Drop>),
    /// Put a former layer of a scope in force again.
    Revert(With<Revert>),
    /// Show what candidates would have said otherwise of recent failures.
    Shadow(With<Shadow>),
    /// Show what the rules in force say of a pasted failure, and what a layer would say.
    Test(With<Test>),
    /// Print what the rules say of recorded failures, without a server.
    Eval(Eval),
}

impl Rules {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Show(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Shipped(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Set(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Promote(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Drop(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Revert(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Shadow(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Test(With { connection, command }) => command.run(&connection.open()?).await,
            Command::Eval(eval) => eval.run(),
        }
    }
}
