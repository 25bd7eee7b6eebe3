-- The Redis contract of tenure: every script, in one place.
--
-- A line "--@ NAME" opens a section. A section "prelude" stands before all those behind it; the name of a section is the name of its
-- script in scripts.go. Each script runs as the body of a function: `return TEXT` answers, refuse() and call() end it with an error.
--
-- Rules that hold for all of them:
--   * Time is redis.call('TIME'), in whole milliseconds. No script compares two machines' clocks.
--   * Numbers travel as decimal text; tokens are printed with %.0f (tostring loses digits).
--   * What was read back is untrusted: a field that is not what tenure wrote counts as absent, a bad token refuses.
--   * A script may be run again (a client re-sends when a reply is lost): running it twice is running it once.
--   * A reply is one line of fields separated by a blank; an absent field is "-"; the last field may hold anything. Tasks reply with a
--     list, since more than one of their fields may.

--@ prelude
local MAX_TOKEN = 9007199254740992 -- 2^53
local MAX_TTL = 86400000 -- a day
local CENTURY = 3153600000000

-- refuse ends the script with an error.
local function refuse(text) error({ text = text }) end

-- call runs a command; where Redis refuses it, the error names the command and the key.
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then refuse(reply.err .. ' [' .. command .. ' ' .. key .. ']') end
  return reply
end

-- note is bookkeeping that a decision does not rest on: a Redis that is full must still answer with a refusal.
local function note(...) redis.pcall(...) end

-- publish sends a hint; a user without rights to the channel must not break the script.
local function publish(channel, kind, role, more)
  if channel ~= '' then
    redis.pcall('PUBLISH', channel, '{"type":"' .. kind .. '","role":"' .. role .. '"' .. (more or '') .. '}')
  end
end

local function integer(n) return string.format('%.0f', n) end

-- natural reads a number that tenure wrote, and 0 where the text is none.
local function natural(text)
  if type(text) == 'string' and #text <= 16 and string.match(text, '^%d+$') then return tonumber(text) end
  return 0
end

local function time()
  local t = redis.pcall('TIME')
  if t.err then refuse(t.err .. ' [TIME ' .. KEYS[1] .. ']') end
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- history gives the replication id of this server ('' where INFO is refused) and whether it was ever promoted or reloaded.
local function history()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return '', false end
  local offset = string.match(info, 'second_repl_offset:(%-?%d+)')
  return string.match(info, 'master_replid:(%x+)') or '', offset ~= nil and offset ~= '-1'
end

-- uptime gives the age of this server in ms; 0 where it is not told.
local function uptime()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return 0 end
  return natural(string.match(info, 'uptime_in_seconds:(%d+)')) * 1000
end

-- read_term reads the term hash. A token that tenure cannot have written refuses: nothing is granted on top of it.
local function read_term(key, now)
  local raw = call('HMGET', key, 'token', 'nonce', 'holder', 'until', 'ttl', 'released', 'origin', 'hold')
  local token = natural(raw[1])
  if raw[1] and (token <= 0 or token > MAX_TOKEN or token > now + CENTURY) then
    refuse('BADTERM the field token holds no fencing token [HGET ' .. key .. ']')
  end
  local ttl = natural(raw[5])
  if ttl > MAX_TTL then ttl = 0 end
  return {
    token = token, nonce = raw[2] or nil, holder = raw[3] or nil, ends = natural(raw[4]), ttl = ttl,
    released = raw[6] == '1', origin = raw[7] or '', hold = natural(raw[8]),
  }
end

local function field(value)
  if value == nil or value == false or value == '' then return '-' end
  return value
end

-- answer is the reply of every lease script: verdict, Redis's time (ms), token, TTL in the term hash (ms), wait (ms), start of the
-- term (Unix seconds), replication id, reason, holder.
local function answer(verdict, now, token, ttl, wait, since, origin, reason, holder)
  return verdict .. ' ' .. integer(now) .. ' ' .. integer(token or 0) .. ' ' .. integer(ttl or 0) .. ' ' .. integer(wait or 0) .. ' ' ..
    integer(since or 0) .. ' ' .. field(origin) .. ' ' .. field(reason) .. ' ' .. field(holder)
end

-- The lease scripts all take KEYS: 1 lease, 2 since, 3 term hash.

