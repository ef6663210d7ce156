//! Showing answers: lines, tables, JSON.

use std::io::{self, StdoutLock, Write};

use serde_json::Value;

/// Standard output.
pub(crate) struct Out {
    stdout: StdoutLock<'static>,
}

impl Out {
    pub(super) fn new() -> Self {
        Self { stdout: io::stdout().lock() }
    }

    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.stdout, "{text}")?;
        self.stdout.flush()
    }

    pub(super) fn json(&mut self, value: &Value) -> io::Result<()> {
        self.line(&format!("{value:#}"))
    }

    /// A table, or `nothing` where it has no rows.
    pub(super) fn table(&mut self, table: &Table, nothing: &str) -> io::Result<()> {
        if table.rows.is_empty() { self.line(nothing) } else { self.line(&table.render()) }
    }
}

/// Columns that are as wide as their widest cell.
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn render(&self) -> String {
        let head: Vec<String> = self.head.iter().map(|name| (*name).to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(&self.rows).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let line = |cells: &&Vec<String>| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// A value in words: texts without quotes, lists with commas, sources as `channel:1`, nothing as `-`.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => match (fields.get("kind").and_then(Value::as_str), fields.get("id")) {
            (Some(kind), Some(Value::Number(id))) if fields.len() == 2 => format!("{kind}:{id}"),
            _ => value.to_string(),
        },
        Value::Number(_) => value.to_string(),
    }
}

/// A member in words.
pub(super) fn member(value: &Value, name: &str) -> String {
    plain(value.get(name).unwrap_or(&Value::Null))
}

/// A member further inside in words; `pointer` is a JSON pointer.
pub(super) fn inner(value: &Value, pointer: &str) -> String {
    plain(value.pointer(pointer).unwrap_or(&Value::Null))
}

/// The list that a member is; nothing where it is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What an edit brought, in a line.
pub(super) fn edited(answer: &Value, entity: &str, done: &str) -> String {
    let what =
        format!("{entity} {} ({})", inner(answer, &format!("/{entity}/id")), inner(answer, &format!("/{entity}/name")));
    let position = member(answer, "position");
    if answer.get("changed") == Some(&Value::Bool(false)) {
        return format!("{what}: nothing to change, as of position {position}");
    }
    let version = inner(answer, &format!("/{entity}/version"));
    let readable = if answer.get("readable") == Some(&Value::Bool(true)) { "" } else { "; not in the read model yet" };
    format!("{what} {done}, version {version}, at position {position}{readable}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must() {
        let mut table = Table::new(&["name", "weight"]);
        table.row(["größer".to_owned(), "1".to_owned()]);
        table.row(["a".to_owned(), plain(&json!(null))]);
        assert_eq!(table.render(), "name    weight\ngrößer  1\na       -");
    }

    #[test]
    fn values_are_told_in_words() {
        let check = |value: Value, expected: &str| assert_eq!(plain(&value), expected);
        check(json!({"kind": "channel", "id": 7}), "channel:7");
        check(json!({"kind": "channel", "id": 7, "rev": 1}), r#"{"kind":"channel","id":7,"rev":1}"#);
        check(json!([true, null, "a"]), "yes, -, a");
        check(json!([]), "-");
    }

    #[test]
    fn an_edit_is_told_in_a_line() {
        let answer = json!({"position": 7, "readable": false, "changed": true,
            "channel": {"id": 1, "name": "a", "version": 2}});
        let told = edited(&answer, "channel", "edited");
        assert_eq!(told, "channel 1 (a) edited, version 2, at position 7; not in the read model yet");
    }
}
