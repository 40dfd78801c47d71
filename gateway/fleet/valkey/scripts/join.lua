-- A replica begins a session: 'begin', then 'add' of what it knows, then 'end'.
-- begin: session, the one before or '', its life in milliseconds, milliseconds that the replicas
-- have for this where the server knows nothing any more.
-- add: session, then rows: 'e' base, entry, time, 1 or 0 request, tokens; 'c' base, running
-- requests; 'w' base, entry that never was.
-- leave: session; the replica stops.
-- end: session, how many replicas there are; returns {time, sessions}.

local step, session = ARGV[1], ARGV[2]
if step == 'begin' then
  end_expired()
  if ARGV[3] ~= '' then
    end_session(ARGV[3])
  end
  redis.call('ZADD', sessions, now + ARGV[4] * 1000, session)
  redis.call('PEXPIRE', sessions, LONG_KEPT)
  if redis.call('HSETNX', generation, 'ready', string.format('%.0f', now + ARGV[5] * 1000)) == 1 then
    redis.call('PEXPIRE', generation, LONG_KEPT)
    redis.call('PUBLISH', sessions .. ':lost', session)
  else
    local ready, own = tonumber(redis.call('HGET', generation, 'ready')), now + ARGV[5] * 1000
    if now < ready and ready < own then
      redis.call('HSET', generation, 'ready', string.format('%.0f', own))
    end
  end
elseif step == 'leave' then
  end_session(session)
elseif step == 'add' then
  if not redis.call('ZSCORE', sessions, session) then
    return {now}
  end
  local i, added, sums = 3, {}, {}
  while ARGV[i] do
    local kind, base = ARGV[i], ARGV[i + 1]
    if kind == 'c' then
      add_running(session, base, ARGV[i + 2])
      redis.call('PEXPIRE', running, LONG_KEPT)
      redis.call('PEXPIRE', running .. ':' .. session, LONG_KEPT)
      i = i + 3
    elseif kind == 'w' then
      redis.call('ZREM', base .. ':r', ARGV[i + 2])
      set_tokens(base, ARGV[i + 2], 0)
      i = i + 3
    else
      local time = math.min(tonumber(ARGV[i + 3]), now)
      if time > now - MINUTE then
        if ARGV[i + 4] == '1' then
          redis.call('ZADD', base .. ':r', time, ARGV[i + 2])
        end
        local tokens = tonumber(ARGV[i + 5])
        if tokens > 0 then
          local old = redis.call('HGET', base .. ':a', ARGV[i + 2])
          redis.call('HSET', base .. ':a', ARGV[i + 2], tokens)
          redis.call('ZADD', base .. ':t', time, ARGV[i + 2])
          sums[base] = (sums[base] or 0) + tokens - (old or 0)
        end
        added[base] = true
      end
      i = i + 6
    end
  end
  for base, sum in pairs(sums) do
    redis.call('HINCRBY', base .. ':a', '', sum)
  end
  for base in pairs(added) do
    for _, suffix in ipairs({':r', ':t', ':a'}) do
      redis.call('PEXPIRE', base .. suffix, KEPT)
    end
  end
elseif redis.call('HEXISTS', generation, 'ready') == 1 then
  local name = session:match('^[^/]*')
  if redis.call('HSETNX', generation, 'joined:' .. name, 1) == 1 then
    redis.call('HINCRBY', generation, 'joined', 1)
  end
  local joined = tonumber(redis.call('HGET', generation, 'joined'))
  local expected = math.max(tonumber(ARGV[3]), tonumber(redis.call('HGET', generation, 'expected') or 0))
  redis.call('HSET', generation, 'expected', expected)
  redis.call('PUBLISH', sessions .. ':joined', session)
  if joined >= expected and now < tonumber(redis.call('HGET', generation, 'ready')) then
    redis.call('HSET', generation, 'ready', 0)
  end
end
if step == 'end' then
  return {now, redis.call('ZRANGE', sessions, 0, 1999)}
end
return {now}
