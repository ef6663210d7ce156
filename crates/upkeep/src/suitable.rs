//! Which of a source's models a probe asks: one that an operator names, else those that look like models for chat.

use waybill_domain::catalog::SourceEntity;

/// Words in names of models that don't chat.
const OTHERWISE: [&str; 22] = [
    "embed",
    "image",
    "dall-e",
    "whisper",
    "tts",
    "audio",
    "realtime",
    "moderation",
    "rerank",
    "transcri",
    "speech",
    "sora",
    "video",
    "flux",
    "diffusion",
    "sdxl",
    "midjourney",
    "imagen",
    "veo-",
    "-ocr",
    "bge-",
    "voice",
];

/// The upstream names of the models to ask, the first first. Each further try begins with another one.
pub(crate) fn models(entity: &SourceEntity, tries: u32) -> Vec<&str> {
    let named = entity.probe().model.as_deref();
    if let Some(model) = entity.models().iter().find(|model| named == Some(model.name.as_str())) {
        return vec![model.upstream_name()];
    }
    let (mut chat, other): (Vec<&str>, Vec<&str>) =
        entity.models().iter().map(|model| model.upstream_name()).partition(|name| chats(name));
    let turn = usize::try_from(tries.saturating_sub(1)).unwrap_or(0);
    if !chat.is_empty() {
        let turn = turn % chat.len();
        chat.rotate_left(turn);
        chat.extend(other);
        return chat;
    }
    let mut other = other;
    let turn = turn % other.len().max(1);
    other.rotate_left(turn);
    other
}

fn chats(name: &str) -> bool {
    let name = name.to_lowercase();
    !OTHERWISE.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use waybill_event::ChannelId;
    use waybill_event::config::{Channel, ChannelModel, Limits, ProbeSettings};

    use super::*;

    fn entity(channel: Channel) -> SourceEntity {
        std::sync::Arc::new(channel).into()
    }

    fn channel(models: &[&str], probe: Option<&str>) -> Channel {
        Channel {
            id: ChannelId::new(1),
            name: "a".to_owned(),
            provider: "openai".to_owned(),
            base_url: "http://a.test".to_owned(),
            base_url_revision: 1,
            credential: None,
            models: models.iter().map(|name| ChannelModel::named(*name)).collect(),
            groups: Vec::new(),
            priority: 0,
            weight: 1,
            limits: Limits::default(),
            multiplier_milli: 1_000,
            allow_private: false,
            probe: ProbeSettings { model: probe.map(str::to_owned), ..ProbeSettings::default() },
            enabled: true,
            version: 1,
        }
    }

    #[test]
    fn what_does_not_chat_comes_last() {
        let check = |given: &[&str], tries: u32, expected: &[&str]| {
            assert_eq!(models(&entity(channel(given, None)), tries), expected, "{given:?}, {tries}");
        };
        check(
            &["dall-e-3", "small", "text-embedding-3", "large"],
            1,
            &["small", "large", "dall-e-3", "text-embedding-3"],
        );
        check(&["dall-e-3", "small", "large"], 2, &["large", "small", "dall-e-3"]);
        check(&["dall-e-3", "gpt-image-1"], 2, &["gpt-image-1", "dall-e-3"]);
        check(&[], 3, &[]);
    }

    #[test]
    fn a_model_that_is_named_is_asked_alone() {
        let mut given = channel(&["dall-e-3", "small", "large"], Some("large"));
        assert_eq!(models(&entity(given.clone()), 7), ["large"]);
        given.probe.model = Some("gone".to_owned());
        assert_eq!(models(&entity(given), 1), ["small", "large", "dall-e-3"]);
    }
}
