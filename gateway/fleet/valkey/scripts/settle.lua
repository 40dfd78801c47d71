-- A request has ended, or it uses other tokens than it was expected to. KEYS[4...]: its holders.
-- ARGV: session, entry, tokens, what happens: 'adjust' only the tokens, 'end', 'withdraw': it never
-- was, and does not wait; then '1' or '' of each holder: whether its running requests are limited.

local session, entry, tokens, what = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
for holder = 1, #KEYS - 3 do
  local base = KEYS[holder + 3]
  set_tokens(base, entry, what == 'withdraw' and 0 or tokens)
  if what == 'withdraw' then
    redis.call('ZREM', base .. ':r', entry)
    redis.call('ZREM', base .. ':q', session .. '|' .. entry)
  end
  if what ~= 'adjust' and ARGV[4 + holder] == '1' then
    if redis.call('HEXISTS', running .. ':' .. session, base) == 1 then
      add_running(session, base, -1)
    end
  end
  wake_first(base)
end
