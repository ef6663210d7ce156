-- Tables folded from the log. Nothing here is a source of truth: all of it can be folded again.
-- Positions of the traffic stream are texts `generation/shard/sequence/index`; sources are texts `channel:42`.

-- How far each projection has folded, under which epoch, and which events it has had.
create table checkpoints (
    projection text primary key,
    version integer not null,
    epoch bigint not null,
    -- Sequence of the last message folded.
    position bigint not null,
    -- Marks of producers, see the fold.
    dedup jsonb not null,
    -- When the log took that message.
    stored_at timestamptz
);

-- Events that are in no table: of unknown type, malformed, or refused for their content.
create table unprojectable (
    projection text not null,
    sequence bigint not null,
    index integer not null,
    -- `unknown`, `malformed` or `refused`.
    why text not null,
    detail text not null,
    event text not null,
    stored_at timestamptz not null,
    primary key (projection, sequence, index)
);

-- Configuration.

create table sources (
    source text primary key,
    name text not null,
    provider text not null,
    base_url text not null,
    base_url_revision bigint not null,
    credential_revision bigint,
    credential_fingerprint text,
    models jsonb not null,
    groups jsonb not null,
    priority integer not null,
    weight integer not null,
    max_concurrent integer,
    requests_per_minute integer,
    multiplier_milli integer not null,
    allow_private boolean not null,
    enabled boolean not null,
    deleted boolean not null,
    version bigint not null,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    position bigint not null
);

create table groups (
    group_id bigint primary key,
    name text not null,
    enabled boolean not null,
    deleted boolean not null,
    version bigint not null,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    position bigint not null
);

create table keys (
    key_id bigint primary key,
    name text not null,
    group_id bigint not null,
    prefix text not null,
    pepper text not null,
    models jsonb not null,
    expires_at timestamptz,
    enabled boolean not null,
    deleted boolean not null,
    version bigint not null,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    position bigint not null
);

create table abilities (
    group_id bigint not null,
    model text not null,
    source text not null,
    upstream_model text not null,
    priority integer not null,
    weight integer not null,
    enabled boolean not null,
    has_credential boolean not null,
    position bigint not null,
    primary key (group_id, model, source)
);
create index abilities_by_source on abilities (source);

create table config_history (
    position bigint primary key,
    event_id text not null,
    entity text not null,
    entity_id text not null,
    version bigint not null,
    change text not null,
    changed jsonb not null,
    actor_kind text,
    actor_id bigint,
    actor_name text,
    reason text,
    at timestamptz not null,
    state jsonb not null
);
create index config_history_by_entity on config_history (entity, entity_id, position);

-- Traffic, by day. A request's day is the one its id tells. The default partitions take what no day's partition does.

create table requests (
    day date not null,
    request_id uuid not null,
    state text not null,
    key_id bigint,
    group_id bigint,
    protocol text,
    client_model text,
    model text,
    stream boolean,
    body_bytes bigint,
    deadline_ms bigint,
    table_hash text,
    candidates jsonb not null,
    candidate_count integer,
    skips jsonb not null,
    client_retry integer,
    client_request_id text,
    config bigint,
    replica text,
    boot text,
    admitted_at timestamptz,
    admitted_position text,
    admitted_rn integer,
    status integer,
    error text,
    served_source text,
    served_rev bigint,
    served_model text,
    attempts integer,
    fallback text,
    degraded boolean,
    last_skips jsonb not null,
    usage_from text,
    prompt_tokens bigint,
    completion_tokens bigint,
    cached_tokens bigint,
    reasoning_tokens bigint,
    first_content_ms integer,
    took_ms integer,
    maybe_billed boolean,
    finished_at timestamptz,
    finished_position text,
    finished_rn integer,
    primary key (day, request_id)
) partition by range (day);
create table requests_default partition of requests default;
-- A request's id tells its time, so that order by id is order by time.
create index requests_by_key on requests (key_id, day, request_id);
create index requests_by_group on requests (group_id, day, request_id);
create index requests_by_model on requests (model, day, request_id);
create index requests_by_state on requests (state, day, request_id);
create index requests_by_client_request_id on requests (client_request_id) where client_request_id is not null;

create table attempts (
    day date not null,
    request_id uuid not null,
    attempt integer not null,
    source text not null,
    source_rev bigint not null,
    model text not null,
    upstream_model text not null,
    why text,
    priority integer,
    place integer,
    skips jsonb not null,
    credential_revision bigint,
    timeout_ms bigint,
    started_at timestamptz,
    started_position text,
    started_rn integer,
    kind text,
    rule text,
    status integer,
    first_content_ms integer,
    took_ms integer,
    sent text,
    maybe_billed boolean,
    next text,
    evidence jsonb,
    upstream_request_id text,
    finished_at timestamptz,
    finished_position text,
    finished_rn integer,
    primary key (day, request_id, attempt)
) partition by range (day);
create table attempts_default partition of attempts default;
create index attempts_by_source on attempts (source, day, request_id);

create table outcomes (
    day date not null,
    request_id uuid not null,
    source text not null,
    source_rev bigint not null,
    upstream_model text not null,
    kind text not null,
    source_health text not null,
    model_health text not null,
    latency_ms integer,
    block jsonb,
    attempts integer not null,
    credential_revision bigint not null,
    base_url_revision bigint not null,
    probe boolean not null,
    prompt_tokens bigint,
    completion_tokens bigint,
    cached_tokens bigint,
    reasoning_tokens bigint,
    at timestamptz not null,
    position text not null,
    rn integer not null,
    primary key (day, request_id, source)
) partition by range (day);
create table outcomes_default partition of outcomes default;

create table transitions (
    id text primary key,
    kind text not null,
    subject text not null,
    source text not null,
    model text,
    cause text,
    cause_position text,
    since timestamptz not null,
    until timestamptz,
    detail jsonb not null,
    producer text not null,
    at timestamptz not null,
    position text not null
);
create index transitions_by_source on transitions (source, since);

create table selection_tables (
    hash text primary key,
    group_id bigint not null,
    model text not null,
    as_of timestamptz not null,
    content jsonb not null,
    producer text not null,
    position text not null
);
