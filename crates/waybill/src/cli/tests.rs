use clap::{Parser, error::ErrorKind};

use super::Client;

#[derive(Debug, Parser)]
#[command(name = "waybill")]
struct Try {
    #[command(subcommand)]
    client: Client,
}

fn check(line: &str, expected: Option<ErrorKind>) {
    let parsed = Try::try_parse_from(line.split_whitespace());
    assert_eq!(parsed.as_ref().err().map(clap::Error::kind), expected, "{line}: {parsed:?}");
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory as _;
    Try::command().debug_assert();
}

#[test]
fn every_command_can_be_said() {
    for line in [
        "waybill channel list --json",
        "waybill channel create main --base-url https://x --credential-env KEY --model m --model f=up --group default --priority -1",
        "waybill channel edit main --weight 3 --add-model x --remove-model y --expected-version 4 --reason why",
        "waybill channel edit 1 --credential-file - --allow-private true --max-concurrent 0",
        "waybill channel delete main --expected-version 3",
        "waybill channel test main --model m",
        "waybill --admin-url http://x:1 channel fetch-models main",
        "waybill account import max --platform claude --base-url https://x --token-file - --model m --group default --max-concurrent 5 --session-usd 5",
        "waybill account edit max --requests-per-minute 20 --session-usd 0 --no-token --reason why",
        "waybill account delete 1",
        "waybill price set gpt-4o --input 2.5 --output 10",
        "waybill price clear gpt-4o",
        "waybill key issue ci --group default --requests-per-minute 60 --user-max-concurrent 2",
        "waybill group create default",
        "waybill group edit default --name main",
        "waybill key issue ci --group default --model m --expires-at 2027-01-01T00:00:00Z",
        "waybill key edit ci --all-models --never-expires",
        "waybill key revoke ci",
        "waybill admin-token issue bob",
        "waybill route create smart --target deep,tools=true,context_window=1000 --target fast --group default",
        "waybill route edit smart --name clever --target fast --all-groups --expected-version 2",
        "waybill route disable smart",
        "waybill source open main --model m --for 600 --reason maintenance",
        "waybill source close channel:1",
        "waybill source lift main",
        "waybill source reset main --model m",
        "waybill policy get --scope route:smart",
        "waybill policy set --scope channel:1 source_breaker.open_ms=1000 late_after_ms=2000",
        "waybill policy set --scope route:smart request.strategy=least_busy request.deadline_ms=",
        "waybill apply waybill.toml --dry-run",
        "waybill history last",
        "waybill requests 0190 --state failed --limit 5",
        "waybill tail --type config,breaker_opened --source channel:1",
        "waybill sources --json",
        "waybill accounts --since 3600",
        "waybill why account:7",
        "waybill why main --since 60 --json",
        "waybill config-history --entity channel --id 1",
        "waybill status",
    ] {
        // The connection's flags stand behind the command they belong to.
        let line = line.replace("waybill --admin-url http://x:1 channel", "waybill channel --admin-url http://x:1");
        check(&line, None);
    }
}

#[test]
fn contradictions_are_refused() {
    check("waybill channel create main", Some(ErrorKind::MissingRequiredArgument));
    check("waybill channel create main --base-url x --credential sk-1", Some(ErrorKind::UnknownArgument));
    check("waybill channel edit main --credential-env A --credential-file b", Some(ErrorKind::ArgumentConflict));
    check("waybill channel edit main --no-credential --credential-env A", Some(ErrorKind::ArgumentConflict));
    check("waybill channel edit main --model m --add-model x", Some(ErrorKind::ArgumentConflict));
    check("waybill key edit ci --expires-at T --never-expires", Some(ErrorKind::ArgumentConflict));
    check("waybill policy set", Some(ErrorKind::MissingRequiredArgument));
}

#[test]
fn help_says_what_each_command_does() {
    use clap::CommandFactory as _;
    fn help(command: &mut clap::Command, out: &mut String) {
        out.push_str(&format!("{}\n\n", command.render_help()));
        for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
            help(below, out);
        }
    }
    let mut all = String::new();
    let mut command = Try::command().term_width(100);
    command.build();
    help(&mut command, &mut all);
    insta::assert_snapshot!(all);
}
