-- The functions of the scripts of limits: acquire, join, leave, renew, settle. Each is sent behind
-- this text. Times are microseconds of the server's clock.
--
-- Of each holder, whose name is `base`: `base:r` has the times of requests, `base:t` those of
-- tokens, `base:a` their amounts and, under '', their sum; `base:q` has the arrivals of waiters.
-- `running` has the number of running requests of all holders, `running:SESSION` those of one
-- replica's session, which are taken back when the session expires.

local MINUTE = 60000000
local KEPT = 61000        -- milliseconds: what is in a window
local LONG_KEPT = 3600000 -- milliseconds: what every renewal extends
local EXPIRED_AT_ONCE = 1000 -- entries that one call removes, so that none takes long
local sessions, running, generation = KEYS[1], KEYS[2], KEYS[3]

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function add_running(session, base, number)
  local own = running .. ':' .. session
  if redis.call('HINCRBY', own, base, number) <= 0 then
    redis.call('HDEL', own, base)
  end
  if redis.call('HINCRBY', running, base, number) <= 0 then
    redis.call('HDEL', running, base)
  end
end

local function end_session(session)
  local own = running .. ':' .. session
  local counts = redis.call('HGETALL', own)
  for i = 1, #counts, 2 do
    if redis.call('HINCRBY', running, counts[i], -counts[i + 1]) <= 0 then
      redis.call('HDEL', running, counts[i])
    end
  end
  redis.call('DEL', own)
  redis.call('ZREM', sessions, session)
  return #counts > 0
end

local function end_expired()
  local ended = false
  for _, session in ipairs(redis.call('ZRANGE', sessions, '-inf', now, 'BYSCORE', 'LIMIT', 0, 8)) do
    ended = end_session(session) or ended
  end
  return ended
end

-- The first that waits, without those whose session has ended.
local function first_waiter(base)
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', base .. ':q', 0, 0)[1]
    if not first then
      return nil
    end
    local expires = redis.call('ZSCORE', sessions, first:match('^[^|]*'))
    if expires and tonumber(expires) > now then
      return first
    end
    redis.call('ZREM', base .. ':q', first)
  end
  return nil
end

local function wake_first(base)
  local first = first_waiter(base)
  if first then
    redis.call('PUBLISH', sessions .. ':wake:' .. first:match('^[^/]*'), first)
  end
end

-- Also, how many entries have expired that are still there.
local function used_requests(base)
  local times = base .. ':r'
  local old = redis.call('ZCOUNT', times, '-inf', now - MINUTE)
  if old > 0 then
    local removed = math.min(old, EXPIRED_AT_ONCE)
    redis.call('ZREMRANGEBYRANK', times, 0, removed - 1)
    old = old - removed
  end
  return redis.call('ZCARD', times) - old, old
end

-- Entries that have expired but are still there count.
local function used_tokens(base)
  local times, amounts = base .. ':t', base .. ':a'
  for _ = 500, EXPIRED_AT_ONCE, 500 do
    local old = redis.call('ZRANGE', times, '-inf', now - MINUTE, 'BYSCORE', 'LIMIT', 0, 500)
    if #old == 0 then
      break
    end
    local sum = 0
    for _, amount in ipairs(redis.call('HMGET', amounts, unpack(old))) do
      sum = sum + (amount or 0)
    end
    redis.call('ZREM', times, unpack(old))
    redis.call('HDEL', amounts, unpack(old))
    redis.call('HINCRBY', amounts, '', -sum)
  end
  return tonumber(redis.call('HGET', amounts, '') or 0)
end

local function add_request(base, entry, time)
  redis.call('ZADD', base .. ':r', time, entry)
  redis.call('PEXPIRE', base .. ':r', KEPT)
end

-- Sets the tokens of an entry at its time; 0 removes it. Without a time only a known entry changes.
local function set_tokens(base, entry, tokens, time)
  local times, amounts = base .. ':t', base .. ':a'
  local old = redis.call('HGET', amounts, entry)
  if not (old or time) then
    return
  end
  if tokens > 0 then
    redis.call('HSET', amounts, entry, tokens)
    if time then
      redis.call('ZADD', times, time, entry)
      redis.call('PEXPIRE', times, KEPT)
      redis.call('PEXPIRE', amounts, KEPT)
    end
  else
    redis.call('ZREM', times, entry)
    redis.call('HDEL', amounts, entry)
  end
  if tokens ~= tonumber(old or 0) then
    redis.call('HINCRBY', amounts, '', tokens - (old or 0))
    redis.call('PEXPIRE', amounts, KEPT)
  end
end
