-- walstream: the role that streams, with what it needs and nothing else. For a
-- table of your own; sql/publication.sql makes the same role beside ours.
--
--   psql -d bank -f sql/role.sql
--
-- Run it in the database of the outbox, as a superuser or as whoever may make
-- roles with REPLICATION. It is one transaction; again, it changes nothing.
-- Afterwards give the role a password, which psql sends encrypted (or let it log
-- in by a certificate: its CN is the role's name):
--
--   \password walstream
--
-- What each right is for, and what happens without it. `walstream check` names a
-- missing one with the statement that grants it.
--
--   LOGIN, REPLICATION   the stream, and making the slot. Without it nothing works.
--                        REPLICATION reads the WAL of the whole server, and takes
--                        backups: guard the password as you would a superuser's, and
--                        let pg_hba.conf admit the role from its own hosts only.
--   CONNECT              the ordinary session beside the stream. PUBLIC has it unless
--                        somebody has revoked it.
--   pg_read_all_stats    says who holds the slot or delays it, and that walstream is no
--                        synchronous standby. Without it walstream works, and says less.
--
-- Not granted, because streaming does without: SELECT on any table, USAGE on any
-- schema, ownership, CREATE. Two things take more, once or where it is asked for:
--
--   the publication      the table's owner makes it (CREATE on the database); walstream
--                        check prints the statement. A role that owns the table makes
--                        its publication itself.
--   reading the table    --snapshot initial|only, walstream audit, replay and prune:
--                          GRANT USAGE ON SCHEMA public TO walstream;
--                          GRANT SELECT ON public.outbox TO walstream;
--                        beside that, only where they are set, or for walstream prune:
--                        --retention:        GRANT DELETE ON public.outbox TO walstream;
--                        --stamp:            GRANT UPDATE (published_at) ON public.outbox TO walstream;
--                        --drop-partitions:  GRANT <the table's owner> TO walstream;

BEGIN;

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

COMMIT;
