//go:build unix

package redisstore

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// compareLua runs full and long, functions of KEYS, ARGV and redis, in each state that it is given,
// and replies with how many the shortcut has answered in, and where they differ. Time, expiry and
// INFO are the test's own; what was refused is asked for once more.
const compareLua = `
local server, quick, differ = redis, 0, {}
local function outcome(run, s)
  local ends, told, refused, left = {}, {}, s.refused, false
  server.call('DEL', unpack(KEYS))
  for _, command in ipairs(s.setup) do server.call(unpack(command)) end
  for key, n in pairs(s.ends) do ends[key] = tonumber(n) end
  local fake = { pcall = function(command, key, ...)
    if command == 'HMGET' and select('#', ...) > 16 then left = true end
    if command == refused then return { err = 'NOPERM' } end
    if command == 'TIME' then return { '1712345678', '999123' } end
    if command == 'INFO' then return 'master_replid:feed\r\nuptime_in_seconds:100\r\n' end
    if command == 'PUBLISH' then told[#told + 1] = key .. (...) return 1 end
    if command == 'PTTL' then return ends[key] or -1 end
    if command == 'PEXPIRE' then ends[key] = tonumber((...)) return server.call('EXISTS', key) end
    if command == 'SET' then ends[key] = tonumber((select(3, ...))) return server.pcall('SET', key, (...)) end
    if command == 'DEL' then for _, gone in ipairs({ key, ... }) do ends[gone] = nil end end
    return server.pcall(command, key, ...)
  end }
  for _ = 1, refused == '' and 1 or 2 do
    local reply = run(s.keys, s.args, fake)
    told[#told + 1] = type(reply) == 'table' and 'ERR ' .. reply.err or reply
    for _, key in ipairs(KEYS) do
      local kind = server.call('TYPE', key).ok
      local value = kind == 'string' and server.call('GET', key) or kind == 'hash' and server.call('HMGET', key, 'token', 'nonce', 'holder', 'until', 'ttl', 'released', 'origin', 'hold', 'floor', 'asked', 'longest',
          'longest_at', 'margin', 'margin_at', 'armed', 'heir', 'reserved', 'ready', 'best', 'best_rank', 'best_until') or {}
      if kind == 'stream' then for n, entry in ipairs(server.call('XRANGE', key, '-', '+')) do value[n] = entry[2] end end
      told[#told + 1] = key .. ' ' .. kind .. ' ' .. cjson.encode(value) .. ' for ' .. tostring(ends[key])
    end
    refused = ''
  end
  return table.concat(told, '\n'), left
end
for n, s in ipairs(cjson.decode(ARGV[1])) do
  local got, left = outcome(full, s)
  local want = outcome(long, s)
  if not left then quick = quick + 1 end
  if got ~= want then differ[#differ + 1] = tostring(n) .. '\n' .. got .. '\n\nwant\n' .. want end
end
return { quick, unpack(differ) }`

// damaged is a state of the keys of a role, and who asks what in it.
type damaged struct {
	Setup   [][]string        `json:"setup"` // commands
	Ends    map[string]string `json:"ends"`  // ms from now, by key
	Keys    []string          `json:"keys"`
	Args    []string          `json:"args"`
	Refused string            `json:"refused"` // a command
}

var damagedKeys = []string{leaseKey, leaseKey + ":since", leaseKey + ":term", leaseKey + ":terms", leaseNamespace + ":log"}

