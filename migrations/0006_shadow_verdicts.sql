-- What a candidate of rules would have said of an attempt, where it differs from what was said.
alter table attempts add column shadow jsonb;
create index attempts_by_shadow on attempts (day, request_id) where shadow is not null;
