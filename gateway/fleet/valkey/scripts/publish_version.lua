-- Publishes the version of keys that a replica knows, if it is newer, and returns the newest.
-- KEYS: the version. ARGV: the known version; '1' to publish it, '0' only to read.
-- Returns -1 where none is published.
local newest = tonumber(redis.call('GET', KEYS[1]) or -1)
local known = tonumber(ARGV[1])
if ARGV[2] == '1' and known > newest then
  redis.call('SET', KEYS[1], ARGV[1])
  return known
end
return newest