--@ acquire
-- Grants the lease where it is free and no witness objects; says until when to wait where it is not.
-- ARGV: 1 instance ID, 2 nonce, 3 TTL, 4 not-after (0: none), 5 floor, 6 hold-off, 7 wait on an empty history, 8 failover margin,
--       9 restart guard (0: the hold-off, negative: off), 10 channel, 11 role. Durations and times in ms.
-- Verdicts: won | held (reason lease, foreign, hold, until) | rollcall (reason empty) | stale.
local lease_key, since_key, term_key = KEYS[1], KEYS[2], KEYS[3]
local id, nonce, ttl, not_after, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = time()
if not_after > 0 and now > not_after then return answer('stale', now) end -- rule not-after

local holder = call('GET', lease_key)
local term = read_term(term_key, now)
local hold_off = math.max(tonumber(ARGV[6]), ttl, term.ttl) -- rule longest-ttl
local guard = hold_off + tonumber(ARGV[8])
local restart_guard = tonumber(ARGV[9])

-- Clamp: Redis's clock may have been set back, or this is a promoted machine whose clock is behind. Nothing lasts longer than it can.
local furthest = math.max(guard, restart_guard) + 1000
if term.ends > now + hold_off then
  term.ends = now + hold_off
  note('HSET', term_key, 'until', integer(term.ends))
end
if term.hold > now + furthest then
  term.hold = now + furthest
  note('HSET', term_key, 'hold', integer(term.hold))
end
local tenured = holder and term.holder == holder and not term.released -- granted by tenure, not by a foreign client
local left = 0
if holder then
  left = call('PTTL', lease_key)
  if tenured and (left < 0 or left > hold_off) then
    note('PEXPIRE', lease_key, hold_off)
    left = hold_off
  elseif left < 0 then
    left = hold_off -- a foreign lease without expiry
  end
end

-- Guard: a history that is not the one the term hash was written under, or a server so young that it may have forgotten a lease.
local origin, promoted = history()
if origin ~= '' and origin ~= term.origin then -- rule unknown-origin
  local arm = 0
  if term.origin ~= '' or promoted then
    arm = now + guard
  elseif restart_guard >= 0 then
    local least = restart_guard > 0 and restart_guard or guard
    local age = uptime()
    if age < least + 1000 then arm = now - age + least + 1000 end -- whole seconds: it may be up to one less
  end
  term.origin = origin
  term.hold = math.max(term.hold, arm) -- rule guard
  note('HSET', term_key, 'origin', origin, 'hold', integer(term.hold))
end

if holder == id and term.nonce == nonce and term.hold <= now and term.token >= floor then -- rule adopt-guard
  local since = natural(call('GET', since_key))
  call('PEXPIRE', lease_key, ttl) -- our own lost reply, or the client's own retry
  call('PEXPIRE', since_key, ttl)
  call('HSET', term_key, 'until', integer(now + ttl), 'ttl', integer(ttl))
  return answer('won', now, term.token, ttl, 0, since, origin, nil, id)
end
if holder then
  return answer('held', now, term.token, term.ttl, math.max(left, 1), 0, origin, tenured and 'lease' or 'foreign', holder)
end
if term.token < floor then -- rule memory: data was lost; the counter is restored, so that this arms once
  term.token, term.released = floor, false
  term.hold = math.max(term.hold, now + hold_off)
  note('HDEL', term_key, 'nonce', 'released')
  note('HSET', term_key, 'token', integer(floor), 'hold', integer(term.hold))
end
if term.hold > now then
  return answer('held', now, term.token, term.ttl, term.hold - now, 0, origin, 'hold')
end
local empty_wait = tonumber(ARGV[7])
if term.token == 0 and term.hold == 0 and empty_wait > 0 then -- rule rollcall: ask who leads, wait a moment
  note('HSET', term_key, 'hold', integer(now + empty_wait))
  publish(ARGV[10], 'roll-call', ARGV[11])
  return answer('rollcall', now, 0, term.ttl, empty_wait, 0, origin, 'empty')
end
if not term.released and term.ends > now then -- rule until: the lease vanished before its end
  return answer('held', now, term.token, term.ttl, term.ends - now, 0, origin, 'until')
end

