-- A request waits no more. KEYS[4]: the holder it waited for. ARGV: session, entry.

if redis.call('ZREM', KEYS[4] .. ':q', ARGV[1] .. '|' .. ARGV[2]) > 0 then
  wake_first(KEYS[4])
end
