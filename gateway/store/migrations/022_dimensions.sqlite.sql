-- compatible with: 16
-- Whom a request is for, as far as its key is set to trust what the request says of it.

ALTER TABLE tokens ADD COLUMN trust TEXT;
ALTER TABLE requests ADD COLUMN end_user TEXT;
ALTER TABLE requests ADD COLUMN session TEXT;
ALTER TABLE requests ADD COLUMN agent TEXT;
ALTER TABLE requests ADD COLUMN tag TEXT;
