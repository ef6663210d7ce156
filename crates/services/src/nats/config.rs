//! The server's configuration file.

use std::fmt::Write;
use std::path::PathBuf;

use secrecy::ExposeSecret;

use super::{NatsConfig, NatsError, NatsUser, PORTS};
use crate::files;

/// Everything that stands in the file, settled.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) port: u16,
    pub(super) monitor_port: u16,
    pub(super) sync_always: bool,
    pub(super) users: Vec<NatsUser>,
    pub(super) max_store_bytes: u64,
    pub(super) cluster: Option<ClusterSettings>,
}

/// A node's place in its cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterSettings {
    pub(super) name: String,
    pub(super) port: u16,
    /// Cluster ports of all nodes.
    pub(super) routes: Vec<u16>,
}

impl Settings {
    /// A node by itself, on the ports that are given in `config`, or else on `ports`.
    pub(super) fn single(config: &NatsConfig, ports: [u16; PORTS]) -> Result<Self, NatsError> {
        let [port, monitor_port, _] = ports;
        Ok(Self {
            name: "nats".into(),
            dir: files::created(&config.dir).map_err(config.unusable())?,
            port: config.port.unwrap_or(port),
            monitor_port: config.monitor_port.unwrap_or(monitor_port),
            sync_always: config.sync_always,
            users: config.users.clone(),
            max_store_bytes: config.max_store_bytes,
            cluster: None,
        })
    }

    /// The text of the file.
    pub(super) fn render(&self) -> Result<String, NatsError> {
        let mut text = String::new();
        let store = self.dir.join("store");
        // The interval is quoted: bare, the server reads `2m` as two million seconds.
        let sync = if self.sync_always { "always" } else { "\"2m\"" };
        let lines = [
            format!("server_name: {}", quoted("the server's name", &self.name)?),
            format!("listen: \"127.0.0.1:{}\"", self.port),
            format!("http: \"127.0.0.1:{}\"", self.monitor_port),
            format!("ports_file_dir: {}", quoted("the folder", &self.dir.to_string_lossy())?),
            "max_payload: 1048576".into(),
            "jetstream {".into(),
            format!("  store_dir: {}", quoted("the store's folder", &store.to_string_lossy())?),
            format!("  sync_interval: {sync}"),
            format!("  max_file_store: {}", self.max_store_bytes),
            "  max_memory_store: 536870912".into(),
            "}".into(),
        ];
        for line in lines {
            push(&mut text, &line);
        }
        if let Some(cluster) = &self.cluster {
            let routes: Vec<String> =
                cluster.routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
            push(&mut text, "cluster {");
            push(&mut text, &format!("  name: {}", quoted("the cluster's name", &cluster.name)?));
            push(&mut text, &format!("  listen: \"127.0.0.1:{}\"", cluster.port));
            push(&mut text, &format!("  routes: [{}]", routes.join(", ")));
            push(&mut text, "}");
        }
        if !self.users.is_empty() {
            text.push_str(&authorization(&self.users)?);
        }
        Ok(text)
    }
}

/// The block of a server's configuration that says who may do what, to be included by configurations that are kept
/// elsewhere. It holds the passwords.
///
/// # Errors
/// [`NatsError::Unwritable`] for a name, password or subject that can't be written.
pub fn authorization(users: &[NatsUser]) -> Result<String, NatsError> {
    let mut text = String::new();
    push(&mut text, "authorization {");
    push(&mut text, "  users: [");
    for user in users {
        push(&mut text, &format!("    {}", render_user(user)?));
    }
    push(&mut text, "  ]");
    push(&mut text, "}");
    Ok(text)
}

fn render_user(user: &NatsUser) -> Result<String, NatsError> {
    Ok(format!(
        "{{ user: {}, password: {}, permissions: {{ publish: {{ allow: [{}] }}, subscribe: {{ allow: [{}] }}, \
         allow_responses: true }} }}",
        quoted("a user's name", &user.name)?,
        quoted("a user's password", user.password.expose_secret())?,
        subjects(&user.publish)?,
        subjects(&user.subscribe)?,
    ))
}

fn subjects(subjects: &[String]) -> Result<String, NatsError> {
    let quoted: Result<Vec<String>, NatsError> = subjects.iter().map(|subject| quoted("a subject", subject)).collect();
    Ok(quoted?.join(", "))
}

fn quoted(what: &'static str, text: &str) -> Result<String, NatsError> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(NatsError::Unwritable { what });
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn push(text: &mut String, line: &str) {
    // Writing to a String can't fail.
    let _infallible = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn settings() -> Settings {
        Settings {
            name: "n1".into(),
            dir: "/d".into(),
            port: 4222,
            monitor_port: 8222,
            sync_always: false,
            users: Vec::new(),
            max_store_bytes: 1024,
            cluster: None,
        }
    }

    fn user() -> NatsUser {
        NatsUser {
            name: "proxy".into(),
            password: SecretString::from("p\"w"),
            publish: vec!["wb.traffic.>".into(), "$JS.API.>".into()],
            subscribe: vec!["_INBOX.>".into()],
        }
    }

    #[track_caller]
    fn check(settings: &Settings, holds: &[&str], lacks: &[&str]) {
        let text = settings.render().unwrap();
        for part in holds {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        for part in lacks {
            assert!(!text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn a_lone_node_without_users_listens_on_loopback_only() {
        check(
            &settings(),
            &[
                "listen: \"127.0.0.1:4222\"",
                "http: \"127.0.0.1:8222\"",
                "sync_interval: \"2m\"",
                "store_dir: \"/d/store\"",
            ],
            &["cluster", "authorization", "0.0.0.0"],
        );
    }

    #[test]
    fn durable_means_always() {
        check(&Settings { sync_always: true, ..settings() }, &["sync_interval: always"], &["2m"]);
    }

    #[test]
    fn users_get_their_subjects_and_nothing_else() {
        check(
            &Settings { users: vec![user()], ..settings() },
            &[
                r#"user: "proxy", password: "p\"w""#,
                r#"publish: { allow: ["wb.traffic.>", "$JS.API.>"] }"#,
                r#"subscribe: { allow: ["_INBOX.>"] }"#,
            ],
            &[],
        );
    }

    #[test]
    fn nodes_know_each_other() {
        let cluster = ClusterSettings { name: "wb".into(), port: 1, routes: vec![1, 2] };
        check(
            &Settings { cluster: Some(cluster), ..settings() },
            &[r#"routes: ["nats-route://127.0.0.1:1", "nats-route://127.0.0.1:2"]"#, "listen: \"127.0.0.1:1\""],
            &[],
        );
    }

    #[test]
    fn a_line_break_in_a_password_is_refused() {
        let users = vec![NatsUser { password: SecretString::from("a\nb"), ..user() }];
        assert!(matches!(Settings { users, ..settings() }.render(), Err(NatsError::Unwritable { .. })));
    }

    #[test]
    fn passwords_are_not_in_debug() {
        assert!(!format!("{:?}", Settings { users: vec![user()], ..settings() }).contains("p\"w"));
    }
}
