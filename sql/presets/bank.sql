-- Preset bank: topic, key and raw payload stand in columns.
CREATE TABLE outbox (
  id           bigserial   PRIMARY KEY,
  aggregate_id uuid        NOT NULL,
  topic        text        NOT NULL,
  key          bytea,
  payload      bytea       NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now()
);
