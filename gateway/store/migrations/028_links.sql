-- compatible with: 16
-- Links of settled rows by hash (gateway/store/log/links.py). Rows of earlier releases are in none:
-- where there are some, `linked_since` is set while the gateway runs.

CREATE TABLE links (
    day BIGINT NOT NULL,
    writer TEXT NOT NULL,
    number BIGINT NOT NULL,
    written_at BIGINT NOT NULL,
    previous TEXT NOT NULL,
    rows_digest TEXT NOT NULL,
    ids TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (day, writer, number)
) {without_rowid};

CREATE INDEX links_opening ON links (day, writer) WHERE number = 1;

INSERT INTO settings (name, value)
SELECT 'linked_since', '' WHERE EXISTS (SELECT 1 FROM requests);
