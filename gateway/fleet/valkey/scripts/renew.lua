-- The session lives on, with all its running requests. ARGV: session, its life in milliseconds.
-- Returns {time, live sessions}, or {time} where the session is unknown.

local session = ARGV[1]
end_expired()
if not redis.call('ZSCORE', sessions, session) or redis.call('EXISTS', generation) == 0 then
  return {now}
end
redis.call('ZADD', sessions, now + ARGV[2] * 1000, session)
for _, key in ipairs({sessions, running, generation, running .. ':' .. session}) do
  redis.call('PEXPIRE', key, LONG_KEPT)
end
return {now, redis.call('ZRANGE', sessions, 0, 1999)}
