-- compatible with: 16
-- The hourly sums of whole days, added up, for reports over many days. A day is added up some time
-- after its end (gateway/store/usage_days.py), and until the last of them every day is here: what
-- is settled later in one of their hours is added to both, by whichever release writes it.

CREATE TABLE usage_days (
    day INTEGER NOT NULL,
    token_id TEXT NOT NULL,
    group_name TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    estimated BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cache_write_1h_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    web_searches BIGINT NOT NULL,
    cost_micro BIGINT NOT NULL,
    usd_micro BIGINT NOT NULL,
    first_events BIGINT NOT NULL,
    first_event_us BIGINT NOT NULL,
    total_us BIGINT NOT NULL,
    PRIMARY KEY (day, token_id, group_name, model)
);

CREATE FUNCTION add_late_usage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.hour / 24 <= (SELECT max(day) FROM usage_days) THEN
            INSERT INTO usage_days AS days VALUES (
                NEW.hour / 24, NEW.token_id, NEW.group_name, NEW.model,
                NEW.requests - coalesce(OLD.requests, 0),
                NEW.errors - coalesce(OLD.errors, 0),
                NEW.estimated - coalesce(OLD.estimated, 0),
                NEW.input_tokens - coalesce(OLD.input_tokens, 0),
                NEW.cache_read_tokens - coalesce(OLD.cache_read_tokens, 0),
                NEW.cache_write_tokens - coalesce(OLD.cache_write_tokens, 0),
                NEW.cache_write_1h_tokens - coalesce(OLD.cache_write_1h_tokens, 0),
                NEW.output_tokens - coalesce(OLD.output_tokens, 0),
                NEW.reasoning_tokens - coalesce(OLD.reasoning_tokens, 0),
                NEW.web_searches - coalesce(OLD.web_searches, 0),
                NEW.cost_micro - coalesce(OLD.cost_micro, 0),
                NEW.usd_micro - coalesce(OLD.usd_micro, 0),
                NEW.first_events - coalesce(OLD.first_events, 0),
                NEW.first_event_us - coalesce(OLD.first_event_us, 0),
                NEW.total_us - coalesce(OLD.total_us, 0)
            )
            ON CONFLICT (day, token_id, group_name, model) DO UPDATE SET
                requests = days.requests + excluded.requests,
                errors = days.errors + excluded.errors,
                estimated = days.estimated + excluded.estimated,
                input_tokens = days.input_tokens + excluded.input_tokens,
                cache_read_tokens = days.cache_read_tokens + excluded.cache_read_tokens,
                cache_write_tokens = days.cache_write_tokens + excluded.cache_write_tokens,
                cache_write_1h_tokens = days.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
                output_tokens = days.output_tokens + excluded.output_tokens,
                reasoning_tokens = days.reasoning_tokens + excluded.reasoning_tokens,
                web_searches = days.web_searches + excluded.web_searches,
                cost_micro = days.cost_micro + excluded.cost_micro,
                usd_micro = days.usd_micro + excluded.usd_micro,
                first_events = days.first_events + excluded.first_events,
                first_event_us = days.first_event_us + excluded.first_event_us,
                total_us = days.total_us + excluded.total_us;
        END IF;
        RETURN NULL;
    END
    $$;

-- Hours of today are never in a day that is added up: for them nothing is called.
CREATE TRIGGER late_usage AFTER INSERT OR UPDATE ON usage_hours FOR EACH ROW
WHEN (NEW.hour < date_part('epoch', now())::bigint / 86400 * 24)
EXECUTE FUNCTION add_late_usage();
