-- walstream: an outbox table, the role that streams it, and its publication.
--
--   psql -d bank -f sql/publication.sql
--
-- Run it as the owner of the database who may make roles with REPLICATION, or as
-- a superuser. It is one transaction, and running it again changes nothing. It
-- needs PostgreSQL 15 to 18 and wal_level = logical, which takes a restart:
--
--   ALTER SYSTEM SET wal_level = 'logical';
--
-- Afterwards give the role a password, which psql sends encrypted and leaves in
-- no file, and look whether anything is missing:
--
--   \password walstream
--   PGUSER=walstream PGDATABASE=bank walstream check --slot bank_outbox_slot
--
-- There is no replication slot in here. walstream makes it at its first start,
-- after it has written its first checkpoint: a slot that comes without one is
-- refused, since nobody could tell what of it was published already. And a slot
-- that nobody reads keeps the server from removing WAL until the disk is full.

BEGIN;

-- 1. The table. The application inserts an event in the transaction that changes
--    its own tables: both are committed, or neither is.
--
--    id              names the row in messages and orders it for people
--    event_id        what consumers deduplicate by: header walstream-event-id
--    aggregate_type  what the event is about ("account"), and part of the topic
--                    where topic is NULL: outbox.event.<aggregate_type>
--    aggregate_id    which one ("acc-7"), and the record's key where key is NULL:
--                    the events of one aggregate keep their order
--    event_type      what happened ("deposited"): header event_type
--    topic, key      say otherwise than the defaults above
--    payload         the record's value, byte for byte
--    headers         a JSON object; each member becomes a header
--
--    Why event_id with a default, and not UNIQUE (aggregate_id, topic, key)? With
--    the aggregate's id as the key, such a constraint lets an aggregate have one
--    event for ever: the second deposit of an account is refused, or, behind ON
--    CONFLICT DO NOTHING, lost without a word. What has to be unique is the event.
--    A service that may retry an INSERT chooses the event_id itself, before the
--    first try; every other one leaves it to the default.
CREATE TABLE IF NOT EXISTS public.outbox (
  id             bigserial   PRIMARY KEY,
  event_id       uuid        NOT NULL UNIQUE DEFAULT gen_random_uuid(),
  aggregate_type text        NOT NULL,
  aggregate_id   text        NOT NULL,
  event_type     text        NOT NULL,
  topic          text,
  key            text,
  payload        bytea       NOT NULL,
  headers        jsonb       NOT NULL DEFAULT '{}',
  created_at     timestamptz NOT NULL DEFAULT now()
);
-- The application needs no more than this on it:
--
--   GRANT INSERT ON public.outbox TO bank_app;
--   GRANT USAGE ON SEQUENCE public.outbox_id_seq TO bank_app;
--
-- Old rows may be deleted at any time; they are published from the WAL, where
-- they stay until they are.

-- 2. The role. REPLICATION lets it read the WAL of a slot; it reads no table, so
--    it is granted none. pg_read_all_stats lets it say who holds its slot or
--    delays it, and see that it is no synchronous standby. Mind that REPLICATION
--    is a right over the whole server, for backups too: keep the password as you
--    would a superuser's, and let pg_hba.conf admit the role from its own hosts.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'walstream') THEN
    CREATE ROLE walstream LOGIN REPLICATION;
  END IF;
  IF NOT pg_has_role('walstream', 'pg_read_all_stats', 'USAGE') THEN
    GRANT pg_read_all_stats TO walstream;
  END IF;
  IF NOT has_database_privilege('walstream', current_database(), 'CONNECT') THEN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO walstream', current_database());
  END IF;
END
$$;

-- 3. The publication. Inserts only: updates and deletes of outbox rows never
--    leave the server. The columns are those that walstream maps; it is the same
--    publication that walstream would make by itself, had it the rights (the
--    table's ownership, and CREATE on the database). One that exists under this
--    name is left as it is.
--
--    PostgreSQL refuses to drop or retype a column while a publication lists it
--    ("cannot alter type of a column used by a publication WHERE clause"): good
--    luck, mostly. Where it is meant, it takes one transaction:
--
--      BEGIN;
--      ALTER PUBLICATION bank_outbox_pub SET TABLE public.outbox;
--      ALTER TABLE public.outbox ALTER payload TYPE jsonb USING ...;
--      ALTER PUBLICATION bank_outbox_pub SET TABLE public.outbox (id, ...);
--      COMMIT;
--
--    The name follows from the slot's: bank_outbox_slot reads bank_outbox_pub.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'bank_outbox_pub') THEN
    CREATE PUBLICATION bank_outbox_pub
      FOR TABLE public.outbox (id, event_id, aggregate_type, aggregate_id, event_type, topic, key, payload, headers)
      WITH (publish = 'insert', publish_via_partition_root = true);
  END IF;
END
$$;

COMMIT;
