-- compatible with: 16
-- Since when sums of traffic have all that those of hours have (gateway/store/log/traffic.py), in
-- Unix µs: rows that were deleted before they were counted are in sums of hours alone. While they
-- are being counted, it is set at the end.

INSERT INTO settings (name, value)
SELECT 'traffic_complete_since', CAST(coalesce(
    (SELECT (CAST(value AS BIGINT) + 23) / 24 * 86400000000 FROM settings WHERE name = 'rows_kept_since'), 0
) AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'traffic_counted_since');
