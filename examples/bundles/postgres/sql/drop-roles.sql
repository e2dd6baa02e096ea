\ir begin.sql
-- Once more: a login may have been half-way when the roles were retired.
\ir end-sessions.sql
SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE starts_with(rolname::text, :'prefix')
\gexec
