-- Preset events: an event id of its own, and an idempotency key that consumers
-- deduplicate by.
CREATE TABLE outbox (
  outbox_id       bigserial PRIMARY KEY,
  event_id        uuid      NOT NULL,
  topic           text      NOT NULL,
  key             text,
  payload         jsonb     NOT NULL,
  idempotency_key text      UNIQUE,
  processed_at    timestamptz,
  locked_until    timestamptz,
  retry_count     int       NOT NULL DEFAULT 0
);
