\ir begin.sql
\ir check-owner.sql
\if :missing
    DO $$ BEGIN RAISE invalid_catalog_name USING MESSAGE = 'the instance has no database'; END $$;
\endif
SELECT count(*) = 0 AS missing FROM pg_roles WHERE rolname = :'role'
\gset
\if :missing
    CREATE ROLE :"role" NOLOGIN;
\endif
GRANT :"owner" TO :"role";
-- Sessions act as the owner from the start, so that what they create belongs to the instance.
ALTER ROLE :"role" SET role TO :'owner';
-- Reads the password twice from standard input and sends only its hash, so that it is in no log
-- of the server either.
\password :"role"
ALTER ROLE :"role" LOGIN;
\echo :HOST
\echo :PORT
