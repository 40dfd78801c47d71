-- Replies that later requests can continue, their output items, and whether a group stores them.

ALTER TABLE groups ADD COLUMN store_replies BOOLEAN DEFAULT {true} NOT NULL;

CREATE TABLE stored_replies (
    token_id TEXT NOT NULL, id TEXT NOT NULL, format TEXT NOT NULL, previous_id TEXT,
    root_id TEXT NOT NULL, request_id TEXT NOT NULL, model TEXT NOT NULL, status TEXT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
    background BOOLEAN DEFAULT {false} NOT NULL, deleted BOOLEAN DEFAULT {false} NOT NULL,
    request_size BIGINT DEFAULT '0' NOT NULL, reply_size BIGINT DEFAULT '0' NOT NULL,
    stored_size BIGINT DEFAULT '0' NOT NULL,
    request {binary} NOT NULL, reply {binary}, events {binary},
    PRIMARY KEY (token_id, id)
);
CREATE INDEX stored_replies_of_chain
ON stored_replies (token_id, root_id, created_at, expires_at, stored_size);
CREATE INDEX stored_replies_continuing ON stored_replies (token_id, previous_id);
CREATE INDEX stored_replies_of_request ON stored_replies (request_id);

CREATE TABLE stored_items (
    token_id TEXT NOT NULL, item_id TEXT NOT NULL, reply_id TEXT NOT NULL,
    PRIMARY KEY (token_id, item_id),
    FOREIGN KEY (token_id, reply_id) REFERENCES stored_replies (token_id, id) ON DELETE CASCADE
) {without_rowid};
CREATE INDEX stored_items_of_reply ON stored_items (token_id, reply_id);
