//! A catalogue of many channels, of which a few are candidates for the model that is asked for; and a request's way from
//! its key and model to its first candidate, as the proxy goes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_domain::candidate::Candidate;
use waybill_domain::catalog::{Catalog, Snapshot};
use waybill_domain::needs::Needs;
use waybill_domain::selector::plan::{Manner, Moment, Plan};
use waybill_domain::selector::table::Row;
use waybill_event::config::{
    Capabilities, Channel, ChannelModel, CredentialRef, Group, Key, Limits, Policy, PolicyScope, RequestOverrides,
    SelectorOverrides, StoredHash,
};
use waybill_event::{Boot, ChannelId, GroupId, KeyId, LogTime};
use waybill_proxy::tables::Tables;
use waybill_proxy::views::Views;

/// The model that is asked for.
const MODEL: &str = "gpt-5";
/// How many channels share a model that nobody asks for.
const SHARED_BY: u64 = 10;

/// What a replica knows when a request comes.
pub struct World {
    snapshot: Snapshot,
    views: Views,
    tables: Tables,
    now: LogTime,
    needs: Needs,
}

struct Now<'a>(&'a Views);

impl Moment for Now<'_> {
    fn probe_free(&mut self, _: &Row) -> bool {
        true
    }

    fn in_flight(&self, row: &Row) -> u32 {
        self.0.of(row.source.source).in_flight()
    }
}

impl World {
    /// So many candidates among so many channels.
    pub fn of(candidates: u64, channels: u64) -> Self {
        let entries = (1..=channels.max(candidates)).map(|id| channel(id, id <= candidates, false));
        Self::with(entries.collect(), Needs::default())
    }

    /// So many candidates, of which every second one can't give what the request needs.
    pub fn half_unfit(candidates: u64) -> Self {
        let entries = (1..=candidates).map(|id| channel(id, true, id % 2 == 0));
        Self::with(entries.collect(), Needs { tools: true, ..Needs::default() })
    }

    fn with(channels: Vec<Channel>, needs: Needs) -> Self {
        let keyed = channels.into_iter().map(|channel| (channel.id, Arc::new(channel)));
        let groups = (1..=3).map(|id| (GroupId::new(id), Arc::new(group(id))));
        let keys = (1..=1_000).map(|id| (KeyId::new(id), Arc::new(key(id))));
        let scopes = [PolicyScope::Global, PolicyScope::Group { group: GroupId::new(1) }];
        let policies = scopes.into_iter().map(|scope| (scope.clone(), Arc::new(policy(scope))));
        let catalog = Catalog {
            channels: Arc::new(keyed.collect()),
            groups: Arc::new(groups.collect()),
            keys: Arc::new(keys.collect()),
            policies: Arc::new(policies.collect::<BTreeMap<_, _>>()),
            ..Catalog::default()
        };
        let Ok(name) = "bench".parse() else { unreachable!("a name like others") };
        let views = Views::new(name, Boot::new(LogTime::from_micros(1), 1), None);
        // The phase of the wheel is the same in every run.
        let tables = Tables::new(Arc::new(|| 7));
        Self { snapshot: Snapshot::of(catalog), views, tables, now: LogTime::from_micros(1_000_000), needs }
    }

    /// From key and model to a plan: authorise, resolve, find the numbers, plan under the tier's lock.
    pub fn plan(&self) -> Option<Plan> {
        let key = KeyId::new(500);
        let authorised = self.snapshot.authorise(key, &[MODEL], self.now).ok()?;
        let group = authorised.group.id;
        let resolved = self.snapshot.resolve(group, MODEL);
        let policy = self.snapshot.catalog().request_policy(group, resolved.route, Some(key));
        let target = resolved.targets.first()?;
        let abilities = self.snapshot.index().model(group, &target.model)?;
        let manner =
            Manner { strategy: policy.strategy, needs: self.needs, declared: target.capabilities, ..Manner::default() };
        let known = (&self.snapshot, &self.views, self.now);
        let by = (manner, policy.max_ejected_percent);
        let planned = self.tables.plan(known, (group, &target.model), abilities, by, &mut Now(&self.views));
        if let Some(first_use) = planned.first_use {
            first_use.recorded();
        }
        Some(planned.plan)
    }

    /// The same with the first candidate drawn.
    pub fn first(&self) -> Option<Candidate> {
        self.plan()?.next_candidate()
    }

    /// The same with at most so many candidates drawn; how many there were.
    pub fn drawn(&self, most: usize) -> usize {
        let Some(mut plan) = self.plan() else { return 0 };
        std::iter::from_fn(|| plan.next_candidate()).take(most).count()
    }

    /// The same with a table that is made for this plan alone.
    pub fn anew(&self) -> Option<Candidate> {
        self.views.touch();
        self.first()
    }
}

fn channel(id: u64, candidate: bool, unfit: bool) -> Channel {
    let model = if candidate { MODEL.to_owned() } else { format!("model-{}", id / SHARED_BY) };
    let capabilities = Capabilities { tools: unfit.then_some(false), ..Capabilities::default() };
    Channel {
        id: ChannelId::new(id),
        name: format!("channel-{id}"),
        provider: "openai".to_owned(),
        base_url: format!("https://upstream-{id}.test/v1"),
        base_url_revision: 1,
        credential: Some(CredentialRef { revision: 1, fingerprint: "f".to_owned() }),
        models: vec![ChannelModel { capabilities, ..ChannelModel::named(model) }],
        groups: vec![GroupId::new(if candidate { 1 } else { 1 + id % 3 })],
        priority: 10,
        weight: 1 + u32::try_from(id % 5).unwrap_or(0),
        limits: Limits::default(),
        multiplier_milli: 1_000,
        allow_private: false,
        probe: Default::default(),
        enabled: true,
        version: 1,
    }
}

fn group(id: u64) -> Group {
    Group { id: GroupId::new(id), name: format!("group-{id}"), enabled: true, version: 1 }
}

fn key(id: u64) -> Key {
    Key {
        id: KeyId::new(id),
        name: format!("key-{id}"),
        group: GroupId::new(1),
        prefix: "wb-".to_owned(),
        hash: StoredHash { pepper: "p".to_owned(), mac: format!("{id}") },
        models: Vec::new(),
        expires_at: None,
        limits: Default::default(),
        user_limits: Default::default(),
        enabled: true,
        version: 1,
    }
}

fn policy(scope: PolicyScope) -> Policy {
    Policy { scope, selector: SelectorOverrides::default(), request: RequestOverrides::default(), version: 1 }
}
