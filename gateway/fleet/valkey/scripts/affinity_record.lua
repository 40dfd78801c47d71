-- Keeps the account of a reply, unless this minute has had too many.
-- KEYS: the reply, the count of the minute. ARGV: what is kept, for how many seconds, the most.
local count = redis.call('INCR', KEYS[2])
if count == 1 then
  redis.call('EXPIRE', KEYS[2], 60)
end
if count <= tonumber(ARGV[3]) then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return count
