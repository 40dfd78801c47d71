-- Claims the test of half-open breakers: all of them, or none.
-- KEYS: the hash of breakers, then the claims. ARGV: owner, milliseconds, then of each claim the
-- breaker's field and the version in which the replica knows it.
-- Returns 0: claimed; -1: the replica does not know the newest state; else how many milliseconds
-- another one's claim lasts at most.
for index = 2, #KEYS do
  local left = redis.call('PTTL', KEYS[index])
  if left > 0 then
    return left
  end
  local stored = redis.call('HGET', KEYS[1], ARGV[2 * index - 1])
  if stored and cjson.decode(stored).v > tonumber(ARGV[2 * index]) then
    return -1
  end
end
for index = 2, #KEYS do
  redis.call('SET', KEYS[index], ARGV[1], 'PX', ARGV[2])
end
return 0
