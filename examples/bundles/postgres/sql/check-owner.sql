-- :missing: there is no database of that name. One that is not ours stops the action.
SELECT count(*) = 0 AS missing, count(*) FILTER (WHERE r.rolname IS DISTINCT FROM :'owner') > 0 AS foreign
FROM pg_database d LEFT JOIN pg_roles r ON r.oid = d.datdba WHERE d.datname = :'db'
\gset
\if :foreign
    DO $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'the database belongs to another role'; END $$;
\endif
