-- Keeps claims for longer, also where the server has lost them.
-- KEYS: claims. ARGV: milliseconds, then the owner of each.
for index, key in ipairs(KEYS) do
  local owner = redis.call('GET', key)
  if not owner or owner == ARGV[index + 1] then
    redis.call('SET', key, ARGV[index + 1], 'PX', ARGV[1])
  end
end
return redis.status_reply('OK')
