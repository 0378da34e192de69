# PostgreSQL: initdb, pgbench with 8 clients, parallel queries, JSON, sorts, dump, restore, vacuum.
# packages: postgresql-15 postgresql-contrib util-linux
# also: check harden
# version: /usr/lib/postgresql/15/bin/postgres --version
# timeout: 600
# when: long
. "$(dirname "$0")/on.sh"

# It does not run as root: another user gets an accessible directory and a copy of the library.
export PATH=/usr/lib/postgresql/15/bin:$PATH
place=$(mktemp -d)
mkdir "$place/base"
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    chmod 755 "$place"
    chown nobody:nogroup "$place/base"
fi
if [ -n "$LIBRARY" ]; then
    cp "$LIBRARY" "$place/"
    LIBRARY=$place/$(basename "$LIBRARY")
fi
cd "$place/base"
export HOME=$PWD PGHOST=$PWD PGDATABASE=postgres PGUSER=tester PGDATA=$PWD/data
trap '"${as[@]}" pg_ctl -m immediate stop > /dev/null 2>&1 || true; rm -rf "$place"' EXIT

on "${as[@]}" initdb --no-sync --auth=trust --username=tester --locale=C.UTF-8 > "$place/initdb.log"
{
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$PWD'"
    echo 'fsync = off'
    echo 'shared_buffers = 32MB'
    echo 'work_mem = 1MB'
    echo 'min_parallel_table_scan_size = 0'
    echo 'parallel_setup_cost = 0'
    echo 'parallel_tuple_cost = 0'
} >> data/postgresql.conf
on "${as[@]}" pg_ctl -w -t 120 -l server.log start > "$place/start.log" ||
    { cat server.log; exit 1; }

on pgbench -q -i -s 2 2> /dev/null > "$place/init.log"
on pgbench -n -c 8 -j 2 -t 100 2> /dev/null | grep -E '^number of (clients|transactions)'
on pgbench -n -c 4 -j 2 -t 200 -S -M prepared 2> /dev/null | grep -E '^number of failed'
on psql -q -A -t -v ON_ERROR_STOP=1 2> "$place/psql.err" <<'SQL'
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers);
SELECT count(*) FROM pgbench_history;
CREATE TABLE item AS SELECT i AS id, md5(i::text) AS word, i % 97 AS kind,
    jsonb_build_object('a', i, 'b', ARRAY[i, i * 2]) AS doc
    FROM generate_series(1, 60000) AS i;
CREATE INDEX ON item(word);
CREATE INDEX ON item USING gin(doc);
ANALYZE item;
SELECT kind, count(*), md5(string_agg(word, ',' ORDER BY word)) FROM item
    GROUP BY kind ORDER BY kind LIMIT 5;
SELECT count(*) FROM item WHERE doc @> '{"a": 777}';
SELECT count(*), sum(length(a.word || b.word)) FROM item a JOIN item b ON b.id = a.id + a.kind;
SELECT md5(string_agg(word, '' ORDER BY word DESC)) FROM item;
SELECT regexp_replace(word, '[a-f]+', '_', 'g') FROM item WHERE id = 500;
WITH RECURSIVE t(n, s) AS (
    SELECT 1, 1::numeric UNION ALL SELECT n + 1, s * (n + 1) FROM t WHERE n < 200
) SELECT md5(max(s)::text) FROM t;
CREATE FUNCTION collatz(n bigint) RETURNS int LANGUAGE plpgsql AS $$
    DECLARE c int := 0;
    BEGIN
        WHILE n > 1 LOOP
            n := CASE WHEN n % 2 = 0 THEN n / 2 ELSE 3 * n + 1 END; c := c + 1;
        END LOOP;
        RETURN c;
    END $$;
SELECT max(collatz(i)) FROM generate_series(1, 500) AS i;
UPDATE item SET word = upper(word) WHERE kind < 10;
DELETE FROM item WHERE kind > 90;
VACUUM FULL item;
SQL
cat "$place/psql.err" >&2
on pg_dump -t item 2> /dev/null | grep -v -E '^\\(un)?restrict|^--' > "$place/dump.sql"
on createdb second 2> /dev/null
on psql -q -d second -f "$place/dump.sql" > /dev/null 2>&1
on psql -q -A -t -d second 2> /dev/null \
    -c "SELECT count(*), md5(string_agg(word, '' ORDER BY id)) FROM item"
on "${as[@]}" pg_ctl -w -m fast stop > "$place/stop.log"
# A fast stop may end a server process whose client has left, "due to administrator command".
grep -E 'PANIC|FATAL|terminated by signal' server.log |
    grep -v 'administrator command' > fatal.log || true
cat fatal.log >&2
wc -l < fatal.log