// damage draws a quiet term in which up to three things are not as tenure writes them.
func damage(r *rand.Rand, releases bool) damaged {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	const now, ttl, margin, day, century = atRenewal, 60_000, 500, 86_400_000, 3_153_600_000_000
	near := func(of ...int64) string { return fmt.Sprint(of[r.IntN(len(of))] + r.Int64N(3) - 1) }
	fields := []string{"token", "holder", "until", "ttl", "released", "longest", "longest_at", "margin", "margin_at", "hold", "floor", "armed", "heir", "reserved", "ready", "best", "best_until", "origin"}
	edges := [][]int64{{now, now + century}, nil, {now, now + ttl}, {ttl, day}, {1}, {ttl}, {now - ttl, now + ttl}, {margin}, {now - ttl, now + ttl}, {now}, {now, now + century}, {ttl + margin}, nil, {now}, {now}, nil, {now}, nil}
	odd := func(edges []int64) string {
		if len(edges) > 0 && r.IntN(3) > 0 {
			return near(edges...)
		}
		return one("", "0", "007", " 7", "7\n", "1e3", "0x7", "1.5", "*", "a", "b", "c", "9007199254740993", "00000000000000007", "9999999999999999", near(r.Int64N(1e13)))
	}
	s := damaged{Keys: damagedKeys[:4+r.IntN(2)], Ends: map[string]string{}}
	hash := []string{"HSET", damagedKeys[2], "token", near(now - 9), "nonce", "na", "holder", "a", "ttl", near(ttl), "origin", "feed", "longest", fmt.Sprint(ttl), "longest_at", near(now - 9), "margin", fmt.Sprint(margin), "margin_at", near(now - 9), "best_rank", "1", "best_until", near(now + 1)}
	if releases || r.IntN(2) == 0 {
		s.Setup = [][]string{append(hash, "until", fmt.Sprint(now+ttl)), {"SET", damagedKeys[0], "a"}, {"SET", damagedKeys[1], "1712345600"}}
		s.Ends[damagedKeys[0]], s.Ends[damagedKeys[1]] = near(ttl, ttl-7, 1), near(ttl)
	} else {
		s.Setup = [][]string{append(hash, "until", fmt.Sprint(now), "released", "1")}
	}
	s.Args = []string{"b", "nb", fmt.Sprint(ttl), "0", "0", fmt.Sprint(ttl), "250", fmt.Sprint(margin), "-1", "hints", "role", fmt.Sprint(ttl), one("0", ""), "6000", "120000"}
	numbers := map[int][]int64{3: {now}, 4: {now, now - 9}, 5: {ttl, 2 * ttl}, 7: {margin}, 12: {0}}
	if releases {
		s.Args = []string{"a", "na", "0", "hints", "role", "0", one("", "", "b"), "1000", "resigned", "0"}
		numbers = map[int][]int64{2: {now - 9}, 5: {now - 9}, 9: {now}}
	}
	for range r.IntN(4) {
		switch i := r.IntN(len(fields)); r.IntN(10) {
		case 0:
			s.Setup = append(s.Setup, []string{"HDEL", damagedKeys[2], fields[i]})
		case 1:
			s.Setup = append(s.Setup, []string{"SET", damagedKeys[i%2], odd(nil)})
		case 2:
			key := one(damagedKeys[0], damagedKeys[1], damagedKeys[3], damagedKeys[4])
			s.Setup = append(s.Setup, []string{"DEL", key}, []string{"RPUSH", key, "x"})
		case 3:
			if i = r.IntN(len(s.Args)); numbers[i] != nil {
				s.Args[i] = near(numbers[i]...)
			}
		case 4:
			s.Refused = one("TIME", "GET", "SET", "DEL", "PTTL", "PEXPIRE", "HMGET", "HSET", "HDEL", "XADD", "INFO")
		default:
			s.Setup = append(s.Setup, []string{"HSET", damagedKeys[2], fields[i], odd(edges[i])})
		}
	}
	return s
}

// TestShortcutsInDamagedStates: whatever the keys hold, and whatever is refused, a grant and a
// release with their shortcuts answer, write and publish what they do without.
func TestShortcutsInDamagedStates(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	const states, batch = 4000, 100
	rdb, r := clusterOf(t, redistest.Start(t).Options(), leaseNamespace).rdb, rand.New(rand.NewPCG(1, 0))
	for i, two := range [][2]*script{{contract.acquire, acquireLong(t).acquire}, {contract.release, releaseLong(t).release}} {
		source := "local function full(KEYS, ARGV, redis)\n" + two[0].source + "end\nlocal function long(KEYS, ARGV, redis)\n" + two[1].source + "end\n" + compareLua
		quick := int64(0)
		for range states / batch {
			all := make([]damaged, batch)
			for at := range all {
				all[at] = damage(r, i == 1)
			}
			text, err := json.Marshal(all)
			require.NoError(t, err)
			reply, err := rdb.Eval(t.Context(), source, damagedKeys, string(text)).Slice()
			require.NoError(t, err)
			if len(reply) > 1 {
				t.Fatalf("of %s\nstate %s", text, reply[1])
			}
			quick += reply[0].(int64)
		}
		require.Greater(t, quick, int64(states/5), "hardly any of them takes the shortcut")
	}
}
