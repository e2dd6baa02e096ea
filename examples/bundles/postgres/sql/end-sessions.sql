SELECT count(pg_terminate_backend(pid, 10000)) AS ended FROM pg_stat_activity
WHERE starts_with(usename::text, :'prefix')
\gset
