-- Preset relay: a table made for a relay that polls it. Its lease and retry
-- columns may stay as they are: walstream does not read them, and updates of a
-- row are not published.
CREATE TABLE outbox (
  id               bigserial   PRIMARY KEY,
  tenant_id        uuid        NOT NULL,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  payload          jsonb       NOT NULL,
  headers          jsonb       NOT NULL DEFAULT '{}',
  idempotency_key  text        UNIQUE,
  created_at       timestamptz NOT NULL DEFAULT now(),
  available_at     timestamptz NOT NULL DEFAULT now(),
  locked_until     timestamptz,
  attempt_count    int         NOT NULL DEFAULT 0,
  published_at     timestamptz,
  dead_lettered_at timestamptz,
  last_error       text
);
