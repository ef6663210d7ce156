//! A composition of services, as far as it is checked here.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Deserialize;

/// The whole file. Sections that begin with `x-` are pieces that others are made of.
#[derive(Debug, Deserialize)]
pub(super) struct Compose {
    pub(super) services: BTreeMap<String, Service>,
    #[serde(default)]
    pub(super) volumes: BTreeMap<String, Nothing>,
    #[serde(default)]
    pub(super) networks: BTreeMap<String, Nothing>,
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, Secret>,
}

/// What is looked at by its name only.
#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize)]
pub(super) struct Secret {
    pub(super) file: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Build {
    pub(super) context: String,
    pub(super) dockerfile: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub(super) image: Option<String>,
    pub(super) build: Option<Build>,
    pub(super) command: Vec<String>,
    pub(super) restart: Option<String>,
    pub(super) depends_on: Option<Depends>,
    pub(super) volumes: Vec<String>,
    pub(super) networks: Vec<String>,
    pub(super) secrets: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Depends {
    Names(Vec<String>),
    Conditions(BTreeMap<String, Nothing>),
}

/// Reads a composition.
pub(super) fn parse(text: &str) -> Result<Compose> {
    Ok(serde_saphyr::from_str(text)?)
}

impl Service {
    /// Role and configuration of a service that runs one: `[role, …, --config, FILE]`.
    pub(super) fn config(&self) -> Option<(&str, &str)> {
        let role = self.command.first()?;
        let at = self.command.iter().position(|word| word == "--config")?;
        let file = self.command.get(at + 1)?;
        (self.build.is_some()).then_some((role, file))
    }

    /// Whether it goes on for good.
    pub(super) fn lasts(&self) -> bool {
        self.restart.as_deref() != Some("no")
    }

    fn depends_on(&self) -> Vec<&String> {
        match &self.depends_on {
            None => Vec::new(),
            Some(Depends::Names(names)) => names.iter().collect(),
            Some(Depends::Conditions(conditions)) => conditions.keys().collect(),
        }
    }
}

impl Compose {
    /// What is named and isn't there, what is there and isn't named, and images that may change under us.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (mut volumes, mut networks, mut secrets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (name, service) in &self.services {
            let absent = service.depends_on().into_iter().filter(|on| !self.services.contains_key(*on));
            faults.extend(absent.map(|on| format!("{name} depends on {on}, which isn't there")));
            let named = service.volumes.iter().filter_map(|volume| volume.split(':').next());
            volumes.extend(named.filter(|from| !from.starts_with(['.', '/'])));
            networks.extend(service.networks.iter().map(String::as_str));
            secrets.extend(service.secrets.iter().map(String::as_str));
            let tag = service.image.as_deref().and_then(|image| image.rsplit_once(':')).map(|(_, tag)| tag);
            if tag.is_none_or(|tag| tag == "latest") {
                faults.push(format!("{name} has an image without a tag that says which one it is"));
            }
        }
        faults.extend(differing("volume", &volumes, self.volumes.keys()));
        faults.extend(differing("network", &networks, self.networks.keys()));
        faults.extend(differing("secret", &secrets, self.secrets.keys()));
        faults
    }
}

fn differing<'a>(what: &str, used: &BTreeSet<&str>, declared: impl Iterator<Item = &'a String>) -> Vec<String> {
    let declared: BTreeSet<&str> = declared.map(String::as_str).collect();
    let missing = used.difference(&declared).map(|name| format!("the {what} {name} isn't declared"));
    let unused = declared.difference(used).map(|name| format!("nobody uses the {what} {name}"));
    missing.chain(unused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
x-role: &role
  image: waybill:local
  build: { context: ., dockerfile: deploy/Dockerfile }
services:
  db: { image: "postgres:18.1", volumes: ["data:/data", "./deploy/x:/x:ro"] }
  one:
    <<: *role
    command: ["proxy", "--config", "/etc/waybill/one.toml"]
    secrets: [key]
    networks: [inside]
    depends_on: { db: { condition: service_healthy } }
  two:
    <<: *role
    command: ["log", "setup", "--config", "/etc/waybill/two.toml", "--replicas", "3"]
    depends_on: [one]
volumes: { data: {} }
networks: { inside: { internal: true } }
secrets: { key: { file: ./deploy/secrets/key } }
"#;

    #[track_caller]
    fn check(from: &str, to: &str, expected: &[&str]) {
        assert!(from.is_empty() || GOOD.contains(from), "{from}");
        let faults = parse(&GOOD.replace(from, to)).unwrap().faults();
        assert_eq!(faults, expected);
    }

    #[test]
    fn names_must_be_those_of_what_is_there() {
        check("", "", &[]);
        check("depends_on: [one]", "depends_on: [three]", &["two depends on three, which isn't there"]);
        check("{ db: {", "{ cache: {", &["one depends on cache, which isn't there"]);
        check(
            "[\"data:/data\", ",
            "[\"date:/data\", ",
            &["the volume date isn't declared", "nobody uses the volume data"],
        );
        check("networks: [inside]", "networks: []", &["nobody uses the network inside"]);
        check("secrets: [key]", "secrets: [ring]", &["the secret ring isn't declared", "nobody uses the secret key"]);
        let untagged = "db has an image without a tag that says which one it is";
        check("postgres:18.1", "postgres:latest", &[untagged]);
        check("\"postgres:18.1\"", "postgres", &[untagged]);
    }

    #[test]
    fn a_role_is_told_by_its_command() {
        let composition = parse(GOOD).unwrap();
        let config = |name: &str| composition.services[name].config();
        assert_eq!(config("one"), Some(("proxy", "/etc/waybill/one.toml")));
        assert_eq!(config("two"), Some(("log", "/etc/waybill/two.toml")));
        assert_eq!(config("db"), None);
    }
}
