CREATE TABLE outboxevent (
  event_id uuid PRIMARY KEY,
  kind     varchar(255) NOT NULL,
  entity   varchar(255) NOT NULL,
  type     varchar(255) NOT NULL,
  body     jsonb,
  region   text,
  version  int NOT NULL
);
