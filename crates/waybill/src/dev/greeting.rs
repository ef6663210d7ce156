//! What `waybill dev` prints: a line per step, and at the end everything a newcomer needs to see the product work.

use std::io::{self, Write};

use super::folder::Addresses;

/// One step of the start or the stop.
pub fn step(what: &str) {
    print(&format!("· {what}\n"));
}

/// Everything runs; `elsewhere` if the command line doesn't find it by the folder it is called in.
pub fn ready(addresses: &Addresses, demo: bool, elsewhere: bool) {
    let mut text = String::from("\nWaybill is ready.\n\n");
    for (number, proxy) in addresses.proxies.iter().enumerate() {
        text.push_str(&format!("  proxy {}      {proxy}/v1\n", number + 1));
    }
    text.push_str(&format!("  admin API    {}/api/v1\n", addresses.admin_url));
    text.push_str(&format!("  admin token  {}\n", addresses.admin_token));
    if let Some(key) = &addresses.client_key {
        text.push_str(&format!("  client key   {key}\n"));
    }
    if elsewhere {
        text.push_str(&format!(
            "\nThe command line finds it with these:\n\n  export WAYBILL_ADMIN_URL={} WAYBILL_ADMIN_TOKEN={}\n",
            addresses.admin_url, addresses.admin_token
        ));
    }
    if demo && let (Some(proxy), Some(key)) = (addresses.proxies.first(), &addresses.client_key) {
        text.push_str(&format!(
            r#"
Try it. The demo's first channel always fails; the second one serves:

  curl -i {proxy}/v1/chat/completions -H 'Authorization: Bearer {key}' \
       -H 'Content-Type: application/json' \
       -d '{{"model":"demo-chat","messages":[{{"role":"user","content":"Why did you answer?"}}]}}'

What happened to that request, and why:

  cargo run -q -- history last

What every source is doing now:

  cargo run -q -- sources

"#
        ));
    }
    text.push_str("Ctrl-C stops everything; a second start finds its data again.\n\n");
    print(&text);
}

/// Something that a person at the terminal should know.
pub fn notice(what: &str) {
    print(&format!("! {what}\n"));
}

fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody may be reading any more; the fleet goes on.
    let _unread = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
