\ir begin.sql
-- No new sessions, then no sessions.
SELECT format('ALTER ROLE %I NOLOGIN', rolname) FROM pg_roles
WHERE starts_with(rolname::text, :'prefix') AND rolcanlogin
\gexec
-- Needed to end their sessions and drop what they own, unless a superuser is at work.
SELECT format('GRANT %I TO CURRENT_USER', rolname) FROM pg_roles
WHERE starts_with(rolname::text, :'prefix') AND NOT pg_has_role(oid, 'USAGE')
\gexec
\ir end-sessions.sql
