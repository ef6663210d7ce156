-- Requests whose owner is lost: a provisional end, until a real one is there.
alter table requests
    add column lost_why text,
    add column lost_at timestamptz,
    add column lost_position text;
-- What is open, by its owner: asked when a boot's outbox was drained, and now and then for boots that are silent.
create index requests_open on requests (replica, boot, request_id) where state = 'open';