local token = math.max(term.token + 1, floor + 1, now) -- rule time
local since = math.floor(now / 1000)
call('GET', since_key) -- refuses where the key is something else's, before anything is written
call('HSET', term_key, 'token', integer(token), 'nonce', nonce, 'holder', id, 'until', integer(now + ttl), 'ttl', integer(ttl))
call('HDEL', term_key, 'released')
call('SET', lease_key, id, 'PX', ttl)
call('SET', since_key, integer(since), 'PX', ttl)
publish(ARGV[10], 'granted', ARGV[11])
return answer('won', now, token, ttl, 0, since, origin, nil, id)

--@ renew
-- Keeps the lease of this very term, or takes it back where Redis lost data. Begins with a write that a full Redis allows.
-- ARGV: 1 instance ID, 2 nonce, 3 token, 4 TTL, 5 not-after (0: none), 6 hold-off, 7 failover margin, 8 replication id of the last
--       confirmation ('': unknown), 9 draining (1: never reclaim), 10 start of the term (Unix seconds).
-- Verdicts: kept | lost (reason taken, released, vanished) | stale.
local lease_key, since_key, term_key = KEYS[1], KEYS[2], KEYS[3]
local id, nonce, token, ttl, not_after = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = time()
if not_after > 0 and now > not_after then return answer('stale', now) end -- rule not-after

local holder = call('GET', lease_key)
local term = read_term(term_key, now)
local origin = history()

local function keep()
  if origin ~= '' and term.origin ~= origin then
    local hold_off = math.max(tonumber(ARGV[6]), ttl, term.ttl)
    local hold = math.max(term.hold, now + hold_off + tonumber(ARGV[7])) -- rule arm-in-renew
    call('HSET', term_key, 'origin', origin, 'hold', integer(hold))
  end
  if call('GET', since_key) then call('PEXPIRE', since_key, ttl) else call('SET', since_key, ARGV[10], 'PX', ttl) end
  return answer('kept', now, token, ttl, 0, tonumber(ARGV[10]), origin, nil, id)
end

if holder == id and term.nonce == nonce and term.token == token then
  call('PEXPIRE', lease_key, ttl)
  call('HSET', term_key, 'until', integer(now + ttl), 'ttl', integer(ttl))
  return keep()
end
if holder and (holder ~= id or (term.nonce and term.nonce ~= nonce)) then -- rule nonce-holder
  return answer('lost', now, term.token, term.ttl, 0, 0, origin, 'taken', holder)
end
local known = origin ~= '' and ARGV[8] ~= ''
local lost_data = (known and origin ~= ARGV[8]) or term.token < token or not term.nonce
local mine = term.token < token or (term.token == token and (not term.nonce or term.nonce == nonce) and not term.released)
if lost_data and mine and ARGV[9] ~= '1' then -- rule reclaim
  call('SET', lease_key, id, 'PX', ttl)
  call('HSET', term_key, 'token', integer(token), 'nonce', nonce, 'holder', id, 'until', integer(now + ttl), 'ttl', integer(ttl))
  call('HDEL', term_key, 'released')
  return keep()
end
return answer('lost', now, term.token, term.ttl, 0, 0, origin, term.released and 'released' or 'vanished', holder)

--@ release
-- Gives back what this campaign holds, and nothing else. Begins with a write that a full Redis allows.
-- ARGV: 1 instance ID, 2 nonce, 3 token (0: whatever this campaign was granted), 4 channel, 5 role.
-- Verdict: done, whether there was anything to give back or not.
local lease_key, since_key, term_key = KEYS[1], KEYS[2], KEYS[3]
local id, nonce, token = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = time()
local term = read_term(term_key, now)
if term.nonce == nonce and (token == 0 or term.token == token) then
  call('HDEL', term_key, 'until')
  call('HSET', term_key, 'released', '1')
  if call('GET', lease_key) == id then
    call('DEL', lease_key)
    if type(redis.pcall('GET', since_key)) == 'string' then call('DEL', since_key) end
    publish(ARGV[4], 'vacant', ARGV[5])
  end
end
return answer('done', now, term.token, term.ttl)

--@ leader
-- Reads who leads. Writes nothing.
-- Verdicts: held (token 0: a foreign client) | free.
local now = time()
local holder = call('GET', KEYS[1])
if not holder then return answer('free', now) end
local term = read_term(KEYS[3], now)
local tenured = term.holder == holder and not term.released
return answer('held', now, tenured and term.token or 0, term.ttl, call('PTTL', KEYS[1]), natural(call('GET', KEYS[2])), term.origin,
  tenured and 'lease' or 'foreign', holder)
