-- What an operator has changed, for the replicas that have it in memory: a version and what it is of.
-- All changes of a transaction have one version. Its row is locked until the transaction ends, so
-- versions become visible in their order. Totals, last uses and the like are no changes.

CREATE TABLE change_version (
    name TEXT NOT NULL PRIMARY KEY, version BIGINT NOT NULL, transaction_id TEXT NOT NULL
);

INSERT INTO change_version (name, version, transaction_id) VALUES ('keys', 0, '');

CREATE TABLE changes (
    version BIGINT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, changed_at BIGINT NOT NULL,
    PRIMARY KEY (version, kind, id)
);

-- Its arguments: the kind, and the column of the id.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        row_id TEXT;
        number BIGINT;
    BEGIN
        IF TG_OP = 'DELETE' THEN
            row_id := to_jsonb(OLD) ->> TG_ARGV[1];
        ELSE
            row_id := to_jsonb(NEW) ->> TG_ARGV[1];
        END IF;
        UPDATE change_version
            SET version = version + 1, transaction_id = pg_current_xact_id()::text
            WHERE transaction_id <> pg_current_xact_id()::text
            RETURNING version INTO number;
        IF number IS NULL THEN
            SELECT version INTO number FROM change_version;
        END IF;
        INSERT INTO changes (version, kind, id, changed_at)
            VALUES (number, TG_ARGV[0], row_id,
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
            ON CONFLICT DO NOTHING;
        PERFORM pg_notify('gateway_changes', number::text);
        RETURN NULL;
    END
    $$;

CREATE TRIGGER changes_of_tokens AFTER INSERT OR DELETE OR UPDATE OF
    name, digest, display, "group", state, revoked_at, note, expires_at, probe, models, addresses,
    user_agents, requests_per_minute, tokens_per_minute, concurrent, budget, budget_5h, budget_day,
    budget_week, budget_month, budget_usd, budget_usd_5h, budget_usd_day, budget_usd_week,
    budget_usd_month, old_digest, old_display, old_expires_at
    ON tokens FOR EACH ROW EXECUTE FUNCTION note_change('token', 'id');

CREATE TRIGGER changes_of_groups AFTER INSERT OR DELETE OR UPDATE
    ON groups FOR EACH ROW EXECUTE FUNCTION note_change('group', 'name');

CREATE TRIGGER changes_of_admins AFTER INSERT OR DELETE OR UPDATE
    ON admins FOR EACH ROW EXECUTE FUNCTION note_change('admin', 'name');

CREATE TRIGGER changes_of_admin_tokens AFTER INSERT OR DELETE OR UPDATE OF
    name, digest, display, scope, expires_at
    ON admin_tokens FOR EACH ROW EXECUTE FUNCTION note_change('admin_token', 'id');

CREATE TRIGGER changes_of_sessions AFTER INSERT OR DELETE
    ON sessions FOR EACH ROW EXECUTE FUNCTION note_change('session', 'digest');

CREATE TRIGGER accounts_disabled AFTER INSERT OR UPDATE
    ON settings FOR EACH ROW WHEN (starts_with(NEW.name, 'disabled_account:'))
    EXECUTE FUNCTION note_change('account', 'name');

CREATE TRIGGER accounts_enabled AFTER DELETE
    ON settings FOR EACH ROW WHEN (starts_with(OLD.name, 'disabled_account:'))
    EXECUTE FUNCTION note_change('account', 'name');
