\ir begin.sql
-- What a binding made under its own name in the instance's database belongs to the instance.
SELECT format('REASSIGN OWNED BY %I TO %I', rolname, :'owner') FROM pg_roles
WHERE starts_with(rolname::text, :'prefix') AND rolname <> :'owner' AND current_database() = :'db'
\gexec
SELECT format('DROP OWNED BY %I', rolname) FROM pg_roles WHERE starts_with(rolname::text, :'prefix')
\gexec
