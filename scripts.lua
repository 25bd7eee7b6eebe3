-- The Redis contract of tenure: every script, in one place.
--
-- A line "--@ NAME" opens a section. A section "prelude NAME" stands before all those behind it. The name of any other section is the
-- name of its script in internal/redisstore/scripts.go. Each script runs as the body of a function: `return TEXT` answers, refuse() and call()
-- end it with an error. A section "shortcut NAME, NAME" stands before those scripts, and before what they alone need of the preludes: it answers,
-- or leaves it to them. It runs outside that function, so that it returns an error where a script ends with one.
--
-- Rules that hold for all of them:
--   * Time is redis.call('TIME'), in whole milliseconds. No script compares two machines' clocks.
--   * Numbers travel as decimal text, and all of them are whole; integer() prints them (tostring loses digits of tokens).
--   * What was read back is untrusted: a field that is not what tenure wrote counts as absent, a bad token refuses.
--   * A script may be run again (a client re-sends when a reply is lost): running it twice is running it once.
--   * A reply is one line of fields separated by a blank; an absent field is "-"; the last field may hold anything: it is "-", or "="
--     and a value. Tasks reply with a list, since more than one of their fields may.

--@ prelude common
local MAX_TOKEN = 9007199254740992 -- 2^53
local MAX_TTL = 86400000 -- a day
local MAX_ID = 128 -- bytes of an instance ID
local CENTURY = 3153600000000
local RESERVE = 5000 -- the longest that a vacancy is reserved for an heir
local ANYONE = '*' -- the heir of an offer that waits for the best candidate
local KEPT = 4 -- what askers have named is remembered for so many times its length
-- Entries that are kept. Redis cuts off whole blocks of about a hundred (~): to cut off one entry takes it five times as long as to add one.
local TERMS = '1000' -- of the history of terms: two a term
local LOG = '10000' -- of the log of a namespace

-- refuse ends the script with an error.
local function refuse(text) error({ text = text }) end

-- call runs a command; if Redis refuses it, the error names the command and the key.
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then refuse(reply.err .. ' [' .. command .. ' ' .. key .. ']') end
  return reply
end

