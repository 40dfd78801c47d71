-- compatible with: 16
-- What a failed attempt has cost, though its exchange was billed without it.

ALTER TABLE attempts ADD COLUMN receipt TEXT;
