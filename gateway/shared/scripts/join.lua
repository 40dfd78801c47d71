-- A replica begins a session: 'begin', then 'add' of what it knows, then 'end'.
-- begin: session, the one before or '', its life in milliseconds, milliseconds that other replicas
-- have to do the same where the server knows nothing any more.
-- add: session, then rows: 'e' base, entry, time, 1 or 0 request, tokens; 'c' base, running
-- requests; 'w' base, entry that never was.
-- leave: session; the replica stops.
-- end: session, how many replicas there are.

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
  end
elseif step == 'leave' then
  end_session(session)
elseif step == 'add' then
  if not redis.call('ZSCORE', sessions, session) then
    return {now}
  end
  local i = 3
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
          add_request(base, ARGV[i + 2], time)
        end
        local tokens = tonumber(ARGV[i + 5])
        if tokens > 0 then
          set_tokens(base, ARGV[i + 2], tokens, time)
        end
      end
      i = i + 6
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
  if joined >= expected and now < tonumber(redis.call('HGET', generation, 'ready')) then
    redis.call('HSET', generation, 'ready', 0)
  end
end
return {now}
