-- compatible with: 16
-- Background responses that have not ended: counted for each key, and ended when their process is gone.

CREATE INDEX stored_replies_running ON stored_replies (token_id)
WHERE status IN ('queued', 'in_progress');
