//! Entities as answers show them: hashes of tokens are left out, groups have their names beside their ids.

use serde::Serialize;
use serde_json::{Map, Value, json};
use waybill_domain::catalog::Catalog;
use waybill_event::config::{
    Account, AdminToken, Channel, ConfigChange, Group, Intervention, Key, Policy, PolicyScope, Price, Route, Rules,
};
use waybill_event::{AccountId, AdminTokenId, ChannelId, GroupId, KeyId, NanoUsd, RouteId, Scope, Source};

/// Which entity an edit was about.
pub(super) enum Subject {
    Channel(ChannelId),
    Account(AccountId),
    Price(String),
    Group(GroupId),
    Key(KeyId),
    AdminToken(AdminTokenId),
    Policy(PolicyScope),
    Route(RouteId),
    Intervention(Scope),
    Rules(PolicyScope),
}

fn value(state: &impl Serialize) -> Value {
    serde_json::to_value(state).unwrap_or(Value::Null)
}

fn group_name(catalog: &Catalog, id: GroupId) -> Value {
    catalog.groups.get(&id).map_or(Value::Null, |group| group.name.clone().into())
}

pub(super) fn channel(catalog: &Catalog, channel: &Channel) -> Value {
    of_source(catalog, channel, channel.source(), &channel.groups)
}

pub(super) fn account(catalog: &Catalog, account: &Account) -> Value {
    let mut shown = of_source(catalog, account, account.source(), &account.groups);
    if let (Value::Object(fields), Some(window)) = (&mut shown, account.session_window) {
        // As it is given, and not as it is stored.
        fields.insert("session_window".to_owned(), json!({"usd": usd(window.limit), "seconds": window.seconds}));
    }
    shown
}

fn of_source(catalog: &Catalog, state: &impl Serialize, source: Source, groups: &[GroupId]) -> Value {
    let mut shown = value(state);
    if let Value::Object(fields) = &mut shown {
        let names: Vec<Value> = groups.iter().map(|id| group_name(catalog, *id)).collect();
        fields.insert("group_names".to_owned(), names.into());
        fields.insert("source".to_owned(), source.to_string().into());
    }
    shown
}

pub(super) fn group(group: &Group) -> Value {
    value(group)
}

pub(super) fn key(catalog: &Catalog, key: &Key) -> Value {
    let mut shown = value(key);
    if let Value::Object(fields) = &mut shown {
        fields.remove("hash");
        fields.insert("group_name".to_owned(), group_name(catalog, key.group));
    }
    shown
}

pub(super) fn admin_token(token: &AdminToken) -> Value {
    let mut shown = value(token);
    if let Value::Object(fields) = &mut shown {
        fields.remove("hash");
    }
    shown
}

pub(super) fn policy(policy: &Policy) -> Value {
    // Also what isn't set is shown, as empty.
    json!({
        "scope": policy.scope.to_string(),
        "version": policy.version,
        "selector": policy.selector,
        "request": policy.request,
    })
}

pub(super) fn route(catalog: &Catalog, route: &Route) -> Value {
    let mut shown = value(route);
    if let Value::Object(fields) = &mut shown {
        let names: Vec<Value> = route.groups.iter().map(|id| group_name(catalog, *id)).collect();
        fields.insert("group_names".to_owned(), names.into());
    }
    shown
}

/// Money as it is stored, and as people write it.
pub(super) fn price(price: &Price) -> Value {
    json!({
        "model": price.model,
        "input_nano_usd": price.input,
        "output_nano_usd": price.output,
        "input_usd": usd(price.input),
        "output_usd": usd(price.output),
        "version": price.version,
    })
}

fn usd(amount: NanoUsd) -> f64 {
    amount.0 as f64 / 1e9
}

pub(super) fn intervention(done: &Intervention) -> Value {
    value(done)
}

pub(super) fn rules(rules: &Rules) -> Value {
    json!({
        "scope": rules.scope.to_string(),
        "version": rules.version,
        "live": rules.live,
        "candidate": rules.candidate,
    })
}

fn member(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

/// The state that a change left, under its entity's word.
pub(super) fn of(catalog: &Catalog, change: &ConfigChange) -> Map<String, Value> {
    match change {
        ConfigChange::Channel(c) => member("channel", channel(catalog, &c.state)),
        ConfigChange::Account(c) => member("account", account(catalog, &c.state)),
        ConfigChange::Price(c) => member("price", price(&c.state)),
        ConfigChange::Group(c) => member("group", group(&c.state)),
        ConfigChange::Key(c) => member("key", key(catalog, &c.state)),
        ConfigChange::AdminToken(c) => member("admin_token", admin_token(&c.state)),
        ConfigChange::Policy(c) => member("policy", policy(&c.state)),
        ConfigChange::Intervention(c) => member("intervention", intervention(&c.state)),
        ConfigChange::Rules(c) => member("rules", rules(&c.state)),
        ConfigChange::Route(c) => member("route", route(catalog, &c.state)),
    }
}

/// The state as it is, under its entity's word; nothing where there is none.
pub(super) fn current(catalog: &Catalog, subject: Subject) -> Map<String, Value> {
    let found = match subject {
        Subject::Channel(id) => catalog.channels.get(&id).map(|c| ("channel", channel(catalog, c))),
        Subject::Account(id) => catalog.accounts.get(&id).map(|a| ("account", account(catalog, a))),
        Subject::Price(model) => catalog.prices.get(&model).map(|p| ("price", price(p))),
        Subject::Group(id) => catalog.groups.get(&id).map(|g| ("group", group(g))),
        Subject::Key(id) => catalog.keys.get(&id).map(|k| ("key", key(catalog, k))),
        Subject::AdminToken(id) => catalog.admin_tokens.get(&id).map(|t| ("admin_token", admin_token(t))),
        Subject::Policy(scope) => catalog.policies.get(&scope).map(|p| ("policy", policy(p))),
        Subject::Intervention(scope) => {
            catalog.interventions.get(&scope).map(|done| ("intervention", intervention(done)))
        }
        Subject::Rules(scope) => catalog.rules.get(&scope).map(|r| ("rules", rules(r))),
        Subject::Route(id) => catalog.routes.get(&id).map(|r| ("route", route(catalog, r))),
    };
    found.map(|(name, value)| member(name, value)).unwrap_or_default()
}
