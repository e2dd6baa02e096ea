\ir begin.sql
-- The server reads the request (psql quotes it): no JSON parser is needed here. What is not ASCII
-- is of no use for the plan, and the server's encoding might not have it.
\set request `tr -c '\t\n\r -~' '?' <"$EVENKEEL_REQUEST"`
SELECT format('ALTER DATABASE %I CONNECTION LIMIT %s', :'db',
              coalesce((:'request'::json #>> '{plan,values,connection_limit}')::int, -1))
\gexec
