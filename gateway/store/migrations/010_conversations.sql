-- Conversations: lists of items that responses read and extend.

CREATE TABLE conversations (
    token_id TEXT NOT NULL, id TEXT NOT NULL, created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL, metadata TEXT NOT NULL, size BIGINT DEFAULT '0' NOT NULL,
    text_size BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (token_id, id)
);
CREATE INDEX conversations_by_use ON conversations (updated_at);

CREATE TABLE conversation_items (
    token_id TEXT NOT NULL, conversation_id TEXT NOT NULL, position BIGINT NOT NULL,
    id TEXT NOT NULL, text_size BIGINT NOT NULL, item {binary} NOT NULL,
    PRIMARY KEY (token_id, conversation_id, position)
);
CREATE INDEX conversation_items_by_id ON conversation_items (token_id, conversation_id, id);