-- refused runs a command, and gives the error that the script ends with, nil if there is none.
local function refused(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then return { err = reply.err .. ' [' .. command .. ' ' .. key .. ']' } end
end

-- note is bookkeeping that a decision does not rest on: a Redis that is full must still answer with a refusal.
local function note(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'OOM', 1, true) then
    refuse(reply.err .. ' [' .. command .. ' ' .. key .. ']')
  end
end

-- publish sends a hint, and gives how many heard it, nil if it is refused; a user without rights to the channel must not break the script.
local function publish(channel, kind, role, more)
  if channel == '' then return nil end
  local heard = redis.pcall('PUBLISH', channel, '{"type":"' .. kind .. '","role":"' .. role .. '"' .. (more or '') .. '}')
  return type(heard) == 'number' and heard or nil
end

-- WHOLE prints whole numbers. %d takes a quarter of the time of %.0f, but holds 32 bits only if the server is built for 32.
local WHOLE = string.format('%d', MAX_TOKEN) == '9007199254740992' and '%d' or '%.0f'
local function integer(n) return string.format(WHOLE, n) end

-- natural reads a number that tenure wrote, and 0 if the text is none.
local function natural(text)
  if type(text) == 'string' and #text <= 16 and string.match(text, '^%d+$') then return tonumber(text) end
  return 0
end

local function time()
  local t = redis.pcall('TIME')
  if t.err then refuse(t.err .. ' [TIME ' .. KEYS[1] .. ']') end
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- history gives the replication id of this server ('' if INFO is refused) and whether it was ever promoted or reloaded.
local function history()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return '', false end
  local _, origin = string.find(info, 'master_replid:', 1, true) -- a search for a plain text is faster than a pattern
  local _, offset = string.find(info, 'second_repl_offset:', 1, true)
  offset = offset and string.match(info, '^%-?%d+', offset + 1)
  return origin and string.match(info, '^%x+', origin + 1) or '', offset ~= nil and offset ~= '-1'
end

-- uptime gives the age of this server in ms; 0 if it is not known.
local function uptime()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return 0 end
  return natural(string.match(info, 'uptime_in_seconds:(%d+)')) * 1000
end

-- instance reads the ID of an instance, and nil if the text is none: it appears in hints.
local function instance(text)
  if text and #text <= MAX_ID and string.find(text, '^[%w._:-]+$') then return text end
end

-- ranked reads a rank, and 0 if the text is none.
local function ranked(text)
  if text and #text <= 17 and string.find(text, '^%-?%d+$') and math.abs(tonumber(text)) <= MAX_TOKEN then return tonumber(text) end
  return 0
end

-- read_term reads the term hash. A token that tenure cannot have written refuses: nothing is granted on top of it.
local function read_term(key, now)
  local raw = call('HMGET', key, 'token', 'nonce', 'holder', 'until', 'ttl', 'released', 'origin', 'hold', 'floor', 'asked',
    'longest', 'longest_at', 'margin', 'margin_at', 'armed', 'heir', 'reserved', 'ready', 'best', 'best_rank', 'best_until')
  local token = natural(raw[1])
  if raw[1] and (token <= 0 or token > MAX_TOKEN or token > now + CENTURY) then
    refuse('BADTERM the field token holds no fencing token [HGET ' .. key .. ']')
  end
  local ttl = natural(raw[5])
  if ttl > MAX_TTL then ttl = 0 end
  local function bounded(n) return n <= MAX_TTL and n or 0 end
  local origin = raw[7] or ''
  if #origin > 64 or not string.match(origin, '^%w*$') then origin = '' end -- no replication id: another history
  local heir, best = raw[16] == ANYONE and ANYONE or instance(raw[16]), instance(raw[19])
  local known = natural(raw[9])
  if known > MAX_TOKEN or known > now + CENTURY then known = 0 end
  return {
    token = token, nonce = raw[2] or nil, holder = raw[3] or nil, ends = natural(raw[4]), ttl = ttl,
    released = raw[6] == '1', origin = origin, hold = natural(raw[8]), known = known, asked = natural(raw[10]),
    longest = bounded(natural(raw[11])), longest_at = natural(raw[12]), margin = bounded(natural(raw[13])), margin_at = natural(raw[14]),
    armed = natural(raw[15]), heir = heir, reserved = natural(raw[17]), ready = natural(raw[18]),
    best = best, rank = ranked(raw[20]), best_until = natural(raw[21]),
  }
end

-- cut bounds a text that anybody may have written. What is longer than an ID is none, and does not look like one.
local function cut(text)
  if #text > MAX_ID then return string.sub(text, 1, MAX_ID) .. '…' end
  return text
end

local function field(value)
  if value == nil or value == false or value == '' then return '-' end
  return cut(value)
end

-- answer is the reply of every lease script: verdict, Redis's time (ms), token, TTL in the term hash (ms), wait (ms), start of the
-- term (Unix seconds; with reason young of this server), replication id, reason, mark (heir: the asker is the one that the leader
-- offers the lease; ready: the one that it is offered asks for it), the best candidate (rank:ID), holder ("=" and the value of the
-- lease key, which a foreign client may leave empty).
local function answer(verdict, now, token, ttl, wait, since, origin, reason, holder, mark, best)
  return verdict .. ' ' .. integer(now) .. ' ' .. integer(token or 0) .. ' ' .. integer(ttl or 0) .. ' ' .. integer(wait or 0) .. ' ' ..
    integer(since or 0) .. ' ' .. field(origin) .. ' ' .. field(reason) .. ' ' .. field(mark) .. ' ' .. (best or '-') .. ' ' .. (holder and '=' .. cut(holder) or '-')
end

-- tenured_by reports whether the lease was granted by tenure. Otherwise a foreign client has taken the key.
local function tenured_by(term, holder) return holder and term.holder == holder and not term.released end

-- read_since returns the text of the since key, false if there is none, and nil if the key is of another type. No decision rests on
-- it, so that a key that something else uses is left alone and stops nothing.
local function read_since(key)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'table' then return text end
  if not string.find(text.err, 'WRONGTYPE', 1, true) then refuse(text.err .. ' [GET ' .. key .. ']') end
  return nil
end

-- write_since makes the since key say when the term began.
local function write_since(key, since, ttl)
  if read_since(key) ~= nil then call('SET', key, since, 'PX', ttl) end
end

-- append adds an entry to a stream that no rule reads, and gives its ID, or the error. If somebody has put in the last ID that there can be, the
-- stream takes no other one for good: it begins anew.
local function append(key, ...)
  local added = redis.pcall('XADD', key, ...)
  if type(added) == 'table' and string.find(added.err, 'exhausted the last possible ID', 1, true) then -- rule last-id
    redis.pcall('DEL', key)
    added = redis.pcall('XADD', key, ...)
  end
  return added
end

-- tell_terms adds an entry to the history of terms. No rule reads it, and whatever is wrong with that stream stops no election.
local function tell_terms(key, event, token, holder, at, ...)
  append(key, 'MAXLEN', '~', TERMS, '*', 'event', event, 'token', token, 'holder', cut(holder or ''), 'at', integer(at), ...)
end

-- tell_log adds an entry to the log of the namespace, if the caller has its key, and gives its ID. As with the history of terms, no rule
-- reads it.
local function tell_log(key, event, instances, ...)
  local added = key and append(key, 'MAXLEN', '~', LOG, '*', 'event', event, 'instances', instances, ...)
  return type(added) == 'string' and added or nil
end

-- take writes that the asker is granted the lease, and nothing else does. since: when the term begins, in Unix seconds, nil if the since key is of
-- another type. It gives the error that the script ends with, if Redis refuses a write.
local function take(token, now, since)
  return refused('HSET', KEYS[3], 'token', token, 'nonce', ARGV[2], 'holder', ARGV[1], 'until', integer(now + ARGV[3]), 'ttl', ARGV[3]) or
    refused('HDEL', KEYS[3], 'released', 'heir', 'reserved', 'ready') or refused('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) or
    since and refused('SET', KEYS[2], since, 'PX', ARGV[3])
end

-- tell_taken tells of it.
local function tell_taken(token, now)
  tell_terms(KEYS[4], 'began', token, ARGV[1], now)
  tell_log(KEYS[5], 'elected', ARGV[1], 'role', ARGV[11], 'token', token)
  publish(ARGV[10], 'granted', ARGV[11])
end

-- note_token notes the highest token that an asker names, if the term hash knows lower ones only: this server has lost data. The
-- next token is then higher, on any grant.
local function note_token(key, term, token)
  if token > math.max(term.token, term.known) then note('HSET', key, 'floor', integer(token)) end
end

-- Askers name their own TTL (or HoldOff, if that is longer) and FailoverMargin, and the longest of each is in the term hash: a candidate
-- that has just started knows it too, and the least careful does not decide for all. It is forgotten when it was not named for long.
-- elsewhere: on a new history its time was another machine's, and is not compared.

-- remembered gives such a duration, or 0 once it was not named for KEPT * period.
local function remembered(length, at, now, period, elsewhere)
  if not elsewhere and math.abs(now - at) > KEPT * period then return 0 end
  return length
end

-- name adds to fields what is to be written so that a duration is remembered: rarely something, since once a period is enough.
local function name(fields, field, own, known, at, now, period, elsewhere)
  if own > known or (known > 0 and (elsewhere or (own == known and math.abs(now - at) > period))) then
    for _, text in ipairs({ field, integer(math.max(own, known)), field .. '_at', integer(now) }) do fields[#fields + 1] = text end
  end
end

-- careful gives the longest hold-off and margin that anybody has named, and the fields to be written for them.
local function careful(term, own, margin, now, elsewhere)
  local fields = {}
  local longest = remembered(term.longest, term.longest_at, now, term.longest, elsewhere) -- rule ttl-named
  name(fields, 'longest', own, longest, term.longest_at, now, own, elsewhere)
  longest = math.max(longest, own)
  local widest = remembered(term.margin, term.margin_at, now, longest, elsewhere) -- rule margin-named
  name(fields, 'margin', margin, widest, term.margin_at, now, longest, elsewhere)
  return longest, math.max(widest, margin), fields
end

-- The lease scripts all take KEYS: 1 lease, 2 since, 3 term hash; those that begin or end a term also 4 history of terms, and if it
-- lies in the same slot 5 log of the namespace. Whatever they decide, they note the tokens that their asker names.

--@ shortcut acquire
-- What nearly all that ask are answered, at three fifths of the cost: another one's lease is on, or the last one was given back, and there is nothing
-- else to be noted. It answers and writes what the script would. Whatever is otherwise, a command that is refused too, is left to the script; once it
-- has begun to write, it ends as the script would.
local now, token, origin, since -- of the term that begins; token is nil if it is not for the shortcut to grant
do
  local try, find = redis.pcall, string.find
  local t, holder = try('TIME'), try('GET', KEYS[1])
  if t[1] and #t[1] <= 10 and (not holder or type(holder) == 'string' and holder ~= ARGV[1] and #holder <= 128) and (ARGV[13] == '' or ARGV[13] == '0') then
    now = t[1] * 1000 + math.floor(t[2] / 1000)
    local not_after, own, margin = tonumber(ARGV[4]), math.max(tonumber(ARGV[3]), tonumber(ARGV[12])), tonumber(ARGV[8])
    local term = try('HMGET', KEYS[3], 'token', 'holder', 'until', 'ttl', 'origin', 'longest', 'longest_at', 'margin', 'margin_at', 'hold', 'armed',
      'released', 'heir', 'reserved', 'best', 'floor')
    -- number reads a number above zero, and nil if the text is none, or is more than that.
    local function number(text, most)
      local n = text and #text <= 16 and find(text, '^[1-9]%d*$') and tonumber(text)
      return n and n <= most and n or nil
    end
    -- named reports whether a duration is known, and was named lately.
    local function named(length, known, at) return number(known, 86400000) == length and number(at, now + own) and now - at <= own end
    local free = not holder and term[12] == '1'
    local last, ttl = number(term[1], now + 3153600000000), number(term[4], 86400000)
    origin = term[5]
    if last and ttl and origin and last >= tonumber(ARGV[5]) and (not_after == 0 or now <= not_after) and (free or term[2] == holder and not term[12]) and
      not term[13] and not term[14] and not term[15] and named(own, term[6], term[7]) and (not term[10] or term[10] == '0' or number(term[10], now)) then
      ttl = math.max(ttl, own)
      local hold_off, info = math.max(tonumber(ARGV[6]), ttl), try('INFO', 'replication')
      local left = holder and try('PTTL', KEYS[1])
      local grows = term[11] and term[11] ~= '0' and hold_off + margin > (number(term[11], 1e15) or 0)
      if not grows and (margin == 0 and not term[8] or named(margin, term[8], term[9])) and number(term[3], free and now or now + hold_off) and
        find(origin, '^%x+$') and #origin <= 64 and type(info) == 'string' and find(info, 'master_replid:' .. origin .. '\r\n', 1, true) then
        if type(left) == 'number' and left > 0 and left <= hold_off then
          return 'held ' .. now .. ' ' .. term[1] .. ' ' .. ttl .. ' ' .. left .. ' 0 ' .. origin .. ' lease - - =' .. holder
        end
        local known = not term[16] and 0 or number(term[16], now + 3153600000000)
        if free and last <= 1e13 and known and #ARGV[1] <= 128 and type(try('GET', KEYS[2])) ~= 'table' then
          token, since = math.max(last, known) + 1, t[1]
        end
      end
    end
  end
end

--@ shortcut acquire
if token then
  token = integer(math.max(token, now)) -- rule time
  local failed = take(token, now, since)
  if failed then return failed end
  tell_taken(token, now)
  return 'won ' .. now .. ' ' .. token .. ' ' .. ARGV[3] .. ' 0 ' .. since .. ' ' .. origin .. ' - - - =' .. ARGV[1]
end

--@ acquire
-- Grants the lease if it is free and no witness objects; says until when to wait if it is not.
-- ARGV: 1 instance ID, 2 nonce, 3 TTL, 4 not-after (0: none), 5 floor, 6 hold-off, 7 wait on an empty history, 8 failover margin,
--       9 restart guard (0: the hold-off, negative: off), 10 channel, 11 role, 12 TTL, or HoldOff if that is longer, 13 rank ('': it does not
--       hear), 14 for how long a vacancy is left to the best candidate, 15 for how long an asker counts as one. Durations and times in ms.
-- Verdicts: won (reason lapsed, forgotten: the term before ended without a release) | held (reason lease, foreign, hold, young, until,
--           empty, reserved, yield) | rollcall (reason empty, young) | stale.
local lease_key, since_key, term_key, terms_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, nonce, ttl, not_after, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = time()
if not_after > 0 and now > not_after then -- rule not-after
  note_token(term_key, read_term(term_key, now), floor) -- rule memory-ended: late, but a witness of lost data
  return answer('stale', now)
end

local holder = call('GET', lease_key)
local term = read_term(term_key, now)
local origin, promoted = history()
local elsewhere = origin ~= '' and origin ~= term.origin -- rule unknown-origin
local longest, margin, named = careful(term, math.max(ttl, tonumber(ARGV[12])), tonumber(ARGV[8]), now, elsewhere)
if #named > 0 then note('HSET', term_key, unpack(named)) end
term.ttl = math.max(term.ttl, longest)
local hold_off = math.max(tonumber(ARGV[6]), term.ttl) -- rule longest-ttl
local guard = hold_off + margin
local restart_guard, empty_wait = tonumber(ARGV[9]), tonumber(ARGV[7])
local empty = term.token == 0 -- nobody was granted anything since data were lost, if any were
local unasked = empty and term.asked == 0 -- and nobody was asked who leads
if unasked then term.asked = now end

-- Clamp: Redis's clock may have been set back, or this is a promoted machine whose clock is behind. Nothing lasts longer than it can.
if term.released and term.ends > now then -- when the vacancy began
  term.ends = now
  note('HSET', term_key, 'until', integer(now))
end
local furthest = math.max(guard, restart_guard, empty_wait) + 1000
if term.ends > now + hold_off then
  term.ends = now + hold_off
  note('HSET', term_key, 'until', integer(term.ends))
end
if term.hold > now + furthest then
  term.hold = now + furthest
  note('HSET', term_key, 'hold', integer(term.hold))
end
local window = math.min(math.floor(hold_off / 3), RESERVE)
if term.reserved > now + window then -- rule reserve-clamp
  term.reserved = now + window
  note('HSET', term_key, 'reserved', integer(term.reserved))
end
if empty and term.asked > now then
  term.asked = now
  note('HSET', term_key, 'asked', integer(now))
end
-- The best candidate that has asked, and goes on asking. If all ranks are 0 nothing is written, but for an open offer.
if term.best and (term.best_until <= now or term.best_until > now + 2 * hold_off) then term.best = nil end -- rule best-expires
local rank = tonumber(ARGV[13])
if rank and not (holder == id and term.nonce == nonce) then -- rule hears; a repeated request of the leader is no candidate's
  local better = term.best and (term.best == id or rank > term.rank)
  local first = not term.best and (rank ~= 0 or term.heir == ANYONE) -- rule open-offer
  if better or first then
    term.best, term.rank = id, rank
    note('HSET', term_key, 'best', id, 'best_rank', integer(rank), 'best_until', integer(now + tonumber(ARGV[15])))
  end
end

local tenured = tenured_by(term, holder)
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

-- A hold-off that was armed grows to the longest that is known to later askers: the first may not have known of the lease that
-- was lost. An asker that comes after its end counts too, if the longer one would not be over.
if term.armed > 0 and guard > term.armed then -- rule hold-grows
  term.hold, term.armed = term.hold + guard - term.armed, guard
  term.ttl = hold_off -- rule careful-clamp
  note('HSET', term_key, 'armed', integer(guard), 'hold', integer(term.hold), 'ttl', integer(term.ttl))
end

-- Guard: a history that is not the one the term hash was written under, or a server so young that it may have forgotten a lease.
-- While nobody was granted anything, each asker adds a longer guard of its own, counted from the first question on.
local booted -- Unix seconds, if this server is, or was just now, too young for a first election
if elsewhere or (empty and not unasked and origin ~= '') then
  local arm, length, from = 0, 0, elsewhere and now or term.asked
  if promoted or (elsewhere and term.origin ~= '') then
    arm, length = from + guard, guard
  elseif restart_guard >= 0 then
    local least = restart_guard > 0 and restart_guard or guard
    local age = uptime()
    if age < least + 1000 then -- whole seconds: it may be up to one less
      arm = math.min(now - age, from) + least + 1000
    end
    if age < least + 2000 then booted = math.floor((now - age) / 1000) end -- what was armed may hold for as much longer
  end
  if elsewhere or arm > term.hold + 1000 then -- the same guard, by whole seconds, is not longer
    term.origin = origin
    term.hold = math.max(term.hold, arm) -- rule guard
    term.ttl = hold_off -- rule careful-clamp: else whoever knows less shortens the hold
    if arm > 0 then term.armed = length end
    note('HSET', term_key, 'origin', origin, 'armed', integer(term.armed), 'hold', integer(term.hold), 'ttl', integer(term.ttl))
  end
end

if holder == id and term.nonce == nonce and term.hold <= now and term.token >= math.max(floor, term.known) then -- rule adopt-guard
  local since = natural(read_since(since_key))
  if since == 0 then since = math.floor(now / 1000) end
  call('PEXPIRE', lease_key, ttl) -- our own lost reply, or the client's own retry
  write_since(since_key, integer(since), ttl)
  call('HSET', term_key, 'until', integer(now + ttl), 'ttl', integer(ttl))
  return answer('won', now, term.token, ttl, 0, since, origin, nil, id)
end
if holder then
  note_token(term_key, term, floor) -- rule memory: another may be granted the next lease
  local heir = tenured and term.heir == id
  if heir then -- rule offer: an asker is there, may lead, and hears; for as long as it goes on asking
    note('HSET', term_key, 'ready', integer(now + math.floor(ttl * 3 / 20)))
    if term.ready <= now then publish(ARGV[10], 'ready', ARGV[11]) end
  end
  return answer('held', now, term.token, term.ttl, math.max(left, 1), 0, origin, tenured and 'lease' or 'foreign', holder,
    heir and 'heir')
end
if term.token < floor then -- rule memory: data was lost; the counter is restored, so that this arms once
  term.token, term.released, term.ttl = floor, false, hold_off -- rule careful-clamp
  term.hold = math.max(term.hold, now + hold_off)
  note('HDEL', term_key, 'nonce', 'released')
  note('HSET', term_key, 'token', integer(floor), 'armed', integer(guard), 'hold', integer(term.hold), 'ttl', integer(term.ttl))
end
if term.token == 0 and empty_wait > 0 then -- rule rollcall: ask who leads, wait a moment
  local hold = math.max(term.hold, term.asked + empty_wait) -- a guard that is on may be over sooner, and has asked nobody
  if unasked or hold > term.hold then -- rule longest-wait: of all who ask, from the first question on
    term.hold = hold
    call('HSET', term_key, 'hold', integer(hold), 'asked', integer(term.asked)) -- what is not noted would be asked anew for ever
  end
  if unasked then
    publish(ARGV[10], 'roll-call', ARGV[11])
    local young = booted and hold > term.asked + empty_wait
    return answer('rollcall', now, 0, term.ttl, hold - now, young and booted, origin, young and 'young' or 'empty')
  end
end
if term.hold > now then
  local asking = term.token == 0 and term.hold <= term.asked + empty_wait -- nothing but the roll-call holds
  local young = term.token == 0 and not asking and booted
  return answer('held', now, term.token, term.ttl, term.hold - now, young, origin, asking and 'empty' or young and 'young' or 'hold')
end
if not term.released and term.ends > now then -- rule until: the lease vanished before its end
  return answer('held', now, term.token, term.ttl, term.ends - now, 0, origin, 'until')
end
if term.reserved > now and term.heir and term.heir ~= id then -- rule reserve: it only refuses, and after every other reason
  publish(ARGV[10], 'named', ARGV[11], ',"instance":"' .. term.heir .. '"') -- rule wake-named
  return answer('held', now, term.token, term.ttl, term.reserved - now, 0, origin, 'reserved')
end

if rank and term.best and term.rank > rank then -- another: who is the best itself has its own rank noted above
  local ends = math.max(term.ends, term.hold) + tonumber(ARGV[14]) -- rule yield-bound: it begins with the vacancy
  local awaited = term.reserved > now and term.heir == id -- by all others, the best among them: they are refused for its sake
  if ends > now and not awaited then -- rule yield: it only refuses, and after every other reason
    publish(ARGV[10], 'named', ARGV[11], ',"instance":"' .. term.best .. '"') -- rule wake-named
    return answer('held', now, term.token, term.ttl, ends - now, 0, origin, 'yield')
  end
end

local token = math.max(term.token + 1, floor + 1, term.known + 1, now) -- rule time
local since = math.floor(now / 1000)
local failed = take(integer(token), now, read_since(since_key) ~= nil and integer(since))
if failed then return failed end
if term.best == id then call('HDEL', term_key, 'best', 'best_rank', 'best_until') end
local last -- how the last term ended, if its leader has not said so
if term.token > 0 and not term.released then
  last = term.nonce and 'lapsed' or 'forgotten' -- Redis has lost the data of that term, and knows of its token by hearsay
  tell_terms(terms_key, 'ended', integer(term.token), term.nonce and term.holder, term.nonce and term.ends or 0, 'reason', last)
  tell_log(KEYS[5], 'ended', term.nonce and cut(term.holder or '') or '', 'role', ARGV[11], 'token', integer(term.token), 'reason', last)
end
tell_taken(integer(token), now)
return answer('won', now, token, ttl, 0, since, origin, last, id)

--@ shortcut renew, renew_all
-- lately reports whether a duration was named less than a period ago.
local function lately(at, now, period) return at and #at <= 16 and string.find(at, '^%d+$') and math.abs(now - at) <= period end

-- renewed makes the renewal that nearly all are, at less than half of the cost: the lease is of this very term, the history is the one that the
-- term hash was written under, and there is no other candidate to be told of. The keys are those that end with the last-th. It writes what
-- the script would. Whatever is otherwise, a command that is refused too, is left to the script.
local function renewed(last, id, nonce, token, ttl, not_after, margin, longest, now, ends, origin)
  local try, lease, since, hash = redis.pcall, KEYS[last - 2], KEYS[last - 1], KEYS[last]
  if try('GET', lease) ~= id or type(try('GET', since)) ~= 'string' then return false end
  local term, period = try('HMGET', hash, 'token', 'nonce', 'origin', 'longest', 'longest_at', 'margin', 'margin_at', 'heir', 'best'), tonumber(longest)
  return term[1] == token and token - now <= 3153600000000 and term[2] == nonce and now <= tonumber(not_after) and not term[8] and not term[9] and
    period <= 86400000 and term[4] == longest and (margin == '0' or term[6] == margin) and origin ~= '' and term[3] == origin and
    try('PEXPIRE', lease, ttl) == 1 and type(try('HSET', hash, 'until', ends, 'ttl', ttl)) == 'number' and try('PEXPIRE', since, ttl) == 1 and
    (lately(term[5], now, period) or type(try('HSET', hash, 'longest_at', now)) == 'number') and
    (margin == '0' or lately(term[7], now, period) or type(try('HSET', hash, 'margin_at', now)) == 'number')
end

--@ shortcut renew
-- A renewal that neither offers the lease nor has a higher token to be noted.
do
  local t, info = redis.pcall('TIME'), redis.pcall('INFO', 'replication')
  if t[1] and #t[1] <= 10 and type(info) == 'string' and not ARGV[13] and tonumber(ARGV[11]) <= tonumber(ARGV[3]) then
    local now, _, at = t[1] * 1000 + math.floor(t[2] / 1000), string.find(info, 'master_replid:', 1, true)
    local origin = at and string.match(info, '^%x+', at + 1) or ''
    if renewed(3, ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7], ARGV[12], now, now + ARGV[4], origin) then
      return 'kept ' .. now .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' 0 ' .. ARGV[10] .. ' ' .. origin .. ' - - - =' .. ARGV[1]
    end
  end
end

--@ renew
-- Keeps the lease of this very term, or takes it back if Redis lost data. Begins with a write that a full Redis allows.
-- ARGV: 1 instance ID, 2 nonce, 3 token, 4 TTL, 5 not-after (0: none), 6 hold-off, 7 failover margin, 8 replication id of the last
--       confirmation ('': unknown), 9 draining (1: never reclaim), 10 start of the term (Unix seconds), 11 floor, 12 TTL, or HoldOff if
--       that is longer, and while the lease is offered to another instance 13 its ID, or * for the best that asks, 14 channel, 15 role.
-- Verdicts: kept (reason reclaimed, if it was taken back) | lost (reason taken, foreign, released, vanished) | stale.
local lease_key, since_key, term_key = KEYS[1], KEYS[2], KEYS[3]
local id, nonce, token, ttl, not_after = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local named = math.max(token, tonumber(ARGV[11]))
local now = time()
if not_after > 0 and now > not_after then -- rule not-after
  note_token(term_key, read_term(term_key, now), named) -- rule memory-ended: late, but a witness of lost data
  return answer('stale', now)
end

local holder = call('GET', lease_key)
local term = read_term(term_key, now)
local tenured = tenured_by(term, holder)
local origin = history()
local elsewhere = origin ~= '' and origin ~= term.origin
local longest, margin, mentioned = careful(term, math.max(ttl, tonumber(ARGV[12])), tonumber(ARGV[7]), now, elsewhere)

-- offer notes to whom the lease is offered, and returns the mark ready if that one asks for it. A new offer, or none any more, forgets
-- what the last one has left. An open offer forgets the best too, and calls everybody: only who asks from now on is one.
local function offer()
  local heir = ARGV[13]
  if heir == term.heir then return heir and term.ready > now and 'ready' end
  call('HDEL', term_key, 'heir', 'reserved', 'ready')
  if heir == ANYONE then
    term.best = nil
    call('HDEL', term_key, 'best', 'best_rank', 'best_until')
  end
  if heir then
    call('HSET', term_key, 'heir', heir)
    publish(ARGV[14], 'named', ARGV[15], ',"instance":"' .. heir .. '"')
  end
end

local function keep(reason)
  local hold_off = math.max(tonumber(ARGV[6]), longest, term.ttl)
  if elsewhere then
    local hold = math.max(term.hold, now + hold_off + margin) -- rule arm-in-renew
    call('HSET', term_key, 'origin', origin, 'hold', integer(hold), 'armed', integer(hold_off + margin))
  end
  local since = read_since(since_key)
  if since then call('PEXPIRE', since_key, ttl) elseif since == false then call('SET', since_key, ARGV[10], 'PX', ttl) end
  term.token = token
  note_token(term_key, term, named)
  local mark = offer()
  if term.best and (term.best_until <= now or term.best_until > now + 2 * hold_off) then -- it has gone, or Redis's clock was set back
    term.best = nil
    call('HDEL', term_key, 'best', 'best_rank', 'best_until')
  end
  return answer('kept', now, token, ttl, 0, tonumber(ARGV[10]), origin, reason, id, mark, term.best and integer(term.rank) .. ':' .. term.best)
end

-- lost answers that the lease is not the asker's. It begins with a write without effect, which a full Redis allows and a replica
-- refuses: a replica may lag behind, and must not depose a leader.
local function lost(reason)
  call('HDEL', term_key, '-')
  note_token(term_key, term, named) -- rule memory-ended: this leader may be the only one that knows of its token
  return answer('lost', now, term.token, term.ttl, 0, 0, origin, reason, holder)
end

if holder == id and term.nonce == nonce and term.token == token then
  call('PEXPIRE', lease_key, ttl)
  call('HSET', term_key, 'until', integer(now + ttl), 'ttl', integer(ttl), unpack(mentioned))
  return keep()
end
local relic = tenured and term.token < token -- rule relic: the lease of an older term, which a promoted replica still shows
if holder and not relic and (holder ~= id or (term.nonce and term.nonce ~= nonce)) then -- rule nonce-holder
  return lost(tenured and 'taken' or 'foreign')
end
local known = origin ~= '' and ARGV[8] ~= ''
local lost_data = (known and origin ~= ARGV[8]) or term.token < token or not term.nonce
local mine = term.token < token or (term.token == token and (not term.nonce or term.nonce == nonce) and not term.released)
if lost_data and mine and ARGV[9] ~= '1' then -- rule reclaim
  call('SET', lease_key, id, 'PX', ttl)
  call('HSET', term_key, 'token', integer(token), 'nonce', nonce, 'holder', id, 'until', integer(now + ttl), 'ttl', integer(ttl),
    unpack(mentioned))
  call('HDEL', term_key, 'released')
  return keep('reclaimed')
end
return lost(term.released and 'released' or relic and 'taken' or 'vanished')

--@ renew_all
-- Renews the leases of many roles, each as if it were asked for alone: those of which renewed says that there is nothing else to be looked at.
-- KEYS: of each role its lease, start of the term, and term hash. ARGV: 1 instance ID, 2 TTL, 3 failover margin, 4 TTL, or HoldOff if
--       that is longer, and of each role its nonce, token, and not-after.
-- Replies with Redis's time, the replication id, and of each role 1, or 0: it is left to the script renew.
local now, origin = time(), history()
local ends, all = integer(now + ARGV[2]), {}
for n = 1, #KEYS / 3 do
  local last = 3 * n
  all[n] = renewed(last, ARGV[1], ARGV[last + 2], ARGV[last + 3], ARGV[2], ARGV[last + 4], ARGV[3], ARGV[4], now, ends, origin) and '1' or '0'
end
return integer(now) .. ' ' .. field(origin) .. ' ' .. table.concat(all)

--@ shortcut release
-- What nearly all that give a lease back are answered, at three fifths of the cost: it is theirs, was never given back, and is offered to nobody. It
-- answers and writes what the script would, in the same order, and leaves everything else to it, a command that is refused too: it repeats what was done.
do
  local try, find = redis.pcall, string.find
  local t, holder, begun = try('TIME'), try('GET', KEYS[1]), try('GET', KEYS[2])
  local term = try('HMGET', KEYS[3], 'token', 'nonce', 'holder', 'ttl', 'released', 'heir')
  local token, ttl = term[1], term[4]
  if t[1] and #t[1] <= 10 and holder == ARGV[1] and #holder <= 128 and type(begun) == 'string' and #begun <= 15 and find(begun, '^[1-9]%d*$') and
    token and #token <= 16 and find(token, '^[1-9]%d*$') and (ARGV[3] == '0' or ARGV[3] == token) and term[2] == ARGV[2] and term[3] == holder and
    ttl and #ttl <= 8 and find(ttl, '^[1-9]%d*$') and tonumber(ttl) <= 86400000 and not term[5] and not term[6] and tonumber(ARGV[6]) <= tonumber(token) then
    local now = t[1] * 1000 + math.floor(t[2] / 1000)
    if tonumber(token) <= now + 3153600000000 and type(try('HDEL', KEYS[3], 'ready', 'reserved')) == 'number' and
      type(try('HSET', KEYS[3], 'until', now, 'released', '1')) == 'number' then
      tell_terms(KEYS[4], 'ended', token, holder, math.max(now - ARGV[10], 0), 'reason', ARGV[9], 'since', begun)
      tell_log(KEYS[5], 'ended', holder, 'role', ARGV[5], 'token', token, 'reason', ARGV[9])
      if type(try('DEL', KEYS[1], KEYS[2])) == 'number' then
        publish(ARGV[4], 'vacant', ARGV[5])
        return 'done ' .. now .. ' ' .. token .. ' ' .. ttl .. ' 0 0 - - - - -'
      end
    end
  end
end

--@ release
-- Gives back what this campaign holds, and nothing else. Begins with a write that a full Redis allows. The vacancy is reserved for an
-- heir that has just asked for the lease; a release that is repeated reserves nothing again.
-- ARGV: 1 instance ID, 2 nonce, 3 token (0: whatever this campaign was granted), 4 channel, 5 role, 6 floor, at the end of a transfer
--       7 ID of the heir ('': none), 8 for how many ms the vacancy is reserved, and for the history 9 why the term ended, 10 how many ms ago.
-- Verdict: done, whether there was anything to give back or not.
local lease_key, since_key, term_key, terms_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, nonce, token = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = time()
local term = read_term(term_key, now)
if term.nonce == nonce and (token == 0 or term.token == token) then
  call('HDEL', term_key, '-')
  local more = ''
  if not term.released then -- rule reserve-once
    call('HDEL', term_key, 'ready', 'reserved')
    call('HSET', term_key, 'until', integer(now)) -- the vacancy begins
    if ARGV[7] and term.heir == ARGV[7] and term.ready > now then -- rule ready-fresh
      local window = math.min(tonumber(ARGV[8]), RESERVE)
      call('HSET', term_key, 'reserved', integer(now + window)) -- rule reserve-bound
      more = ',"instance":"' .. term.heir .. '","wait":' .. integer(window)
    else
      call('HDEL', term_key, 'heir')
    end
  end
  if not term.released then -- rule told-once
    tell_terms(terms_key, 'ended', integer(term.token), term.holder, math.max(now - ARGV[10], 0), 'reason', ARGV[9], 'since',
      integer(natural(read_since(since_key))))
    tell_log(KEYS[5], 'ended', cut(term.holder or ''), 'role', ARGV[5], 'token', integer(term.token), 'reason', ARGV[9])
  end
  call('HSET', term_key, 'released', '1')
  local holder = call('GET', lease_key)
  if holder == id then
    call('DEL', lease_key)
    if read_since(since_key) then call('DEL', since_key) end
    publish(ARGV[4], 'vacant', ARGV[5], more)
  elseif term.ends > now and not holder then -- an operator's DEL: others wait for what would have been its end
    publish(ARGV[4], 'vacant', ARGV[5], more)
  end
else
  call('HDEL', term_key, '-') -- without effect; a replica, which may not have seen the lease yet, refuses it
end
note_token(term_key, term, math.max(token, tonumber(ARGV[6]))) -- rule memory-ended
return answer('done', now, term.token, term.ttl)

--@ leader
-- Reads who leads. Writes nothing.
-- Verdicts: held (token 0: a foreign client) | free.
local now = time()
local holder = call('GET', KEYS[1])
if not holder then return answer('free', now) end
local term = read_term(KEYS[3], now)
local tenured = tenured_by(term, holder)
return answer('held', now, tenured and term.token or 0, term.ttl, call('PTTL', KEYS[1]), natural(read_since(KEYS[2])), term.origin,
  tenured and 'lease' or 'foreign', holder)

--@ forget_role
-- Removes the history of the terms of a role that nobody leads. The term hash stays: if the role comes back, its tokens go on.
-- KEYS: 4 history of terms. ARGV: 1 token of its last term, as it was read.
-- Verdicts: done | held | stale (there was another term since).
local now = time()
local holder, term = call('GET', KEYS[1]), read_term(KEYS[3], now)
if holder then return answer('held', now, tenured_by(term, holder) and term.token or 0, 0, 0, 0, nil, nil, holder) end
if term.token > tonumber(ARGV[1]) then return answer('stale', now, term.token) end -- rule same-term
call('DEL', KEYS[4])
return answer('done', now, term.token)

--@ witness
-- Reads what this server tells scripts of its history. Writes nothing. KEYS: 1 lease.
-- Reply: the replication id, - if INFO is refused to scripts, or does not say it.
return field((history()))

-- The task scripts all take KEYS: 1 record of the task, but for what they name beside it. They reply with a list: verdict, Redis's
-- time (ms), then the fields of the record as it now stands, in the order of task_fields.

--@ prelude tasks
local task_fields = { 'next', 'spec', 'token', 'run', 'done', 'status', 'last_scheduled', 'last_started', 'last_finished', 'attempt',
  'crashes', 'skipped', 'paused', 'instance', 'run_token', 'error', 'failures', 'retry_at', 'lease', 'pauses', 'trigger', 'run_trigger',
  'args', 'retry_in', 'last_success', 'failed_runs', 'pause', 'cancel', 'trigger_runs', 'last_pause' }

-- compared are the texts that a later request names as it has read them: the reply has to give them as they are compared. What is
-- too long for a reply, or not plain ASCII, was not written by tenure.
local compared = { 'spec', 'run', 'done', 'pauses', 'trigger', 'cancel' }

-- read_task reads the record of a task. One that says by whom, or until when, in a way that tenure does not write is refused:
-- nothing is claimed, nor repaired, on top of it.
local function read_task(key, now)
  local raw = call('HMGET', key, unpack(task_fields))
  local task = {}
  for i, name in ipairs(task_fields) do task[name] = raw[i] or '' end
  for _, name in ipairs(compared) do
    if #task[name] > 1024 or string.find(task[name], '[^ -~]') then task[name] = '' end
  end
  local token = natural(task.token)
  if task.token ~= '' and (token <= 0 or token > MAX_TOKEN or token > now + CENTURY) then
    refuse('BADTASK the field token holds no fencing token [HGET ' .. key .. ']')
  end
  local due = natural(task.next)
  if task.next ~= '' and task.next ~= '0' and (due == 0 or due > now + CENTURY) then
    refuse('BADTASK the field next holds no due time [HGET ' .. key .. ']')
  end
  task.fence = token
  return task
end

local function task_answer(verdict, now, task)
  local reply = { verdict, integer(now) }
  for i, name in ipairs(task_fields) do reply[i + 2] = string.sub(task[name], 1, 1024) end
  return reply
end

-- set writes fields of the record, and keeps what the reply will say in step.
local function set_task(key, task, fields)
  local args = {}
  for name, value in pairs(fields) do
    task[name] = value
    args[#args + 1] = name
    args[#args + 1] = value
  end
  call('HSET', key, unpack(args))
end

-- The history shows so many bytes of an error. The record has more of that of the last run.
local MAX_RUN_ERROR = 120
local function short(text)
  if #text <= MAX_RUN_ERROR then return text end
  local last = MAX_RUN_ERROR - #'…'
  while last > 0 and string.find(text, '^[\128-\191]', last + 1) do last = last - 1 end -- rule whole-characters
  return string.sub(text, 1, last) .. '…'
end

-- entry is the last run of the record as the history will show it.
local function entry(now, task, run, status, text)
  return { 'run', run, 'slot', task.last_scheduled, 'started', task.last_started, 'finished', integer(now), 'status', status,
    'attempt', task.attempt, 'token', task.run_token, 'instance', task.instance, 'error', short(text), 'trigger', task.run_trigger }
end

-- A trigger that waits is one text: '<ID> <end of its time, ms> <instance that asked>'. Its arguments are in trigger_args, and go to
-- args with the run. triggered are the IDs of the last KEPT_TRIGGERS that were claimed, trigger_runs counts all of them: one that is
-- asked for again runs once.
local KEPT_TRIGGERS = 32
local function trigger_id(text) return string.match(text, '^%S+') or '' end
local function trigger_ends(text) return natural(string.match(text, '^%S+ (%S+)') or '') end

-- end_trigger takes the trigger that waits out of the record and of the index.
local function end_trigger(key, index, name, task)
  call('HDEL', key, 'trigger', 'trigger_args')
  note('ZREM', index, name)
  task.trigger = ''
end

local function triggered(key) return string.sub(call('HGET', key, 'triggered') or '', 1, 1024) end

-- with_trigger puts the ID of a trigger before those of the ones that were claimed last.
local function with_trigger(id, claimed)
  local kept, ids = 1, id
  for other in string.gmatch(claimed, '%S+') do
    if kept < KEPT_TRIGGERS then kept, ids = kept + 1, ids .. ' ' .. other end
  end
  return ids
end

-- Redis frees what was cut off from a stream by whole blocks of 4096 bytes. So a short history is written anew before it needs another
-- block: the field block of the record is about how many bytes this one has.
local SHORT = 16 -- runs
local BLOCK = 3800
local function size_of(run)
  local size = 40
  for i = 2, #run, 2 do size = size + #run[i] end
  return size
end

-- rewrite keeps the youngest runs only, and gives the size of what there is then.
local function rewrite(runs, most)
  local kept, size = call('XREVRANGE', runs, '+', '-', 'COUNT', most), 0
  for _, run in ipairs(kept) do
    if #run[2] > 40 then return 0 end -- not tenure's
    size = size + size_of(run[2])
  end
  call('DEL', runs)
  for i = #kept, 1, -1 do call('XADD', runs, kept[i][1], unpack(kept[i][2])) end
  return size
end

-- remember keeps the youngest runs, as many as the caller says. It comes last: if Redis refuses it, the error is reported, and the
-- call asked again answers that it was done.
local function remember(key, runs, keep, run)
  local most, expiry = string.match(keep, '^(%d+) ?(%d*)$') -- how many, and for how many ms after the last one, if not for ever
  if most == '0' then return end
  if tonumber(most) <= SHORT then
    local block = natural(call('HGET', key, 'block') or '')
    if block + size_of(run) > BLOCK then block = rewrite(runs, math.max(1, most - 1)) end -- rule one-block
    call('HSET', key, 'block', integer(block + size_of(run)))
  end
  local reply = redis.pcall('XADD', runs, 'MAXLEN', most, '*', unpack(run))
  if type(reply) ~= 'table' or not reply.err then
    if expiry ~= '' then note('PEXPIRE', runs, expiry) end
    return
  end
  local text = reply.err
  if string.sub(text, 1, 4) == 'ERR ' then text = 'BADRUNS ' .. string.sub(text, 5) end -- the last ID that there can be is taken
  refuse(text .. ' [XADD ' .. runs .. ']')
end

--@ open_task
-- Fences the record for a new leader, and puts the task into the index. Tokens of two leases say nothing of each other: a record that
-- is another lease's is taken over once that lease has no holder, or one that does not know the task: it would have opened the record.
-- KEYS: 2 index, 3 the lease that the record was another's of when it was read, if there was one that may be asked for, 4 its since key,
--       5 its term hash.
-- ARGV: 1 token, 2 name, 3 own lease ('': there is only one), 4 text of the schedule, 5 jitter in ms: for people, no rule reads them,
--       6 ms for which a leader must have led that does not know the task.
-- Verdicts: ok | fenced | foreign (another lease's).
local now, token = time(), tonumber(ARGV[1])
local task = read_task(KEYS[1], now)
local foreign = task.lease ~= '' and task.lease ~= ARGV[3]
if foreign and KEYS[3] ~= task.lease then return task_answer('foreign', now, task) end -- rule one-lease
if foreign and call('EXISTS', KEYS[3]) == 1 then
  local since = natural(read_since(KEYS[4]) or '')
  local unknown = since > 0 and since * 1000 <= now - ARGV[6] and natural(call('HGET', KEYS[5], 'token') or '') > task.fence -- rule moved-task
  if not unknown then return task_answer('foreign', now, task) end
end
if not foreign and token < task.fence then return task_answer('fenced', now, task) end -- rule task-fence
local said = call('HMGET', KEYS[1], 'schedule', 'jitter')
if token ~= task.fence or task.lease ~= ARGV[3] or said[1] ~= ARGV[4] or said[2] ~= ARGV[5] then
  set_task(KEYS[1], task, { token = integer(token), lease = ARGV[3], schedule = ARGV[4], jitter = ARGV[5] })
end
call('SADD', KEYS[2], ARGV[2])
return task_answer('ok', now, task)

--@ plan_task
-- Moves the next slot without a run: for a new record, a changed schedule, slots that are skipped.
-- ARGV: 1 token, 2 next slot as it was read ('': none), 3 next slot, 4 hash of the spec, 5 slots skipped, 6 whether the task was paused
--       before its record was lost (1 or 0), 7 by whom and why.
-- Verdicts: ok | moved | fenced.
local now, token = time(), tonumber(ARGV[1])
local task = read_task(KEYS[1], now)
if token < task.fence then return task_answer('fenced', now, task) end -- rule task-fence
if token > task.fence then return task_answer('moved', now, task) end -- the record was lost since it was opened
if task.next == ARGV[3] and task.spec == ARGV[4] then return task_answer('ok', now, task) end -- done before: skipped is counted once
if task.next ~= ARGV[2] then return task_answer('moved', now, task) end
local fields = { next = ARGV[3], spec = ARGV[4], skipped = integer(natural(task.skipped) + tonumber(ARGV[5])) }
if ARGV[6] == '1' and task.pauses == '' then fields.paused, fields.pause = '1', ARGV[7] end -- nobody has paused or resumed it since
set_task(KEYS[1], task, fields)
return task_answer('ok', now, task)

--@ shortcut claim_task, finish_task
-- What nearly all runs are, at two thirds of the cost: a due slot that is claimed, and ends well. Both write and answer what the scripts would, errors
-- too, and leave everything else to them before they have written anything.

-- quiet_task reads the record of the task, and gives Redis's time and the fields, with block behind those of a reply; nil if the record is
-- not this leader's, or has something of which only read_task says what it is.
local function quiet_task()
  local find, t = string.find, redis.pcall('TIME')
  local task = redis.pcall('HMGET', KEYS[1], 'next', 'spec', 'token', 'run', 'done', 'status', 'last_scheduled', 'last_started', 'last_finished',
    'attempt', 'crashes', 'skipped', 'paused', 'instance', 'run_token', 'error', 'failures', 'retry_at', 'lease', 'pauses', 'trigger', 'run_trigger',
    'args', 'retry_in', 'last_success', 'failed_runs', 'pause', 'cancel', 'trigger_runs', 'last_pause', 'block')
  if t.err or #t[1] > 10 or task.err then return end
  for i = 1, 31 do
    if not task[i] then
      task[i] = ''
    elseif #task[i] > 1024 then
      return
    end
  end
  local now, due, token = t[1] * 1000 + math.floor(t[2] / 1000), task[1], task[3]
  if token == ARGV[1] and find(token, '^[1-9]%d*$') and #token <= 16 and tonumber(token) <= now + 3153600000000 and
    find(due, '^[1-9]%d*$') and #due <= 16 and tonumber(due) <= now + 3153600000000 and
    not find(task[2] .. task[4] .. task[5] .. task[20] .. task[21] .. task[28], '[^ -~]') then
    return now, task
  end
end

-- joined is a reply in one text, a line each, unless that could be taken for another one.
local function joined(reply)
  return string.find(table.concat(reply), '[^ -~]') and reply or table.concat(reply, '\n')
end

--@ shortcut claim_task
do
  local now, task
  if ARGV[3] == 'slot' and ARGV[9] == '0' then now, task = quiet_task() end
  if now and task[1] == ARGV[4] and task[2] == ARGV[7] and now >= tonumber(ARGV[5]) and task[4] == '' and task[5] ~= ARGV[2] and task[13] ~= '1' and
    task[20] == ARGV[13] and task[22] .. task[23] == '' then
    local at, skipped = now .. '', task[12] == '' and '0' or task[12]
    if skipped == '0' or #skipped <= 15 and string.find(skipped, '^[1-9]%d*$') then
      return refused('HSET', KEYS[1], 'next', ARGV[6], 'run', ARGV[2], 'status', 'running', 'last_scheduled', ARGV[5], 'last_started', at,
        'attempt', ARGV[10], 'skipped', skipped, 'instance', ARGV[8], 'run_token', ARGV[1], 'failures', '0', 'retry_at', '0') or
        refused('SADD', KEYS[3], ARGV[11]) or
        joined { 'claimed', at, ARGV[6], task[2], task[3], ARGV[2], task[5], 'running', ARGV[5], at, task[9], ARGV[10], task[11], skipped, task[13], ARGV[8],
          ARGV[1], task[16], '0', '0', task[19], task[20], task[21], '', '', task[24], task[25], task[26], task[27], task[28], task[29], task[30] }
    end
  end
end

--@ claim_task
-- Claims a slot for one run. The answer to a run ID that has been claimed is the same however often it is asked for. The index is
-- written again, in case it was lost. KEYS: 2 history, 3 index, 4 index of triggers.
-- ARGV: 1 token, 2 run ID, 3 kind (slot: a due slot | again: the run that another leader left behind | extra: no slot | trigger: what
--       was triggered), 4 what is to be there still (slot: the next slot; again: ID of the run left behind; extra: when a run last
--       ended; trigger: the trigger that waits), 5 slot, 6 the slot after it, 7 hash of the spec, 8 instance ID, 9 slots skipped, 10 attempt, 11 name of the task, 12 runs that the
--       history keeps (0: none is added), 13 how often the task was paused or resumed, as it was read.
-- Verdicts: claimed | early | paused | moved | expired (the trigger was too old, and is gone) | fenced.
local now, token, run, kind = time(), tonumber(ARGV[1]), ARGV[2], ARGV[3]
local task = read_task(KEYS[1], now)
if token < task.fence then return task_answer('fenced', now, task) end -- rule task-fence
if task.run == run then return task_answer('claimed', now, task) end -- rule same-claim: our own lost reply, or the client's own retry
if token > task.fence or task.done == run or (task.run ~= '' and kind ~= 'again') then return task_answer('moved', now, task) end

local lost -- the run that a dead leader left behind
local fields = { run = run, status = 'running', last_started = integer(now), attempt = ARGV[10], instance = ARGV[8], run_token = ARGV[1],
  retry_at = '0' }
if kind == 'slot' then
  if task.next ~= ARGV[4] or task.spec ~= ARGV[7] then return task_answer('moved', now, task) end -- rule once
  if now < tonumber(ARGV[5]) then return task_answer('early', now, task) end -- rule redis-clock
  if task.paused == '1' then
    set_task(KEYS[1], task, { next = ARGV[6] })
    return task_answer('paused', now, task)
  end
  if task.pauses ~= ARGV[13] then return task_answer('moved', now, task) end -- rule pause-ended: the slot may be one of the pause
  fields.next, fields.last_scheduled, fields.failures = ARGV[6], ARGV[5], '0'
  fields.skipped = integer(natural(task.skipped) + tonumber(ARGV[9]))
elseif kind == 'trigger' then
  if task.trigger == '' or task.trigger ~= ARGV[4] then return task_answer('moved', now, task) end -- rule trigger-once
  if trigger_ends(task.trigger) <= now then -- rule trigger-ends
    end_trigger(KEYS[1], KEYS[4], ARGV[11], task)
    return task_answer('expired', now, task)
  end
  if task.paused == '1' then return task_answer('paused', now, task) end
  fields.last_scheduled, fields.failures = integer(now), '0'
  fields.run_trigger, fields.args = trigger_id(task.trigger), call('HGET', KEYS[1], 'trigger_args') or ''
  fields.triggered = with_trigger(fields.run_trigger, triggered(KEYS[1]))
  fields.trigger_runs = integer(natural(task.trigger_runs) + 1)
else
  if kind == 'again' and task.run ~= ARGV[4] and (task.run ~= '' or task.done ~= ARGV[4]) then return task_answer('moved', now, task) end
  if kind == 'again' and task.cancel == ARGV[4] then return task_answer('moved', now, task) end -- rule canceled: it is not run again
  if kind == 'extra' and natural(task.last_finished) ~= tonumber(ARGV[4]) then return task_answer('moved', now, task) end -- rule once
  if task.paused == '1' then return task_answer('paused', now, task) end
  if kind == 'extra' then
    fields.last_scheduled, fields.failures = integer(now), '0'
  elseif task.run ~= '' then
    fields.crashes = integer(natural(task.crashes) + 1)
    lost = entry(now, task, task.run, 'abandoned', '')
  end
end
if (kind == 'slot' or kind == 'extra') and task.run_trigger .. task.args ~= '' then fields.run_trigger, fields.args = '', '' end
set_task(KEYS[1], task, fields)
if kind == 'trigger' then end_trigger(KEYS[1], KEYS[4], ARGV[11], task) end
note('SADD', KEYS[3], ARGV[11])
if lost then remember(KEYS[1], KEYS[2], ARGV[12], lost) end
return task_answer('claimed', now, task)

--@ retry_task
-- Notes that an attempt of a run has failed and that another one follows, before that begins: the leader of that time goes on from there.
-- Begins with a write that a full Redis allows.
-- ARGV: 1 token, 2 run ID, 3 the next attempt, 4 attempts that have failed, 5 ms until the next one.
-- Verdicts: ok | gone (no such run) | fenced.
local now, token = time(), tonumber(ARGV[1])
local task = read_task(KEYS[1], now)
if token < task.fence then return task_answer('fenced', now, task) end -- rule task-fence
if task.run ~= ARGV[2] then return task_answer('gone', now, task) end
if natural(task.attempt) < tonumber(ARGV[3]) then -- rule late-retry: else it was noted before, or is a late copy of an earlier one
  call('HDEL', KEYS[1], 'retry_at')
  set_task(KEYS[1], task, { attempt = ARGV[3], failures = ARGV[4], retry_at = integer(now + ARGV[5]), retry_in = ARGV[5] })
end
return task_answer('ok', now, task)

--@ shortcut finish_task
do
  local most, expiry = string.match(ARGV[8], '^(%d+) ?(%d*)$')
  local now, task
  if ARGV[3] == 'succeeded' and ARGV[4] .. ARGV[7] == '' and ARGV[5] ~= '' and ARGV[6] ~= '' and most ~= '0' and tonumber(most) <= 16 then
    now, task = quiet_task()
  end
  if now and task[4] == ARGV[2] then
    local at, attempt = now .. '', ARGV[5]
    local size, block = 49 + #ARGV[2] + #task[7] + #task[8] + #at + #attempt + #task[15] + #task[14] + #task[22], task[31]
    if #block <= 16 and string.find(block, '^%d+$') then size = size + block end
    if size <= 3800 then
      local failed = refused('HDEL', KEYS[1], 'run') or
        refused('HSET', KEYS[1], 'done', ARGV[2], 'status', 'succeeded', 'last_finished', at, 'attempt', attempt, 'crashes', '0', 'error', '',
          'failures', ARGV[6], 'last_success', at, 'failed_runs', '0', 'block', size)
      if failed then return failed end
      failed = refused('XADD', KEYS[2], 'MAXLEN', most, '*', 'run', ARGV[2], 'slot', task[7], 'started', task[8], 'finished', at,
        'status', 'succeeded', 'attempt', attempt, 'token', task[15], 'instance', task[14], 'error', '', 'trigger', task[22])
      if failed then return { err = (string.gsub(failed.err, '^ERR ', 'BADRUNS ')) } end
      return expiry ~= '' and refused('PEXPIRE', KEYS[2], expiry) or
        joined { 'done', at, task[1], task[2], task[3], '', ARGV[2], 'succeeded', task[7], task[8], at, attempt, '0', task[12], task[13], task[14], task[15],
          '', ARGV[6], task[18], task[19], task[20], task[21], task[22], task[23], task[24], at, '0', task[27], task[28], task[29], task[30] }
    end
  end
end

--@ finish_task
-- Ends a run, once; one that waits to be run again may be abandoned, and its leader did not die of it. Begins with a write that a full
-- Redis allows. Leaders that died in a row of the task are counted from the last run that came to an end. KEYS 2: history.
-- ARGV: 1 token, 2 run ID, 3 status (succeeded, failed, interrupted, abandoned, canceled; returned: claimed, never started), 4 error, 5 attempt
--       ('': leave it), 6 attempts that have failed ('': leave it), 7 ms until the next attempt ('': leave it), 8 runs that the history
--       keeps (0: this one is not added).
-- Verdicts: done | gone (no such run) | fenced.
local now, token, run, status = time(), tonumber(ARGV[1]), ARGV[2], ARGV[3]
local task = read_task(KEYS[1], now)
if token < task.fence then return task_answer('fenced', now, task) end -- rule task-fence
local waits = status == 'abandoned' and task.run == '' and task.done == run and (task.status == 'interrupted' or task.status == 'returned')
if task.run ~= run and not waits then
  if task.done == run then return task_answer('done', now, task) end
  if status == 'returned' and token == task.fence then
    set_task(KEYS[1], task, { done = run }) -- rule late-claim: the claim may still be on its way
  end
  return task_answer('gone', now, task)
end
call('HDEL', KEYS[1], 'run')
task.run = ''
if task.cancel == run and (status == 'interrupted' or status == 'returned') then status = 'canceled' end -- rule canceled
local fields = { done = run, status = status, last_finished = integer(now), error = ARGV[4] }
if ARGV[5] ~= '' then fields.attempt = ARGV[5] end
if ARGV[6] ~= '' then fields.failures = ARGV[6] end
if ARGV[7] ~= '' then fields.retry_at, fields.retry_in = integer(now + ARGV[7]), ARGV[7] end
if status == 'abandoned' and not waits then
  fields.crashes = integer(natural(task.crashes) + 1)
elseif status == 'succeeded' or status == 'failed' then
  fields.crashes = '0'
end
if status == 'succeeded' then
  fields.last_success, fields.failed_runs = integer(now), '0'
elseif status == 'abandoned' or status == 'failed' then
  fields.failed_runs = integer(natural(task.failed_runs) + 1)
end
set_task(KEYS[1], task, fields)
if status ~= 'returned' then remember(KEYS[1], KEYS[2], ARGV[8], entry(now, task, run, status, ARGV[4])) end
return task_answer('done', now, task)

--@ read_task
-- Reads the record. KEYS: 2 index of triggers, if they are to be listed. ARGV: 1 how many of them at most, 2 names of tasks with a
-- blank between two, if only those count: the first ones of the index may be others for as long as they wait.
-- Verdict: ok. Behind the record come the names of the tasks of which a trigger waits, the one that ends first before the others, with
-- a blank between two.
local now = time()
local reply = task_answer('ok', now, read_task(KEYS[1], now))
if KEYS[2] then
  call('ZREMRANGEBYSCORE', KEYS[2], '-inf', integer(now))
  local names = {}
  for name in string.gmatch(ARGV[2] or '', '%S+') do -- rule named-triggers
    if call('ZSCORE', KEYS[2], name) then names[#names + 1] = name end
  end
  if (ARGV[2] or '') == '' then names = call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'LIMIT', 0, ARGV[1]) end
  reply[#reply + 1] = table.concat(names, ' ')
end
return reply

--@ pause_task
-- Pauses a task, or lets it go on. Every one of both counts, so that a request that comes late, after another one, changes nothing.
-- last_pause is since when it is paused, and behind that when it was let go on.
-- ARGV: 1 whether it pauses (1 or 0), 2 the count as it was read, 3 by whom and why, for people: no rule reads it.
-- Verdicts: ok | absent | moved.
local now = time()
local task = read_task(KEYS[1], now)
if call('EXISTS', KEYS[1]) == 0 then return task_answer('absent', now, task) end
if task.pauses ~= ARGV[2] then return task_answer('moved', now, task) end -- rule pause-order
local since = task.paused == '1' and natural(string.match(task.last_pause, '^%d+$') or string.match(task.pause, '^%d+')) or 0
if since == 0 or since > now then since = now end
call('HDEL', KEYS[1], 'paused')
local fields = { pauses = integer(natural(task.pauses) + 1), pause = '' }
if ARGV[1] == '1' then
  fields.paused, fields.pause, fields.last_pause = '1', integer(now) .. ' ' .. ARGV[3], integer(since)
elseif task.paused == '1' then
  fields.last_pause = integer(since) .. ' ' .. integer(now)
end
task.paused = ''
set_task(KEYS[1], task, fields)
return task_answer('ok', now, task)

--@ cancel_task
-- Has the run that is on end, or ends one that waits to be run again. It names that run: one that comes late ends no other. The
-- leader looks at what is in the index of triggers too, in case the hint is lost. Begins with a write that a full Redis allows.
-- KEYS: 2 history, 3 index of triggers.
-- ARGV: 1 run ID, 2 name of the task, 3 ms for which the index has it, 4 channel, 5 error, 6 runs that the history keeps (0: none is added).
-- Verdicts: ok | absent | moved (that run is not on any more).
local now, run = time(), ARGV[1]
local task = read_task(KEYS[1], now)
if call('EXISTS', KEYS[1]) == 0 then return task_answer('absent', now, task) end
local waits = task.run == '' and task.done == run and (task.status == 'interrupted' or task.status == 'returned')
if task.cancel == run and (task.run == run or task.done == run) then return task_answer('ok', now, task) end -- our own lost reply
if task.run ~= run and not waits then return task_answer('moved', now, task) end
call('HDEL', KEYS[1], 'cancel')
local fields = { cancel = run }
if waits then fields.status, fields.error = 'canceled', ARGV[5] end
set_task(KEYS[1], task, fields)
note('ZADD', KEYS[3], 'GT', integer(now + ARGV[3]), ARGV[2])
publish(ARGV[4], 'triggered', '', ',"task":"' .. ARGV[2] .. '"')
if waits then remember(KEYS[1], KEYS[2], ARGV[6], entry(now, task, run, 'canceled', ARGV[5])) end
return task_answer('ok', now, task)

--@ forget_task
-- Removes the record of a task that the leader of its role does not know, with its history. A leader has opened what it knows within
-- a minute. KEYS: 2 history, 3 index, 4 index of triggers, 5 lease, 6 its since key, 7 its term hash.
-- ARGV: 1 name of the task, 2 ms for which the leader must have led, -1: nobody may lead, since the role is removed too.
-- Verdicts: ok | absent | known (the leader has opened it, or that of another role) | unled (nobody has led for so long).
local now = time()
local task = read_task(KEYS[1], now)
if call('EXISTS', KEYS[1]) == 0 then
  call('SREM', KEYS[3], ARGV[1]) -- a trigger whose record was refused has left its name there
  call('ZREM', KEYS[4], ARGV[1])
  return task_answer('absent', now, task)
end
if task.lease ~= '' and task.lease ~= KEYS[5] then return task_answer('known', now, task) end -- rule moved-orphan: another leader has it since it was read
local led = call('EXISTS', KEYS[5]) == 1
if ARGV[2] == '-1' then
  if led then return task_answer('known', now, task) end -- rule removed-role
else
  local since = natural(read_since(KEYS[6]) or '')
  if not led or since == 0 or since * 1000 > now - ARGV[2] then return task_answer('unled', now, task) end
  if natural(call('HGET', KEYS[7], 'token') or '') <= task.fence then return task_answer('known', now, task) end -- rule orphan
end
call('DEL', KEYS[1], KEYS[2])
call('SREM', KEYS[3], ARGV[1])
call('ZREM', KEYS[4], ARGV[1])
return task_answer('ok', now, task)

--@ trigger_task
-- Has the task run once, as soon as its leader can. One trigger waits at a time. KEYS: 2 index, 3 index of triggers.
-- ARGV: 1 ID, 2 arguments, 3 instance that asks, 4 not-after, 5 ms for which it waits at most, 6 whether a record is made if there is none
--       (1 or 0), 7 name of the task, 8 channel, 9 how many triggers had been claimed as it was read.
-- Verdicts: ok | absent | waiting (another one waits) | stale | moved (so many were claimed since that nobody knows whether it was).
local now = time()
local task = read_task(KEYS[1], now)
if trigger_id(task.trigger) == ARGV[1] then return task_answer('ok', now, task) end -- our own lost reply, or the client's own retry
for id in string.gmatch(triggered(KEYS[1]), '%S+') do
  if id == ARGV[1] then return task_answer('ok', now, task) end -- rule same-trigger: it was claimed since
end
if natural(task.trigger_runs) - tonumber(ARGV[9]) > KEPT_TRIGGERS then return task_answer('moved', now, task) end -- rule trigger-count
if now > tonumber(ARGV[4]) then return task_answer('stale', now, task) end
if ARGV[6] == '0' and call('EXISTS', KEYS[1]) == 0 then return task_answer('absent', now, task) end
if trigger_ends(task.trigger) > now then return task_answer('waiting', now, task) end -- rule one-trigger
local ends = integer(now + ARGV[5])
call('SADD', KEYS[2], ARGV[7]) -- the record is last: nothing is triggered by a call that Redis refuses in part
call('ZADD', KEYS[3], ends, ARGV[7])
set_task(KEYS[1], task, { trigger = ARGV[1] .. ' ' .. ends .. ' ' .. ARGV[3], trigger_args = ARGV[2] })
publish(ARGV[8], 'triggered', '', ',"task":"' .. ARGV[7] .. '"')
return task_answer('ok', now, task)

-- The registry scripts. An instance is a record in the hash of the instances, its last beat in the zset of the beats and a heartbeat
-- key. A record is JSON that is never decoded here: the client sends it in pieces between which Redis's time goes, and a status is
-- replaced where it stands. Other programs write records and heartbeat keys too, without an incarnation: such an instance is foreign.

--@ prelude registry
local MAX_RECORD = 65536
local MAX_METRICS = 128
local MAX_IDS = 3500 -- bytes of IDs in one hint; nobody reads a hint of more than 4096
local MAX_CHANGES = 4000 -- bytes of changes in one hint

-- is_id reports whether a text can be the ID of an instance. Anything else was put there by somebody else and is left alone.
local function is_id(id) return #id <= 128 and string.match(id, '^[A-Za-z0-9._:-]+$') ~= nil end

-- OWN is how a record of tenure begins: its fields in this order, without blanks. Any other record is foreign, whatever words it
-- has in it. The Go side reads it alike (ownRecord).
local OWN = '^{"instance_id":"[%w._:-]+","started_at":%d+,"last_heartbeat":%d+,"status":"[%w_-]*","worker_count":%d+,"incarnation":"([%w_-]+)"[,}]'
local function incarnation_of(record)
  local incarnation = string.match(record, OWN)
  if incarnation and #incarnation <= 64 then return incarnation end
end

-- The status of a record stands before its first nested object or list, which may have words of the same name. Within a JSON string
-- a quote has a backslash, so that none is found there.
local STATUS = '"status"%s*:%s*"([%w_-]*)"'
local function own_fields(record) return string.sub(record, 1, (string.find(record, '[{%[]', 2) or 0) - 1) end
local function status_of(record) return string.match(own_fields(record), STATUS) end

-- with_status replaces the status; nil if there is none, or if there are two.
local function with_status(record, status)
  local fields = own_fields(record)
  local from, to = string.find(fields, STATUS)
  if not from or string.find(fields, '"status"%s*:', to + 1) then return nil end
  return string.sub(record, 1, from - 1) .. '"status":"' .. status .. '"' .. string.sub(record, to + 1)
end

-- read_record gives the record, '' if it is too long to be one, nil if there is none.
local function read_record(key, id)
  if call('HSTRLEN', key, id) > MAX_RECORD then return '' end
  return call('HGET', key, id) or nil
end

-- The words are a zset of the instances that do not call themselves active, so that counting them needs no record: the score is the
-- last beat, in ms, within the band of the word. One that grows old counts no more, whatever became of it.
local BAND = 10000000000000 -- ms: until the year 2286
local JOINING, DRAINING, OTHER, STRANGE = 1, 2, 3, 4 -- strange: only who parses the record knows what it says
local BANDS = { joining = JOINING, draining = DRAINING, down = STRANGE }
local WORDLESS = '^%s*{.*}%s*$'

-- word gives the score in the words; nil if the instance is active, or marked, which counts by its age alone.
local function word(record, at)
  local status = status_of(record)
  if status == 'active' or status == 'drifted' or status == '' then return nil end
  if not status and string.find(record, WORDLESS) and not string.find(record, '"status"', 1, true) then return nil end
  return (status and (BANDS[status] or OTHER) or STRANGE) * BAND + math.max(0, math.min(at, BAND - 1))
end

-- plain reports whether a record that another program wrote is JSON for everybody, and says of itself what status_of finds. It takes none
-- for plain of which parsers may think differently: escapes, control characters in texts, numbers that JSON has not. It takes some 20 us.
local function plain(record)
  local ok, fields = pcall(cjson.decode, record)
  if not ok or type(fields) ~= 'table' or not string.find(record, WORDLESS) or string.find(record, '\\', 1, true) then return false end
  if fields.status ~= status_of(record) then return false end
  for text in string.gmatch(record, '"([^"]*)"') do
    if string.find(text, '%c') then return false end
  end
  for value in string.gmatch(string.gsub(record, '"[^"]*"', ''), '[^%s{}%[%]:,]+') do
    local whole, part, power = string.match(value, '^%-?(%d+)(%.?%d*)([eE]?[+-]?%d*)$')
    if not whole and value ~= 'true' and value ~= 'false' and value ~= 'null' then return false end
    if whole and (#whole > 1 and string.sub(whole, 1, 1) == '0' or part == '.' or power ~= '' and not string.find(power, '^[eE][+-]?%d+$')) then
      return false
    end
  end
  return true
end

-- foreign_word is word for a record that another program may have written.
local function foreign_word(record, at)
  local score = word(record, at)
  if score and score >= STRANGE * BAND or plain(record) then return score end
  return STRANGE * BAND + math.max(0, math.min(at, BAND - 1))
end

-- dirty is a write that changes nothing and that a full Redis allows: the writes after it in the script then pass too. If the key is something
-- else's it refuses, and so nothing has changed yet that nobody would hear of (rule spoilt-first).
local function dirty(beats) call('ZREMRANGEBYRANK', beats, 1, 0) end

-- say changes the words. Only counts rest on them: if the key is something else's, an instance is registered, and takes part, all the same.
local function say(command, words, ...)
  local failed = refused(command, words, ...)
  if failed and not string.find(failed.err, 'WRONGTYPE', 1, true) then refuse(failed.err) end -- rule words-aside
end

local function about(id, source) return ',"instance":"' .. id .. '","source":"' .. source .. '"' end

-- A hint takes some 10 us of Redis for each that hears it, and nothing rests on the hints of the registry. So if more than MANY hear one,
-- nobody publishes a change of an instance for APART for each of them. Such changes wait in the log. Whoever beats, leaves or looks for the
-- silent after that publishes the next of them, in their order and one message at a time: hints take a twelfth of a core at most, and no
-- script publishes for longer than one of them takes. Under the key: until when nobody publishes (ms), and the first entry of the log that
-- waits, "(" before one that does not and all behind it do, or "-".
local MANY = 500
local APART = 0.125 -- ms
local QUIET = 60000 -- ms, the longest
local FORGOTTEN = 3600000 -- ms: what nobody has told by then is in the log alone
local CHANGES = { joined = true, recovered = true, active = true, draining = true, drifted = true, down = true, left = true }

-- read_told reads the key. What waits is first, unless nothing does. foreign: the key cannot
-- be used, and all is told at once.
local function read_told(channel, log, key, now)
  local told, text = { channel = channel, log = log, key = key, now = now, ends = 0 }, redis.pcall('GETRANGE', key, 0, 63)
  told.foreign, told.there = type(text) ~= 'string', text ~= ''
  if told.foreign or not told.there then return told end
  told.ends, told.first = natural(string.match(text, '^(%d+) [%d(-]+$')), string.match(text, '^%d+ (%(?%d+%-%d+)$')
  if told.ends > now + QUIET then told.ends = 0 end -- Redis's clock was set back
  return told
end

-- keep_told notes how many have heard the last message, and what waits. Up to MANY need not be spared.
local function keep_told(told, heard)
  if told.foreign then return end
  if heard > MANY then told.ends = told.now + math.min(QUIET, math.ceil(heard * APART)) end
  if told.ends > told.now or told.first then
    redis.pcall('PEXPIRE', told.key, FORGOTTEN) -- a full Redis allows it, and then the write after it
    redis.pcall('SET', told.key, integer(told.ends) .. ' ' .. (told.first or '-'), 'PX', FORGOTTEN)
  elseif told.there then
    redis.pcall('DEL', told.key)
  end
end

-- behind reports whether an entry of a log lies behind another one.
local function behind(one, other)
  local at, number = string.match(one, '(%d+)%-(%d+)')
  local from, than = string.match(other, '(%d+)%-(%d+)')
  at, from, number, than = tonumber(at) or math.huge, tonumber(from), tonumber(number) or math.huge, tonumber(than)
  return at > from or at == from and number > than
end

-- subjects gives the instances of an entry of the log, and how many bytes of a hint they take; nil if they are none that tenure has written.
local function subjects(fields)
  local text, ids, size = fields.instances or '', {}, 0
  if not CHANGES[fields.event or ''] or fields.by and not is_id(fields.by) or fields.told or #text > MAX_IDS then return nil end
  for id in string.gmatch(text, '[^ ]+') do
    if not is_id(id) then return nil end
    ids[#ids + 1], size = id, size + #id + 3
  end
  if #ids > 0 and size <= MAX_IDS then return ids, size end
end

-- tell publishes what waits, as much of it as a message holds, unless it is to wait yet. What befell an instance stays in its order;
-- changes of one kind stand together as far as that allows.
local function tell(told)
  if not told.first or told.now < told.ends then return end
  local groups, latest, of, size, next = {}, {}, {}, 0, told.first
  for page = 1, 20 do
    local items, full = redis.pcall('XRANGE', told.log, next, '+', 'COUNT', 20), false
    if items.err then return end -- somebody else can
    for _, item in ipairs(items) do
      local fields = {}
      for j = 1, math.min(#item[2], 40), 2 do fields[item[2][j]] = item[2][j + 1] end
      local ids, needs = subjects(fields)
      local by = fields.by or ''
      if ids and size + needs + 2 * (#by + 60) > MAX_CHANGES then
        next, full = item[1], true
        break
      end
      for _, id in ipairs(ids or {}) do
        local alike = fields.event .. by
        local group = latest[alike]
        if not group or (of[id] or 0) > group then
          group = #groups + 1
          groups[group], latest[alike], size = { kind = fields.event, by = by, ids = {} }, group, size + #by + 60
        end
        table.insert(groups[group].ids, id)
        of[id], size = group, size + #id + 3
      end
      next = '(' .. item[1]
    end
    if #items < 20 and not full then next = nil end
    if full or not next then break end
  end
  for i, g in ipairs(groups) do
    groups[i] = '{"type":"' .. g.kind .. '","instances":["' .. table.concat(g.ids, '","') .. '"],"source":"' .. g.by .. '"}'
  end
  local heard = #groups == 0 and 0 or publish(told.channel, 'changed', '', ',"changes":[' .. table.concat(groups, ',') .. ']')
  if not heard then return end -- likewise
  told.first = next
  keep_told(told, heard)
end

-- happened adds to the log what befell instances, and publishes it unless it is to wait. Each message, and entry, names as many of them
-- as fit, since everybody reads all of them. source is the incarnation of the instance, or, if a leader has found it out, that of the leader.
local function happened(told, kind, ids, source, found)
  local start, size, most, first = 1, 0, nil, told.first
  local more = found and { 'by', source } or {}
  if told.foreign then more[#more + 1], more[#more + 2] = 'told', '1' end -- those for whom it waits do not tell it again
  for i, id in ipairs(ids) do
    size = size + #id + 3
    if i == #ids or size + #ids[i + 1] + 3 > MAX_IDS then
      local list = table.concat(ids, ' ', start, i)
      local added = tell_log(told.log, kind, list, unpack(more))
      if added and (told.first or told.now < told.ends) then
        if not told.first or behind(told.first, added) then told.first = added end
      else
        list = found and '"instances":["' .. string.gsub(list, ' ', '","') .. '"]' or '"instance":"' .. id .. '"'
        local heard = publish(told.channel, kind, '', ',' .. list .. ',"source":"' .. source .. '"')
        most = heard and math.max(most or 0, heard) or most
        if heard and heard > MANY and not told.foreign then told.ends = told.now + 1 end -- the rest of a long list waits
      end
      start, size = i + 1, 0
    end
  end
  if most or told.first ~= first then keep_told(told, most or 0) end
end

--@ shortcut beat
-- What nearly all heartbeats are: the record is of this very incarnation, is active and stays so, and there is nothing to be published. It writes and
-- answers what the script would, and leaves everything else to it, a command that is refused too.
do
  local try, match = redis.pcall, string.match
  local t, record, text = try('TIME'), try('HGET', KEYS[2], ARGV[1]), try('GETRANGE', KEYS[7], 0, 63)
  if t[1] and #t[1] <= 10 and type(record) == 'string' and type(text) == 'string' and not KEYS[8] and ARGV[3] == '0' and ARGV[9] ~= '0' then
    local now, not_after = t[1] * 1000 + math.floor(t[2] / 1000), tonumber(ARGV[4])
    local ends = match(text, '^(%d+) ')
    ends = ends and #ends <= 16 and tonumber(ends) or now
    local incarnation = match(record, '^{"instance_id":"[%w._:-]+","started_at":%d+,"last_heartbeat":%d+,"status":"active","worker_count":%d+,"incarnation":"([%w_-]+)"[,}]')
    if incarnation == ARGV[2] and #incarnation <= 64 and (not_after == 0 or now <= not_after) and match(ARGV[10], '^,"status":"active"') and
      (text == '' or match(text, '%-$') or ends > now and ends <= now + 60000) and
      not try('SET', KEYS[1], t[1], 'EX', ARGV[5]).err and
      type(try('HSET', KEYS[2], ARGV[1], ARGV[8] .. ARGV[9] .. ',"last_heartbeat":' .. t[1] .. ARGV[10])) == 'number' and
      type(try('ZADD', KEYS[3], now, ARGV[1])) == 'number' then
      local commands, all = try('EXISTS', KEYS[5]), try('ZCARD', KEYS[3])
      if type(commands) == 'number' and type(all) == 'number' then
        return 'kept ' .. now .. ' ' .. ARGV[9] .. ' ' .. incarnation .. ' ' .. commands .. ' ' .. all
      end
    end
  end
end

--@ beat
-- Registers an instance, or keeps it registered. KEYS: 1 heartbeat, 2 instances, 3 beats, 4 log, 5 inbox, 6 words, 7 what was told, 8 metrics
-- (only if the beat carries some).
-- ARGV: 1 instance ID, 2 incarnation, 3 whether it was never registered before (1 or 0), 4 not-after (0: none), 5 TTL of the heartbeat in
--       seconds, 6 silence in ms after which the record of another incarnation is taken over, 7 channel, 8 record up to started_at,
--       9 started_at (0: now), 10 record after last_heartbeat, 11 seconds for which metrics are kept, 12 ... their names and values.
-- Reply: verdict, Redis's time (ms), started_at, the other incarnation, whether commands wait for the instance (1 or 0), how many instances beat.
-- Verdicts: joined | kept | recovered | overwritten (a record without incarnation was in place of ours) | duplicate (a younger
--           incarnation has replaced this one, nothing was changed) | stale.
local id, incarnation, now = ARGV[1], ARGV[2], time()
local not_after = tonumber(ARGV[4])
if not_after > 0 and now > not_after then return 'stale ' .. integer(now) .. ' 0 - 0 0' end
local record, told = call('HGET', KEYS[2], id), read_told(ARGV[7], KEYS[4], KEYS[7], now)
local other = record and incarnation_of(record)
local verdict = 'kept'
if not record then
  verdict = 'joined'
elseif other ~= incarnation then
  verdict = 'joined'
  if ARGV[3] == '0' and not other then
    verdict = 'overwritten'
  elseif ARGV[3] == '0' and now - (tonumber(call('ZSCORE', KEYS[3], id) or 0) or 0) < tonumber(ARGV[6]) then -- rule incarnation
    if now >= told.ends then
      keep_told(told, publish(ARGV[7], 'duplicate_id', '', about(id, incarnation)) or 0)
    end
    return 'duplicate ' .. integer(now) .. ' 0 ' .. string.sub(other, 1, 64) .. ' 0 0'
  end
elseif status_of(record) == 'drifted' then
  verdict = 'recovered'
end
local seconds = integer(math.floor(now / 1000))
local started = ARGV[9] == '0' and seconds or ARGV[9]
call('PEXPIRE', KEYS[1], ARGV[5] * 1000) -- a full Redis allows it, and then the writes after it
call('SET', KEYS[1], seconds, 'EX', ARGV[5])
call('HSET', KEYS[2], id, ARGV[8] .. started .. ',"last_heartbeat":' .. seconds .. ARGV[10])
call('ZADD', KEYS[3], integer(now), id)
if KEYS[8] then -- nothing rests on metrics: a Redis that refuses them, as one that is full does, keeps the beat
  redis.pcall('DEL', KEYS[8])
  redis.pcall('HSET', KEYS[8], unpack(ARGV, 12))
  redis.pcall('PEXPIRE', KEYS[8], ARGV[11] * 1000)
end
local was, status = record and status_of(record), status_of(ARGV[10])
local score = word(ARGV[10], now)
if score then
  say('ZADD', KEYS[6], integer(score), id)
elseif was ~= status then -- rule word-over: it has become active
  say('ZREM', KEYS[6], id)
end
tell(told)
if verdict == 'joined' or verdict == 'recovered' then
  happened(told, verdict, { id }, incarnation)
  was = verdict == 'recovered' and 'active'
end
if status ~= was and (status == 'active' or status == 'draining') then
  if verdict == 'kept' then happened(told, status, { id }, incarnation) else tell_log(KEYS[4], status, id) end
end
return verdict .. ' ' .. integer(now) .. ' ' .. started .. ' ' .. field(other and string.sub(other, 1, 64)) .. ' ' .. call('EXISTS', KEYS[5]) .. ' ' .. integer(call('ZCARD', KEYS[3]))

--@ deregister
-- Removes the record of this very incarnation. KEYS: 1 heartbeat, 2 instances, 3 beats, 4 log, 5 words, 6 what was told.
-- ARGV: 1 instance ID, 2 incarnation, 3 channel.
-- Verdicts: left | absent | other (the record is another incarnation's, nothing was changed).
local record = call('HGET', KEYS[2], ARGV[1])
if record and incarnation_of(record) ~= ARGV[2] then return 'other' end -- rule own-record
for _, key in ipairs({ KEYS[3], KEYS[5] }) do dirty(key) end -- rule spoilt-first
local there = call('HDEL', KEYS[2], ARGV[1])
call('DEL', KEYS[1])
call('ZREM', KEYS[3], ARGV[1])
call('ZREM', KEYS[5], ARGV[1])
if there == 0 then return 'absent' end
local told = read_told(ARGV[3], KEYS[4], KEYS[6], time())
tell(told)
happened(told, 'left', { ARGV[1] }, ARGV[2])
return 'left'

--@ look
-- Lists who has been silent, longest first, one page: O(log N + page). KEYS: 1 beats, 2 instances, 3 log, 4 what was told.
-- ARGV: 1 silence in ms from which an instance is listed, 2 score to go on from (-inf: the first page), 3 how many entries of
--       that score to pass over, 4 size of the page, 5 channel.
-- Reply: Redis's time (ms), records, beats, score and entries of it for the next page ('': there is none), then IDs.
local now = time()
if ARGV[2] == '-inf' and ARGV[3] == '0' then -- a beat lies ahead if Redis's clock was set back: it counts from now
  for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '(' .. integer(now + 1000), '+inf', 'LIMIT', 0, 100)) do
    call('ZADD', KEYS[1], 'XX', integer(now), id)
  end
end
local page = call('ZRANGEBYSCORE', KEYS[1], ARGV[2], integer(now - ARGV[1]), 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])
local last, ties, strange = ARGV[2], tonumber(ARGV[3]), {}
local reply = { integer(now), integer(call('HLEN', KEYS[2])), integer(call('ZCARD', KEYS[1])), '', '0' }
for i = 1, #page, 2 do
  if page[i + 1] ~= last then last, ties = page[i + 1], 0 end
  if is_id(page[i]) then
    ties = ties + 1
    reply[#reply + 1] = page[i]
  else
    strange[#strange + 1] = page[i]
  end
end
if #page >= 2 * tonumber(ARGV[4]) then reply[4], reply[5] = last, integer(ties) end
if #strange > 0 then call('ZREM', KEYS[1], unpack(strange)) end -- or they would count as silent for ever
tell(read_told(ARGV[5], KEYS[3], KEYS[4], now)) -- perhaps nobody beats
return reply

--@ sweep
-- Marks, or removes, the silent ones among the given instances. Who may be removed is decided here alone, from what Redis keeps:
-- so a repeated request, and leaders that follow on each other, share one cap.
-- KEYS: 1 beats, 2 instances, 3 hold, 4 removed, then the heartbeat of each, and at the end words, lost, log and what was told.
-- ARGV: 1 silence in ms after which an instance is drifted, 2 and down, 3 time in ms over which removals are counted against the cap,
--       4 whether the silent are marked, 5 and removed (1 or 0), 6 silence in ms of a foreign instance that nobody has watched (0: it was
--       watched), 7 channel, 8 incarnation of the leader, then IDs.
-- Reply: when the hold that runs began (ms; 0: none that this leader began), how many it held then, then a verdict for each: fresh |
--        beating (foreign) | recovered (foreign) | drifted | silent (marked before, or not to be marked) | down (removed) | left
--        (removed by somebody else before).
local now, beats, instances = time(), KEYS[1], KEYS[2]
local hold_key, removed_key, words, lost_key, log, told_key = KEYS[3], KEYS[4], KEYS[#KEYS - 3], KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]
local drifted, down, window, unwatched = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local marks, channel, source = ARGV[4] == '1', ARGV[7], ARGV[8]
local kept = window + 1000 -- ms that removals are
for _, key in ipairs({ beats, words, removed_key }) do dirty(key) end
for _, key in ipairs({ hold_key, lost_key }) do call('GET', key) end

local marked, removed, removed_keys, dead, hints, said, silenced = {}, {}, {}, {}, {}, {}, {} -- what is written at the end, each with one command

local function found(kind, id)
  hints[kind] = hints[kind] or {}
  table.insert(hints[kind], id)
  return kind
end

-- mark replaces the status of a record.
local function mark(id, record, status)
  local changed = with_status(record, status)
  if not changed then return false end
  marked[#marked + 1] = id
  marked[#marked + 1] = changed
  silenced[#silenced + 1] = id
  return true
end

-- First who is there, and when it last beat: a foreign instance has beaten if its heartbeat key is there, and counts as such from here.
local ids, reply, records, beaten, gone = {}, { '0', '0' }, {}, {}, {}
for i = 9, #ARGV do ids[i - 8] = ARGV[i] end
local scores = call('ZMSCORE', beats, unpack(ids))
for i, id in ipairs(ids) do
  local record = scores[i] and read_record(instances, id)
  if not scores[i] then
    reply[i + 2] = 'fresh'
  elseif not record then
    gone[#gone + 1] = id
    reply[i + 2] = found('left', id)
  else
    records[i], scores[i] = record, tonumber(scores[i]) or 0
    if not incarnation_of(record) then
      local at = scores[i]
      if call('EXISTS', KEYS[i + 4]) == 1 then
        at = now
        reply[i + 2] = status_of(record) == 'drifted' and mark(id, record, 'active') and found('recovered', id) or 'beating'
      elseif unwatched > 0 then
        at = math.max(at, now - unwatched)
      end
      if at ~= scores[i] then
        beaten[#beaten + 1] = integer(at)
        beaten[#beaten + 1] = id
        scores[i] = at
      end
      local score = foreign_word(record, at)
      if score then
        said[#said + 1] = integer(score)
        said[#said + 1] = id
      else
        silenced[#silenced + 1] = id
      end
    end
  end
end
if #gone > 0 then
  call('ZREM', beats, unpack(gone))
  call('ZREM', words, unpack(gone))
end
if #beaten > 0 then call('ZADD', beats, unpack(beaten)) end
if #said > 0 then call('ZADD', words, unpack(said)) end

-- read_hold reads the hold that runs: when it began, how many may still be removed while it runs, how many it held, and who began it.
local function read_hold()
  local text = call('GET', hold_key)
  if not text then return nil end
  local left = call('PTTL', hold_key)
  if left < 0 or left > down then call('PEXPIRE', hold_key, ARGV[2]) end -- nothing is held for longer
  local began, may, held, by = string.match(text, '^(%d+) (%d+) (%d+) ([%w_-]+)$')
  return { began = natural(began), may = natural(may), held = natural(held), by = by }
end

-- read_gone counts who was removed within the window. A removal lies ahead if Redis's clock was set back: it counts from now, as do
-- a thousand of them, and the rest for nothing. No entry counts for longer, even a forged one.
local function read_gone()
  local ahead, set_back = '(' .. integer(now + 1000), {}
  for _, id in ipairs(call('ZRANGEBYSCORE', removed_key, ahead, '+inf', 'LIMIT', 0, 1000)) do
    set_back[#set_back + 1] = integer(now)
    set_back[#set_back + 1] = id
  end
  if #set_back > 0 then
    call('ZADD', removed_key, unpack(set_back))
    call('ZREMRANGEBYSCORE', removed_key, ahead, '+inf')
  end
  local left = call('PTTL', removed_key)
  if left == -1 or left > kept then call('PEXPIRE', removed_key, kept) end
  return call('ZCOUNT', removed_key, '(' .. integer(now - window), '+inf')
end

-- Mass silence: who cannot be heard is not dead for certain. Of n instances at most max(1, n/4) are removed within the window. If
-- more are silent than may still be removed, the rest is held: nobody else is removed for as long as it takes to be down.
local removable, hold, begins = 0, nil, false
if ARGV[5] == '1' then
  local gone = read_gone()
  removable = math.max(1, math.floor((call('ZCARD', beats) + gone) / 4)) - gone -- rule cap
  hold = read_hold()
  if hold then
    removable = math.min(removable, hold.may) -- rule hold
  else
    local lost = call('ZCOUNT', beats, '-inf', integer(now - down))
    local silent = call('ZCOUNT', beats, '-inf', integer(now - drifted)) -- rule crowd: last beats lie up to an interval apart
    if lost > 0 and silent > removable then
      begins, removable = true, math.max(removable, 0)
      hold = { began = now, may = removable, held = silent - math.min(removable, lost), by = source }
    end
  end
end

local function judge(i, id)
  local silence = now - scores[i] -- rule re-check: it may have beaten since it was listed
  if silence >= down and removable > 0 then
    removable = removable - 1
    removed[#removed + 1] = id
    removed_keys[#removed_keys + 1] = KEYS[i + 4]
    dead[#dead + 1] = integer(now)
    dead[#dead + 1] = id
    return found('down', id)
  end
  if silence < drifted then return 'fresh' end
  if marks and status_of(records[i]) ~= 'drifted' and mark(id, records[i], 'drifted') then return found('drifted', id) end
  return 'silent'
end

for i, id in ipairs(ids) do reply[i + 2] = reply[i + 2] or judge(i, id) end
if hold then -- it is there before anybody is removed
  if hold.by == source then reply[1], reply[2] = integer(hold.began), integer(hold.held) end
  hold.may = hold.may - #dead / 2
  local text = integer(hold.began) .. ' ' .. integer(hold.may) .. ' ' .. integer(hold.held) .. ' ' .. (hold.by or '-')
  if begins then
    call('SET', hold_key, text, 'PX', ARGV[2])
    tell_log(log, 'held', '', 'count', integer(hold.held))
  elseif #dead > 0 then
    call('SET', hold_key, text, 'KEEPTTL')
  end
end
if #removed > 0 then
  call('SET', lost_key, integer(natural(call('GET', lost_key)) + #removed), 'PX', ARGV[2]) -- for people, no rule reads it
  call('ZREMRANGEBYSCORE', removed_key, '-inf', integer(now - window))
  call('ZADD', removed_key, unpack(dead))
  call('PEXPIRE', removed_key, kept)
  call('HDEL', instances, unpack(removed))
  call('ZREM', beats, unpack(removed))
  call('ZREM', words, unpack(removed))
  call('DEL', unpack(removed_keys))
end
if #marked > 0 then call('HSET', instances, unpack(marked)) end
if #silenced > 0 then call('ZREM', words, unpack(silenced)) end -- rule word-marked
for i = 1, 4 do call('ZREMRANGEBYSCORE', words, integer(i * BAND), integer(i * BAND + math.max(0, now - down))) end -- left by another version
local told = read_told(channel, log, told_key, now)
tell(told)
for _, kind in ipairs({ 'left', 'recovered', 'down', 'drifted' }) do happened(told, kind, hints[kind] or {}, source, true) end
return reply

--@ adopt
-- Takes records into the beats that are not there yet, as if they had beaten now. KEYS: 1 beats, 2 instances, 3 log, 4 words, 5 what
-- was told.
-- ARGV: 1 channel, 2 incarnation of the leader, then IDs.
-- Reply: the IDs of the foreign ones that were adopted.
local now, reply = time(), {}
for _, key in ipairs({ KEYS[1], KEYS[4] }) do dirty(key) end -- rule spoilt-first
for i = 3, #ARGV do
  local id = ARGV[i]
  local record = read_record(KEYS[2], id)
  if record and call('ZADD', KEYS[1], 'NX', integer(now), id) == 1 then
    local score = foreign_word(record, now)
    if score then call('ZADD', KEYS[4], integer(score), id) end
    if not incarnation_of(record) then reply[#reply + 1] = id end
  end
end
local told = read_told(ARGV[1], KEYS[3], KEYS[5], now)
tell(told)
happened(told, 'joined', reply, ARGV[2], true)
return reply

--@ count
-- Counts the instances, without a look at a record: O(log N). Writes nothing. KEYS: 1 instances, 2 beats, 3 words.
-- ARGV: 1 silence in ms after which an instance is drifted, 2 and down.
-- Reply: records, beats, then how many are down, drifted, and of the others joining, draining, of another word, and of none.
local now = time()
local fresh, down = math.max(0, now - ARGV[1]), math.max(0, now - ARGV[2])
local reply = {
  call('HLEN', KEYS[1]), call('ZCARD', KEYS[2]), call('ZCOUNT', KEYS[2], '-inf', integer(down)),
  call('ZCOUNT', KEYS[2], '(' .. integer(down), integer(fresh)),
}
for i = 1, 4 do reply[i + 4] = call('ZCOUNT', KEYS[3], '(' .. integer(i * BAND + fresh), '(' .. integer((i + 1) * BAND)) end
return table.concat(reply, ' ')

--@ scan
-- Reads a page of the instances. Writes nothing. KEYS: 1 instances, 2 beats.
-- ARGV: 1 cursor: that of Redis, and the run ID of the server, which has an order of its own: on another one, or after a restart, the
--       listing begins anew, 2 about how many, 3 all, or new: IDs that have no beat.
-- Reply: next cursor, Redis's time (ms), how many entries are none of an instance, then ID, last beat ('': none) and record of each.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or '' -- without the right to it there is none
end
local cursor, of = string.match(ARGV[1], '^(%d+) ?(%x*)$')
local server = of and of ~= '' and run_id() or ''
if server ~= '' and server ~= of then cursor = '0' end -- rule same-server
local found = call('HSCAN', KEYS[1], cursor or ARGV[1], 'COUNT', ARGV[2])
if found[1] ~= '0' and server == '' then server = run_id() end
local fields, new = found[2], ARGV[3] == 'new'
local ids, records, malformed = {}, {}, 0
for i = 1, #fields, 2 do
  if is_id(fields[i]) and (new or #fields[i + 1] <= MAX_RECORD) then
    ids[#ids + 1] = fields[i]
    records[#ids] = fields[i + 1]
  else
    malformed = malformed + 1
  end
end
local reply = { found[1] .. (server ~= '' and ' ' .. server or ''), integer(time()), integer(malformed) }
for first = 1, #ids, 500 do
  local last = math.min(first + 499, #ids)
  local scores = call('ZMSCORE', KEYS[2], unpack(ids, first, last))
  for i = first, last do
    local score = scores[i - first + 1]
    if not new or not score then
      reply[#reply + 1] = ids[i]
      reply[#reply + 1] = score or ''
      reply[#reply + 1] = new and '' or records[i]
    end
  end
end
return reply

--@ read_log
-- Reads the log from an entry on. Writes nothing. KEYS: 1 log.
-- ARGV: 1 ID of the entry behind which it begins ('': at the oldest), 2 how many entries at most.
-- Reply: whether that entry is there (1 or 0; without it nothing is read), then ID, event, instances, role, token, reason and count of each.
local behind, most = ARGV[1], tonumber(ARGV[2])
local entries = call('XRANGE', KEYS[1], behind == '' and '-' or behind, '+', 'COUNT', most + 1)
local first = 1
if behind ~= '' then -- rule position: if it is gone, so may be what came after it
  if not entries[1] or entries[1][1] ~= behind then return { '0' } end
  first = 2
end
local reply = { '1' }
for i = first, math.min(#entries, first + most - 1) do
  local fields, pairs = {}, entries[i][2]
  for j = 1, #pairs, 2 do fields[pairs[j]] = pairs[j + 1] end
  reply[#reply + 1] = entries[i][1]
  for _, name in ipairs({ 'event', 'instances', 'role', 'token', 'reason', 'count' }) do
    reply[#reply + 1] = string.sub(fields[name] or '', 1, MAX_IDS)
  end
end
return reply

--@ losses
-- Reads who is held, and who was lost. Writes nothing. KEYS: 1 hold, 2 lost.
-- Reply: how many the hold that runs held when it began, how many sweeps have removed since none was for DownAfter.
local held = string.match(call('GET', KEYS[1]) or '', '^%d+ %d+ (%d+) [%w_-]+$')
return integer(natural(held)) .. ' ' .. integer(natural(call('GET', KEYS[2])))

--@ instance
-- Reads one instance. Writes nothing. KEYS: 1 instances, 2 beats. ARGV: 1 instance ID.
-- Reply: Redis's time (ms), whether there is a record (1 or 0), last beat ('': none), record.
local record = read_record(KEYS[1], ARGV[1])
return { integer(time()), record and '1' or '0', call('ZSCORE', KEYS[2], ARGV[1]) or '', record or '' }

--@ read_metrics
-- Reads what instances have pushed. Writes nothing. KEYS: the metrics of each.
-- Reply: for each how many there are (0 also if the key holds something else), then their names and values.
local reply = {}
for _, key in ipairs(KEYS) do
  local count = redis.pcall('HLEN', key)
  local names = {}
  if type(count) == 'number' and count <= MAX_METRICS then -- what somebody else has put there is not read as a whole
    for _, name in ipairs(call('HKEYS', key)) do
      if #name <= 64 and call('HSTRLEN', key, name) <= 32 then names[#names + 1] = name end
    end
  end
  local values = #names > 0 and call('HMGET', key, unpack(names)) or {}
  reply[#reply + 1] = integer(#names)
  for i, name in ipairs(names) do
    reply[#reply + 1] = name
    reply[#reply + 1] = values[i] or ''
  end
end
return reply

--@ aggregate
-- Adds an entry to the history of what all instances have pushed, once. KEYS: 1 stream. ARGV: 1 how many entries are kept, 2 mark of this
-- entry, 3 ... names and values.
local last = call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and last[2][1] == '@' and last[2][2] == ARGV[2] then return last[1] end -- rule aggregated-once
return call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*', '@', ARGV[2], unpack(ARGV, 3))

-- The scripts of commands: what somebody else asks of an instance. A command is an entry in the inbox of its instance, a hash with what
-- became of it, and two entries in the audit stream. Only sending appends to an inbox (RPUSH): that is a right of its own.

--@ prelude commands
local MAX_COMMAND = 4096 -- bytes of an entry
local MAX_WAITING = 100 -- entries of an inbox
local AUDITED = 1000 -- entries of the audit stream
local REMEMBERED = 600000 -- ms for which it is known what became of a command

-- audit adds an entry to the stream. One that somebody has spoilt, and a full Redis, stop no command.
local function audit(key, fields)
  local reply = append(key, 'MAXLEN', AUDITED, '*', unpack(fields))
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'NOPERM', 1, true) then -- rule audit-spoilt
    refuse(reply.err .. ' [XADD ' .. key .. ']')
  end
end

-- read_command reads the hash of a command.
local function read_command(key)
  local raw = call('HMGET', key, 'state', 'until', 'taker', 'code', 'text')
  return { state = raw[1] or '', ends = natural(raw[2]), taker = raw[3] or '', code = raw[4] or '', text = raw[5] or '' }
end

-- over ends a command, once. The one that ends it says so in the audit stream. A full Redis refuses a script only at its first write,
-- and none that begins with a lifetime.
local function over(key, stream, id, state, code, text, instance)
  call('PEXPIRE', key, REMEMBERED) -- rule end-if-full
  call('HSET', key, 'state', state, 'code', code, 'text', text)
  audit(stream, { 'event', 'ended', 'command', id, 'state', state, 'code', code, 'text', text, 'taker', instance })
end

--@ send_command
-- Leaves a command for an instance, once. KEYS: 1 hash of the command, 2 inbox, 3 audit stream.
-- ARGV: 1 ID of the command, 2 entry, 3 ms within which it must be taken, 4 channel, 5 instance ID, 6 kind, 7 role, 8 argument, 9 who asks,
--       10 not-after.
-- Verdicts: sent | full | late (both: nothing was changed).
if call('EXISTS', KEYS[1]) == 1 then return 'sent' end -- rule sent-once: the client's own retry
local now, bound = time(), tonumber(ARGV[3])
if now > tonumber(ARGV[10]) then return 'late' end -- rule sent-in-time: whoever asked has given up
if call('RPUSH', KEYS[2], ARGV[2]) > MAX_WAITING then -- rule full
  call('LREM', KEYS[2], -1, ARGV[2])
  return 'full'
end
call('HSET', KEYS[1], 'state', 'asked', 'until', integer(now + bound))
call('PEXPIRE', KEYS[1], bound + REMEMBERED)
if call('PTTL', KEYS[2]) < bound then call('PEXPIRE', KEYS[2], bound) end
audit(KEYS[3], { 'event', 'asked', 'command', ARGV[1], 'kind', ARGV[6], 'role', ARGV[7], 'instance', ARGV[5], 'argument', ARGV[8], 'by', ARGV[9] })
publish(ARGV[4], 'command', '', about(ARGV[5], ''))
return 'sent'

--@ read_commands
-- Reads the inbox of an instance. KEYS: 1 inbox. ARGV: entries that are no commands, which are removed.
-- Reply: entries, oldest first.
for _, entry in ipairs(ARGV) do call('LREM', KEYS[1], 0, entry) end
local reply = {}
for _, entry in ipairs(call('LRANGE', KEYS[1], 0, MAX_WAITING - 1)) do
  if #entry <= MAX_COMMAND then
    reply[#reply + 1] = entry
  else
    call('LREM', KEYS[1], 0, entry)
  end
end
return reply

--@ start_command
-- Claims a command for one process, and takes it out of the inbox. KEYS: 1 hash of the command, 2 inbox, 3 audit stream.
-- ARGV: 1 ID of the command, 2 entry, 3 instance ID, 4 incarnation, 5 ms for which the process is at it at most.
-- Verdicts: started | overdue (this process has it, and its time is over) | late (its time is over) | gone (another process has it, or it
--           was never sent). A process that gets no answer asks again: overdue says that nobody expects it to be executed any more.
local now, command = time(), read_command(KEYS[1])
call('LREM', KEYS[2], 0, ARGV[2])
if command.state == 'taken' and command.taker == ARGV[4] then -- a lost reply
  return now > command.ends and 'overdue' or 'started' -- rule overdue
end
if command.state ~= 'asked' then return 'gone' end -- rule taken-once
if now > command.ends then -- rule command-expires
  over(KEYS[1], KEYS[3], ARGV[1], 'expired', 'expired', '', ARGV[3])
  return 'late'
end
call('HSET', KEYS[1], 'state', 'taken', 'taker', ARGV[4])
call('PEXPIRE', KEYS[1], math.min(command.ends - now, 3600000) + ARGV[5] + REMEMBERED) -- rule known-until-ended: a drain may take hours
return 'started'

--@ end_command
-- Says what became of a command that this process has started, once. KEYS: 1 hash of the command, 2 audit stream.
-- ARGV: 1 ID of the command, 2 incarnation, 3 state (done | failed), 4 code, 5 text, 6 instance ID.
-- Verdicts: ok | gone.
local command = read_command(KEYS[1])
if command.taker ~= ARGV[2] then return 'gone' end -- rule own-command
if command.state == 'taken' then over(KEYS[1], KEYS[2], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]) end -- rule ended-once
return 'ok'

--@ look_command
-- Says how a command stands. One that nobody has taken in time is over. KEYS: 1 hash of the command, 2 audit stream.
-- ARGV: 1 ID of the command, 2 whether the hint is sent again (1 or 0), 3 channel, 4 instance ID.
-- Reply: state (asked, taken, done, failed, expired; '': it is not known), code, text.
local now, command = time(), read_command(KEYS[1])
if command.state == 'asked' then
  if now > command.ends then -- rule command-expires
    over(KEYS[1], KEYS[2], ARGV[1], 'expired', 'expired', '', '')
    return { 'expired', 'expired', '' }
  end
  if ARGV[2] == '1' then publish(ARGV[3], 'command', '', about(ARGV[4], '')) end
end
return { command.state, command.code, command.text }

--@ note_command
-- Notes in the audit stream, once, what was done without an instance that takes it. KEYS: 1 hash of the command, 2 audit stream.
-- ARGV: 1 ID of the command, 2 kind, 3 instance ID, 4 argument, 5 who asks, 6 state, 7 code, 8 text, 9 role.
-- Verdict: ok.
if call('EXISTS', KEYS[1]) == 1 then return 'ok' end -- rule noted-once: the client's own retry
note('HSET', KEYS[1], 'state', ARGV[6])
note('PEXPIRE', KEYS[1], REMEMBERED)
audit(KEYS[2], { 'event', 'noted', 'command', ARGV[1], 'kind', ARGV[2], 'role', ARGV[9], 'instance', ARGV[3], 'argument', ARGV[4], 'by', ARGV[5],
  'state', ARGV[6], 'code', ARGV[7], 'text', ARGV[8] })
return 'ok'
