-- The request log by day: each table is partitioned by the range of its ids, which begin with the time.
-- Nothing refers to a row, so that a day can be dropped without looking at any other. No release has
-- written these tables on a server, so they have no rows.

ALTER TABLE attempts DROP CONSTRAINT attempts_request_id_fkey;
ALTER TABLE searches DROP CONSTRAINT searches_request_id_fkey;
ALTER TABLE requests ALTER COLUMN id TYPE TEXT COLLATE "C";
ALTER TABLE attempts ALTER COLUMN request_id TYPE TEXT COLLATE "C";
ALTER TABLE searches ALTER COLUMN request_id TYPE TEXT COLLATE "C";

CREATE TABLE partitioned (LIKE requests INCLUDING DEFAULTS) PARTITION BY RANGE (id);
DROP TABLE requests;
ALTER TABLE partitioned RENAME TO requests;
ALTER TABLE requests ADD PRIMARY KEY (id);
CREATE INDEX requests_of_token ON requests (token_id, id);
CREATE INDEX requests_running ON requests (boot_id) WHERE state = 'running';
CREATE INDEX requests_failed
ON requests (id, state, status, error_code, upstream_status, token_id, channel, requests)
WHERE state NOT IN ('ok', 'running');
-- In the order of pages, however rare a name is. The second has names that are not the catalog's.
CREATE INDEX requests_of_model ON requests (catalog_model, id);
CREATE INDEX requests_of_other_model ON requests (model, id)
WHERE catalog_model IS DISTINCT FROM model;
CREATE TABLE requests_default PARTITION OF requests DEFAULT;

CREATE TABLE partitioned (LIKE attempts INCLUDING DEFAULTS) PARTITION BY RANGE (request_id);
DROP TABLE attempts;
ALTER TABLE partitioned RENAME TO attempts;
ALTER TABLE attempts ADD PRIMARY KEY (request_id, number);
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;

CREATE TABLE partitioned (LIKE searches INCLUDING DEFAULTS) PARTITION BY RANGE (request_id);
DROP TABLE searches;
ALTER TABLE partitioned RENAME TO searches;
ALTER TABLE searches ADD PRIMARY KEY (request_id, number);
CREATE TABLE searches_default PARTITION OF searches DEFAULT;
