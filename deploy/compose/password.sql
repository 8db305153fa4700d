-- The role of sql/publication.sql has no password of its own. This one is for
-- the compose file only, whose ports are bound to this machine.
ALTER ROLE walstream PASSWORD 'walstream';
