CREATE EXTENSION IF NOT EXISTS hstore;
CREATE TYPE severity AS ENUM ('low', 'high');
CREATE TABLE notices (
  no       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  uid      uuid        NOT NULL,
  class    text        NOT NULL,
  subject  inet        NOT NULL,
  severity severity    NOT NULL,
  body     text,
  meta     hstore,
  shard    int,
  happened timestamptz
);
