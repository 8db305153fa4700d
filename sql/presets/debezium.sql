-- Preset debezium: the table of Debezium's outbox event router. The last column
-- is that of its Quarkus extension, and may be missing.
CREATE TABLE outbox (
  id                 uuid         PRIMARY KEY,
  aggregatetype      varchar(255) NOT NULL,
  aggregateid        varchar(255) NOT NULL,
  type               varchar(255) NOT NULL,
  payload            jsonb,
  tracingspancontext varchar(256)
);
