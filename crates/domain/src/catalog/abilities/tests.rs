use proptest::prelude::*;
use waybill_event::ChannelId;
use waybill_event::config::{Channel, ChannelModel, CredentialRef, Limits};

use super::*;

fn channel(id: u64, models: &[&str], groups: &[u64], priority: i32) -> Arc<Channel> {
    Arc::new(Channel {
        id: ChannelId::new(id),
        name: format!("c{id}"),
        provider: "openai".to_owned(),
        base_url: "https://up.example".to_owned(),
        base_url_revision: 1,
        credential: Some(CredentialRef { revision: 1, fingerprint: "aa".to_owned() }),
        models: models.iter().map(|name| ChannelModel::named(*name)).collect(),
        groups: groups.iter().copied().map(GroupId::new).collect(),
        priority,
        weight: 1,
        limits: Limits::default(),
        multiplier_milli: 1_000,
        allow_private: false,
        probe: Default::default(),
        enabled: true,
        version: 1,
    })
}

#[test]
fn tiers_stand_highest_first_and_disabled_channels_stay() {
    let low = channel(1, &["m", "n"], &[1], 1);
    let mut high = Channel::clone(&channel(3, &["m"], &[1, 2], 9));
    high.enabled = false;
    let index = Index::of([low, channel(2, &["m"], &[1], 1), Arc::new(high)].map(SourceEntity::from));
    let abilities = index.model(GroupId::new(1), "m").unwrap();
    let seen: Vec<_> = abilities
        .tiers
        .iter()
        .map(|t| (t.priority, t.abilities.iter().map(|a| a.source.id).collect::<Vec<_>>()))
        .collect();
    assert_eq!(seen, [(9, vec![3]), (1, vec![1, 2])]);
    let models = |group| index.models_of(GroupId::new(group)).map(AsRef::as_ref).collect::<Vec<&str>>();
    assert_eq!(models(1), ["m", "n"]);
    assert!(models(2).is_empty(), "its only channel is disabled");
    assert_eq!(index.rows().filter(|row| !row.enabled).count(), 2);
}

#[test]
fn an_edit_shares_everything_it_does_not_touch() {
    let [a, b] = [channel(1, &["m"], &[1], 0), channel(2, &["n"], &[1], 0)].map(SourceEntity::from);
    let before = Index::of([a, b.clone()]);
    let mut after = before.clone();
    after.update(Some(&b), Some(&channel(2, &["n"], &[1], 5).into()));
    let group = GroupId::new(1);
    assert!(Arc::ptr_eq(before.model(group, "m").unwrap(), after.model(group, "m").unwrap()));
    assert_eq!(before.model(group, "n").unwrap().tiers[0].priority, 0);
    assert_eq!(after.model(group, "n").unwrap().tiers[0].priority, 5);
}

fn any_channel() -> impl Strategy<Value = Option<Channel>> {
    let models = prop::collection::vec(prop::sample::select(vec!["m", "n", "o"]), 0..4);
    let groups = prop::collection::vec(1..4_u64, 0..4);
    let fields = (1..5_u64, models, groups, -1..2_i32, any::<bool>(), any::<bool>());
    fields.prop_map(|(id, models, groups, priority, enabled, deleted)| {
        (!deleted || enabled).then(|| Channel { enabled, ..Channel::clone(&channel(id, &models, &groups, priority)) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_index_kept_up_equals_the_index_made_anew(edits in prop::collection::vec((1..5_u64, any_channel()), 0..24)) {
        let mut channels: BTreeMap<u64, SourceEntity> = BTreeMap::new();
        let mut index = Index::default();
        for (id, edit) in edits {
            let new = edit.map(|state| SourceEntity::from(Arc::new(Channel { id: ChannelId::new(id), ..state })));
            let old = match &new {
                Some(new) => channels.insert(id, new.clone()),
                None => channels.remove(&id),
            };
            index.update(old.as_ref(), new.as_ref());
            prop_assert_eq!(&index, &Index::of(channels.values().cloned()));
        }
        let mut rows: Vec<_> = index.rows().collect();
        let mut expected: Vec<_> = channels.values().flat_map(rows_of).collect();
        rows.sort();
        expected.sort();
        prop_assert_eq!(rows, expected);
    }
}
