-- A route may ask one source for two of its models: an outcome is one request's word about one model at one source.
alter table outcomes drop constraint outcomes_pkey;
alter table outcomes add primary key (day, request_id, source, upstream_model);
