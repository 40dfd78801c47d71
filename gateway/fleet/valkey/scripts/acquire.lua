-- One request of all its holders, or of none. KEYS[4...]: the holders.
-- ARGV: session, entry, tokens; arrival: '' for a request that does not wait, else when it began to
-- wait, 0 for now; the number of the holder it waits for, 0 for none; then of each holder: requests
-- per minute, tokens per minute, concurrent requests, '' for no limit.
-- Returns {status, time, arrival, holder it waits for, figures, rejections}; status 0: acquired,
-- 1: rejected, 2: the session is unknown, 3: other replicas have yet to add what they know.
-- figures, of each holder: requests used, microseconds until all are unused, the same of tokens.
-- rejections, of each exceeded limit: holder, limit (1 requests, 2 tokens, 3 concurrent, 4 others
-- wait), how much is used, microseconds until it fits.

local session, entry, tokens, arrival = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local waits, queued_at = arrival ~= '', tonumber(ARGV[5])
local expires, ready = redis.call('ZSCORE', sessions, session), redis.call('HGET', generation, 'ready')
if not (expires and ready) or tonumber(expires) <= now then
  return {2, now}
end
if now < tonumber(ready) then
  return {3, now}
end

local member = session .. '|' .. entry
local count = #KEYS - 3
local figures, rejections, behind = {}, {}, {}
local has_ended

local function limit_of(holder, kind)
  return tonumber(ARGV[5 + 3 * (holder - 1) + kind])
end

local function until_expiry(key, index)
  local entries = redis.call('ZRANGE', key, index, index, 'WITHSCORES')
  return entries[2] and math.max(0, entries[2] + MINUTE - now) or 0
end

local function reject(...)
  rejections[#rejections + 1] = {...}
end

local function check_requests(holder, base, limit)
  local used, old = used_requests(base)
  figures[holder][1] = used
  if used >= limit then
    reject(holder, 1, used, until_expiry(base .. ':r', old + used - limit))
  end
end

-- Until so many tokens have expired; at least, where very many entries have to.
local function wait_for_tokens(base, excess)
  local wait = 0
  for start = 0, 900, 100 do
    local entries = redis.call('ZRANGE', base .. ':t', start, start + 99)
    if #entries == 0 then
      return wait
    end
    for i, amount in ipairs(redis.call('HMGET', base .. ':a', unpack(entries))) do
      excess = excess - (amount or 0)
      if excess <= 0 then
        return until_expiry(base .. ':t', start + i - 1)
      end
    end
    wait = until_expiry(base .. ':t', start + #entries - 1)
  end
  return wait
end

local function check_tokens(holder, base, limit)
  local used = used_tokens(base)
  figures[holder][3] = used
  if tokens > 0 and used + tokens > limit then
    reject(holder, 2, used, wait_for_tokens(base, used + tokens - limit))
  end
end

local function check_concurrent(holder, base, limit)
  local used = tonumber(redis.call('HGET', running, base) or 0)
  if used >= limit and not has_ended then
    has_ended = true
    end_expired()
    used = tonumber(redis.call('HGET', running, base) or 0)
  end
  if used >= limit then
    reject(holder, 3, used, 1000000)
  end
end

local function check_queue(holder, base)
  local first = first_waiter(base)
  if not first or first == member then
    return
  end
  local queue, ahead = base .. ':q', nil
  if waits then
    ahead = redis.call('ZRANK', queue, member)
  end
  if waits and not ahead and tonumber(arrival) > 0 then
    ahead = redis.call('ZCOUNT', queue, '-inf', '(' .. arrival)
  end
  ahead = ahead or redis.call('ZCARD', queue)
  if ahead > 0 then
    behind[#behind + 1] = {holder, 4, ahead, 1000000}
  end
end

local queues = {}
for holder = 1, count do
  queues[holder] = KEYS[holder + 3] .. ':q'
end
local has_waiters = redis.call('EXISTS', unpack(queues)) > 0
for holder = 1, count do
  local base = KEYS[holder + 3]
  figures[holder] = {0, 0, 0, 0}
  for kind, check in ipairs({check_requests, check_tokens, check_concurrent}) do
    local limit = limit_of(holder, kind)
    if limit then
      check(holder, base, limit)
    end
  end
  if has_waiters then
    check_queue(holder, base)
  end
end

local function leave(holder)
  local base = KEYS[holder + 3]
  if redis.call('ZREM', base .. ':q', member) > 0 then
    wake_first(base)
  end
end

local function wait_for(holder)
  if queued_at > 0 and queued_at ~= holder then
    leave(queued_at)
  end
  if tonumber(arrival) == 0 then
    arrival = string.format('%.0f', now)
  end
  local queue = KEYS[holder + 3] .. ':q'
  redis.call('ZADD', queue, arrival, member)
  redis.call('PEXPIRE', queue, LONG_KEPT)
  queued_at = holder
end

if #rejections == 0 then
  rejections = behind
end
if #rejections > 0 then
  local longest = rejections[1]
  for _, each in ipairs(rejections) do
    if each[4] > longest[4] then
      longest = each
    end
  end
  if waits then
    wait_for(longest[1])
  end
  for holder = 1, count do
    local base = KEYS[holder + 3]
    figures[holder][2] = limit_of(holder, 1) and until_expiry(base .. ':r', -1) or 0
    figures[holder][4] = limit_of(holder, 2) and until_expiry(base .. ':t', -1) or 0
  end
  return {1, now, arrival, queued_at, figures, rejections}
end

for holder = 1, count do
  local base = KEYS[holder + 3]
  if limit_of(holder, 1) then
    add_request(base, entry, now)
    figures[holder][1], figures[holder][2] = figures[holder][1] + 1, MINUTE
  end
  if limit_of(holder, 2) then
    if tokens > 0 then
      set_tokens(base, entry, tokens, now)
      figures[holder][3], figures[holder][4] = figures[holder][3] + tokens, MINUTE
    else
      figures[holder][4] = until_expiry(base .. ':t', -1)
    end
  end
  if limit_of(holder, 3) then
    add_running(session, base, 1)
  end
end
if queued_at > 0 then
  leave(queued_at)
end
return {0, now, arrival, 0, figures, {}}
