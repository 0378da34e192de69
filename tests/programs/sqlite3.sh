# sqlite3 with tables, indices, joins, aggregates, text and JSON, a rollback, a check of the file.
# packages: sqlite3
# also: harden
# version: sqlite3 --version
. "$(dirname "$0")/on.sh"

cat > script.sql <<'SQL'
PRAGMA cache_size = 4000;
CREATE TABLE item(id INTEGER PRIMARY KEY, word TEXT, amount REAL, kind INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO item SELECT i, printf('%08x word %d', (i * 2654435761) % 4294967296, i % 1000),
        i * 0.25, i % 37 FROM n;
CREATE INDEX by_word ON item(word);
CREATE INDEX by_kind ON item(kind, amount);
SELECT count(*), sum(amount), min(word), max(word) FROM item;
SELECT kind, count(*), avg(amount), group_concat(substr(word, 1, 2), '') FROM item
    WHERE id % 50 = 0 GROUP BY kind;
SELECT a.id, b.id FROM item a JOIN item b ON b.id = a.id + a.kind AND b.kind = 0
    WHERE a.word LIKE '%word 77%' ORDER BY a.word;
SELECT json_group_array(json_object('id', id, 'word', word)) FROM item WHERE kind = 5 AND id < 5000;
BEGIN;
UPDATE item SET word = upper(word) || hex(randomblob(0)) WHERE id % 3 = 0;
DELETE FROM item WHERE kind > 20;
SELECT count(*), sum(length(word)) FROM item;
ROLLBACK;
SELECT count(*), sum(length(word)) FROM item;
SELECT word, row_number() OVER (PARTITION BY kind ORDER BY amount DESC) AS place FROM item
    WHERE id < 3000 ORDER BY kind, place;
VACUUM;
PRAGMA integrity_check;
SQL
on sqlite3 test.db < script.sql > output
wc -l < output
digest < output
tail -n 1 output
on sqlite3 test.db .dump | digest
on sqlite3 :memory: < script.sql | digest
