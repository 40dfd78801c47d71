-- What has changed since a version.
-- KEYS: the hash of breakers, their order. ARGV: the version that is known, a generation, how many.
-- Returns the generation, the server's time (ms), then field and record of each, the oldest first.
local time = redis.call('TIME')
local generation = redis.call('HGET', KEYS[1], '#generation')
if not generation then
  generation = ARGV[2]
  redis.call('HSET', KEYS[1], '#generation', generation)
end
local answer = {generation, time[1] * 1000 + math.floor(time[2] / 1000)}
local fields = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'LIMIT', 0, ARGV[3])
for _, field in ipairs(fields) do
  table.insert(answer, field)
  table.insert(answer, redis.call('HGET', KEYS[1], field))
end
return answer
