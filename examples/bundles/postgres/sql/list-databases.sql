-- Where one of the roles owns or was granted something, as connection strings. This database is
-- always among them: what is shared by all databases is dropped from any of them.
SELECT format('dbname=''%s''', regexp_replace(d.datname, '([\\''])', '\\\1', 'g')) FROM pg_database d
WHERE d.datallowconn AND (d.datname = current_database() OR EXISTS (
    SELECT FROM pg_shdepend s JOIN pg_roles r ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid
    WHERE s.dbid = d.oid AND starts_with(r.rolname::text, :'prefix')));
