-- Writes what a replica has seen of accounts, unless others have seen something newer, and ends its
-- claims. One step.
-- KEYS: the hash of breakers, their order (versions), then claims to end.
-- ARGV: channel, a generation, the changes (JSON), the most breakers that are kept, then the owner
-- of each claim.
-- Returns the generation, the server's time (ms), then field and record of each change as it is now.
local hash, order = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSETNX', hash, '#generation', ARGV[2])
local version = math.max(now, tonumber(redis.call('HGET', hash, '#version') or '0'))
local answer = {redis.call('HGET', hash, '#generation'), now}
local written = false

local function decide(change, current)
  local new = {s = change.s, a = now - change.a, u = now + change.u, d = change.d, r = change.r}
  if change.x or not current then
    return new
  end
  local is_open = current.s ~= 'healthy'
  if change.s == 'healthy' then
    -- A success says nothing of what has failed since its request was sent.
    if is_open and current.a >= now - change.e then
      return nil
    end
  elseif is_open and current.u > now then
    if new.u <= current.u then
      return nil
    end
    current.u = new.u -- requests that were in flight: the longest pause holds
    return current
  elseif current.a > new.a then
    return nil
  end
  return new
end

for _, change in ipairs(cjson.decode(ARGV[3])) do
  local stored = redis.call('HGET', hash, change.f)
  local record = decide(change, stored and cjson.decode(stored))
  if record then
    version = version + 1
    record.v = version
    stored = cjson.encode(record)
    redis.call('HSET', hash, change.f, stored)
    redis.call('ZADD', order, version, change.f)
    written = true
  end
  table.insert(answer, change.f)
  table.insert(answer, stored)
end
if written then
  redis.call('HSET', hash, '#version', string.format('%.0f', version))
  local surplus = redis.call('ZCARD', order) - tonumber(ARGV[4])
  if surplus > 0 then
    local popped = redis.call('ZPOPMIN', order, surplus)
    for index = 1, #popped, 2 do
      redis.call('HDEL', hash, popped[index])
    end
  end
  redis.call('PUBLISH', ARGV[1], string.format('%.0f', version))
end
for index = 3, #KEYS do
  if redis.call('GET', KEYS[index]) == ARGV[index + 2] then
    redis.call('DEL', KEYS[index])
  end
end
return answer
