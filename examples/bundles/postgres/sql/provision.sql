\ir begin.sql
SELECT count(*) = 0 AS missing FROM pg_roles WHERE rolname = :'owner'
\gset
\if :missing
    CREATE ROLE :"owner" NOLOGIN;
\endif
-- An administrator who is no superuser makes things in the name of the roles that he belongs to.
SELECT format('GRANT %I TO CURRENT_USER', :'owner') WHERE NOT pg_has_role(:'owner', 'USAGE')
\gexec

\ir check-owner.sql
\if :missing
    -- template0: nobody can be connected to it, which would make this fail.
    CREATE DATABASE :"db" OWNER :"owner" TEMPLATE template0;
\endif
REVOKE ALL ON DATABASE :"db" FROM PUBLIC;

-- For the server's administrators. ASCII only, whatever the id and the server's encoding are.
\set id `printf '%s' "$EVENKEEL_INSTANCE_ID" | tr -c ' -~' '?'`
SELECT format('COMMENT ON DATABASE %I IS %L', :'db', 'service instance ' || :'id')
\gexec
