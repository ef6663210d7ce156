//! The command line's client side: commands that talk to the admin API and show its answers to people, or as JSON.

mod account;
mod accounts;
mod admin_token;
mod api;
mod apply;
mod capabilities;
mod channel;
mod config_history;
mod connection;
mod credential;
mod document;
mod export;
mod group;
mod history;
mod key;
mod limits;
mod named;
mod offer;
mod output;
mod policy;
mod price;
mod reason;
mod requests;
mod route;
mod rules;
mod source;
mod sources;
mod status;
mod tail;
mod upstream;
mod why;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::connection::Connection;

/// Commands that talk to the admin API.
#[derive(Debug, Subcommand)]
pub enum Client {
    /// Channels: API keys at base URLs.
    Channel(At<channel::Channel>),
    /// Accounts: logins of subscriptions.
    Account(At<account::Account>),
    /// Groups: what keys belong to and sources serve.
    Group(At<group::Group>),
    /// Client keys.
    Key(At<key::Key>),
    /// Tokens of the admin API.
    AdminToken(At<admin_token::AdminToken>),
    /// Routes: client-visible model names with the models that serve them.
    Route(At<route::Route>),
    /// Steer a source by hand: hold its breaker open, close it, lift its blocks.
    Source(At<source::Source>),
    /// The numbers that requests, breakers and blocks go by.
    Policy(At<policy::Policy>),
    /// Rules of verdicts: what an upstream's failure means.
    Rules(rules::Rules),
    /// What tokens of models cost.
    Price(At<price::Price>),
    /// Make configuration what a file says, in one step.
    Apply(With<apply::Apply>),
    /// Write a manifest of what is configured, without credentials.
    Export(With<export::Export>),
    /// Tell what happened to a request, and why.
    History(With<history::History>),
    /// List requests, newest first.
    Requests(With<requests::Requests>),
    /// Show the log's events as they are appended.
    Tail(With<tail::Tail>),
    /// Show the sources with their live state.
    Sources(With<sources::Sources>),
    /// Show the accounts with how much of each is in use, and the pools they make.
    Accounts(With<accounts::Accounts>),
    /// Tell why a source serves, or why it doesn't.
    Why(With<why::Why>),
    /// List the edits of configuration, newest first.
    ConfigHistory(With<config_history::ConfigHistory>),
    /// Show what the admin role depends on, and how far behind it is.
    Status(With<status::Status>),
}

/// A command with subcommands, and where to send it.
#[derive(Debug, Args)]
pub struct At<T: Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: T,
}

/// A command, and where to send it.
#[derive(Debug, Args)]
pub struct With<T: Args> {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    command: T,
}

/// Wrong use of the command line that only shows when it runs: exit code 2, like any other wrong use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

impl Client {
    /// Runs the command. The exit code is 0, or 2 for wrong use.
    ///
    /// # Errors
    /// The command was refused or failed.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.send().await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if error.is::<Usage>() => {
                // Nobody may be reading any more; the exit code tells.
                let _unread = writeln!(std::io::stderr(), "waybill: {error:#}");
                Ok(ExitCode::from(2))
            }
            // A reader that has seen enough, such as `head`, is no failure.
            Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
        }
    }

    async fn send(self) -> anyhow::Result<()> {
        match self {
            Self::Channel(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Account(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Price(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Group(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Key(At { connection, command }) => command.run(&connection.open()?).await,
            Self::AdminToken(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Route(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Source(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Policy(At { connection, command }) => command.run(&connection.open()?).await,
            Self::Rules(command) => command.run().await,
            Self::Apply(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Export(With { connection, command }) => command.run(&connection.open()?).await,
            Self::History(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Requests(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Tail(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Sources(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Accounts(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Why(With { connection, command }) => command.run(&connection.open()?).await,
            Self::ConfigHistory(With { connection, command }) => command.run(&connection.open()?).await,
            Self::Status(With { connection, command }) => command.run(&connection.open()?).await,
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
