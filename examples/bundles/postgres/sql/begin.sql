-- A psql that is killed does not stop the statement that it sent. Whatever an earlier attempt
-- left running is ended before this one starts, or this one is tried again later. Only older
-- sessions: what is left running may be this very statement, and must not end its successor.
SELECT count(pg_terminate_backend(pid, 10000)) AS ended FROM pg_stat_activity
WHERE application_name = current_setting('application_name')
  AND usename = session_user AND pid <> pg_backend_pid()
  AND backend_start < (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
\gset
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_stat_activity
               WHERE application_name = current_setting('application_name')
                 AND usename = session_user AND pid <> pg_backend_pid()) THEN
        RAISE object_in_use USING MESSAGE = 'an earlier attempt still runs on the server';
    END IF;
END $$;
