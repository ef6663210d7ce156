//! The conversation that a request belongs to, and what becomes of where it belongs once it is served.

use waybill_domain::selector::plan;
use waybill_event::traffic::{SessionBy, SessionRef};
use waybill_event::{GroupId, KeyId, Source, SourceKind};
use waybill_journal::sticky::{Bindings, SessionKey};
use waybill_wire::peek::Peek;

/// A request's conversation, as far as the client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub key: SessionKey,
    /// By what it was recognised.
    pub by: SessionBy,
}

impl Session {
    /// The conversation that a header or the body names, or that begins as this one does. Names are a client key's own:
    /// those of two keys are two conversations.
    #[must_use]
    pub fn of(group: GroupId, key: KeyId, header: Option<&str>, body: &Peek<'_>) -> Self {
        let own = key.get().to_be_bytes();
        if let Some(header) = header {
            return Self { key: SessionKey::of(group, &[b"header", &own, header.as_bytes()]), by: SessionBy::Header };
        }
        if let Some(field) = body.prompt_cache_key() {
            return Self { key: SessionKey::of(group, &[b"field", &own, field.as_bytes()]), by: SessionBy::Field };
        }
        // What begins alike shares the upstream's prompt cache, whoever asks.
        Self { key: SessionKey::of(group, &[b"beginning", body.beginning().as_bytes()]), by: SessionBy::Beginning }
    }

    /// The conversation as plans need it.
    #[must_use]
    pub fn planned(&self, bindings: &Bindings) -> plan::Session {
        plan::Session { number: self.key.number(), bound: bindings.of(&self.key) }
    }

    /// The conversation as events tell it.
    #[must_use]
    pub fn told(&self, home: Source, bound: bool) -> SessionRef {
        SessionRef { hash: self.key.hash(), by: self.by, home, bound }
    }
}

/// A request was served by `by`. Where its conversation belongs elsewhere it stays here from now on, unless that was only
/// full, or it is served by what no conversation stays with.
pub fn served(bindings: &Bindings, session: &Session, home: Source, by: Source, home_was_full: bool) {
    if by == home {
        bindings.hit(&session.key);
    } else if home_was_full || by.kind != SourceKind::Account {
        bindings.miss();
    } else {
        bindings.rebind(&session.key, by);
    }
}
