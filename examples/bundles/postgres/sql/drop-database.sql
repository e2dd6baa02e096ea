\ir begin.sql
\ir check-owner.sql
\if :missing
\else
    DROP DATABASE :"db" WITH (FORCE);
\endif
