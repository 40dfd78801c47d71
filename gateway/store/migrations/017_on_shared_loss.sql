-- What happens to requests of a group while the limits of all replicas cannot be checked.

ALTER TABLE groups ADD COLUMN on_shared_loss TEXT DEFAULT 'share' NOT NULL;
