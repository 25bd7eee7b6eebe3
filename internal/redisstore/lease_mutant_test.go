//go:build unix

package redisstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// mutant is scripts.lua with something left out or wrong.
type mutant struct {
	name  string
	rule  oracle.Rules // which the oracle can do without too
	edits []edit
}

// edit replaces every occurrence of a text; there must be as many as said.
type edit struct {
	old, new string
	count    int
}

func (m mutant) scripts(t *testing.T) *Scripts {
	t.Helper()
	source, others := scriptsLua, ""
	if at := strings.Index(source, "\n--@ leader\n"); at >= 0 {
		at += len("\n--@ leader\n")
		if next := strings.Index(source[at:], "\n--@ "); next >= 0 { // the scripts of tasks and the registry
			source, others = source[:at+next], source[at+next:]
		}
	}
	for _, e := range m.edits {
		if n := strings.Count(source, e.old); n != e.count {
			t.Fatalf("%q is %d times in scripts.lua, want %d", e.old, n, e.count)
		}
		source = strings.ReplaceAll(source, e.old, e.new)
	}
	loaded, err := Load(source + others)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// withoutRule are the rules of the design, each left out.
var withoutRule = []mutant{
	{"until", oracle.Until, []edit{{"if not term.released and term.ends > now then -- rule until", "if false then -- rule until", 1}}},
	{"memory", oracle.Memory, []edit{
		{"if term.token < floor then -- rule memory", "if false then -- rule memory", 1},
		{"  note_token(term_key, term, floor) -- rule memory: another", "  -- another", 1},
	}},
	{"guard", oracle.Guard, []edit{{"if elsewhere or (empty and not unasked and origin ~= '') then", "if false then", 1}}},
	{"rollcall", oracle.RollCall, []edit{{"if term.token == 0 and empty_wait > 0 then -- rule rollcall", "if false then -- rule rollcall", 1}}},
	{"reclaim", oracle.Reclaim, []edit{{"if lost_data and mine and ARGV[9] ~= '1' then -- rule reclaim", "if false then", 1}}},
	{"time", oracle.Time, []edit{
		{"math.max(term.token + 1, floor + 1, term.known + 1, now) -- rule time", "math.max(term.token + 1, floor + 1, term.known + 1)", 1},
		{"integer(math.max(token, now)) -- rule time", "integer(token)", 1},
	}},
	{"not-after", oracle.NotAfter, []edit{{"if not_after > 0 and now > not_after then", "if false then", 2}}},
	{"arm-in-renew", oracle.ArmInRenew, []edit{
		{"math.max(term.hold, now + hold_off + margin) -- rule arm-in-renew", "term.hold", 1},
		{"'armed', integer(hold_off + margin))", "'armed', integer(term.armed))", 1},
	}},
	{"longest-ttl", oracle.LongestTTL, []edit{
		{"local hold_off = math.max(tonumber(ARGV[6]), term.ttl)", "local hold_off = ttl", 1},
		{"local hold_off = math.max(tonumber(ARGV[6]), longest, term.ttl)", "local hold_off = ttl", 1},
	}},
	{"ttl-named", oracle.TTLNamed, []edit{
		{"local longest = remembered(", "local longest = 0 --", 1},
		{"(lately(term[5], now, period) or type", "(type", 1},         // the shortcut notes it each time too
		{"(ARGV[13] == '' or ARGV[13] == '0') then", "false then", 1}, // and that of acquires notes nothing
	}},
	{"margin-named", oracle.MarginNamed, []edit{{"local widest = remembered(", "local widest = 0 --", 1}, {"(ARGV[13] == '' or ARGV[13] == '0') then", "false then", 1}}},
	{"careful-clamp", oracle.CarefulClamp, []edit{
		{"'hold', integer(term.hold), 'ttl', integer(term.ttl))", "'hold', integer(term.hold))", 3},
		{"  term.ttl = hold_off -- rule careful-clamp", "  -- rule careful-clamp", 2},
		{"term.token, term.released, term.ttl = floor, false, hold_off -- rule careful-clamp", "term.token, term.released = floor, false", 1},
	}},
	{"hold-grows", oracle.HoldGrows, []edit{{"if term.armed > 0 and guard > term.armed then -- rule hold-grows", "if false then --", 1}}},
	{"longest-wait", oracle.LongestWait, []edit{{"if unasked or hold > term.hold then -- rule longest-wait", "if unasked then --", 1}}},
	{"clamp", oracle.Clamp, []edit{
		{"if term.ends > now + hold_off then", "if false then", 1},
		{"if term.hold > now + furthest then", "if false then", 1},
		{"if term.released and term.ends > now then -- when", "if false then -- when", 1},
		{"if tenured and (left < 0 or left > hold_off) then", "if false then", 1},
	}},
	{"unknown-origin", oracle.UnknownOrigin, []edit{
		{"local elsewhere = origin ~= '' and origin ~= term.origin", "local elsewhere = origin ~= term.origin", 2},
		{"(empty and not unasked and origin ~= '')", "(empty and not unasked)", 1},
		{"local known = origin ~= '' and ARGV[8] ~= ''", "local known = true", 1},
	}},
	{"nonce-holder", oracle.NonceHolder, []edit{{"(holder ~= id or (term.nonce and term.nonce ~= nonce)) then -- rule nonce-holder", "holder ~= id then", 1}}},
	{"memory-ended", oracle.MemoryEnded, []edit{
		{"note_token(term_key, read_term(term_key, now), floor) -- rule memory-ended", "read_term(term_key, now) --", 1},
		{"note_token(term_key, read_term(term_key, now), named) -- rule memory-ended", "read_term(term_key, now) --", 1},
		{"  note_token(term_key, term, named) -- rule memory-ended", "  --", 1},
		{"note_token(term_key, term, math.max(token, tonumber(ARGV[6]))) -- rule memory-ended", "--", 1},
	}},
	{"relic", oracle.Relic, []edit{{"local relic = tenured and term.token < token -- rule relic", "local relic = false --", 1}}},
	{"reserve", oracle.Reserve, []edit{{"if term.reserved > now and term.heir and term.heir ~= id then -- rule reserve", "if false then --", 1}}},
	{"reserve-bound", oracle.ReserveBound, []edit{{"local window = math.min(tonumber(ARGV[8]), RESERVE)", "local window = tonumber(ARGV[8])", 1}}},
	{"reserve-once", oracle.ReserveOnce, []edit{{"if not term.released then -- rule reserve-once", "if true then --", 1}}},
	{"reserve-clamp", oracle.ReserveClamp, []edit{{"if term.reserved > now + window then -- rule reserve-clamp", "if false then --", 1}}},
	{"ready-fresh", oracle.ReadyFresh, []edit{{"if ARGV[7] and term.heir == ARGV[7] and term.ready > now then -- rule ready-fresh", "if ARGV[7] and term.heir == ARGV[7] then --", 1}}},
	{"heir-waits", oracle.HeirWaits, []edit{{"if term.hold > now then\n  local asking", "if term.hold > now and not (term.reserved > now and term.heir == id) then\n  local asking", 1}}},
	{"yield", oracle.Yield, []edit{{"if rank and term.best and term.rank > rank then", "if false then", 1}}},
	{"yield-bound", oracle.YieldBound, []edit{{"local ends = math.max(term.ends, term.hold) + tonumber(ARGV[14])", "local ends = now + tonumber(ARGV[14])", 1}}},
	{"best-expires", oracle.BestExpires, []edit{{"if term.best and (term.best_until <= now or term.best_until > now + 2 * hold_off) then term.best", "if false then term.best", 1}}},
	{"adopt-guard", oracle.AdoptGuard, []edit{{" and term.hold <= now and term.token >= math.max(floor, term.known) then -- rule adopt-guard", " then", 1}}},
}

// mistaken are other mistakes.
var mistaken = []mutant{
	{"release compares no nonce", 0, []edit{{"if term.nonce == nonce and (token == 0", "if (token == 0", 1}}},
	{"release compares no token", 0, []edit{{"(token == 0 or term.token == token)", "true", 1}}},
	{"release deletes another's key", 0, []edit{{"if holder == id then\n    call('DEL'", "if true then\n    call('DEL'", 1}}},
	{"release leaves no marker", 0, []edit{{"call('HSET', term_key, 'released', '1')", "", 1}}},
	{"release leaves the since key", 0, []edit{{"if read_since(since_key) then call('DEL', since_key) end", "", 1}}},
	{"renew compares no token", 0, []edit{{"if holder == id and term.nonce == nonce and term.token == token then", "if holder == id and term.nonce == nonce then", 1}}},
	{"renew compares no nonce", 0, []edit{{"if holder == id and term.nonce == nonce and term.token == token then", "if holder == id and term.token == token then", 1}}},
	{"renew compares no holder", 0, []edit{{"if holder == id and term.nonce == nonce and term.token == token then", "if holder and term.nonce == nonce and term.token == token then", 1}}},
	{"reclaim after a release", 0, []edit{{"(not term.nonce or term.nonce == nonce) and not term.released)", "(not term.nonce or term.nonce == nonce))", 1}}},
	{"reclaim of another's token", 0, []edit{{"(not term.nonce or term.nonce == nonce) and not term.released)", "not term.released)", 1}}},
	{"reclaim while draining", 0, []edit{{"if lost_data and mine and ARGV[9] ~= '1' then", "if lost_data and mine then", 1}}},
	{"reclaim without loss", 0, []edit{{"if lost_data and mine and ARGV[9] ~= '1' then", "if mine and ARGV[9] ~= '1' then", 1}}},
	{"reclaim leaves the released marker", 0, []edit{{"  call('HDEL', term_key, 'released')\n  return keep('reclaimed')", "  return keep('reclaimed')", 1}}},
	{"grant leaves the released marker", 0, []edit{{"refused('HDEL', KEYS[3], 'released', 'heir',", "refused('HDEL', KEYS[3], 'heir',", 1}}},
	{"grant at the clock's word", 0, []edit{{"math.max(term.token + 1, floor + 1, term.known + 1, now)", "now", 1}}},
	{"grant without a holder", 0, []edit{{"'nonce', ARGV[2], 'holder', ARGV[1], 'until'", "'nonce', ARGV[2], 'until'", 1}}},
	{"memory restores no counter", 0, []edit{{"note('HSET', term_key, 'token', integer(floor), 'armed', integer(guard), 'hold', integer(term.hold),", "note('HSET', term_key, 'hold', integer(term.hold),", 1}}},
	{"memory is not shared", 0, []edit{{"floor + 1, term.known + 1, now)", "floor + 1, now)", 1}}},
	{"memory beside a lease is not kept", 0, []edit{{"  note_token(term_key, term, floor) -- rule memory: another", "  -- another", 1}}},
	{"memory of a late acquire is not kept", 0, []edit{{"note_token(term_key, read_term(term_key, now), floor) --", "read_term(term_key, now) --", 1}}},
	{"memory of a late renewal is not kept", 0, []edit{{"note_token(term_key, read_term(term_key, now), named) --", "read_term(term_key, now) --", 1}}},
	{"memory of a refused renewal is not kept", 0, []edit{{"  note_token(term_key, term, named) -- rule memory-ended", "  --", 1}}},
	{"memory of a renewal is not kept", 0, []edit{{"  term.token = token\n  note_token(term_key, term, named)\n", "", 1}}},
	{"memory of a release is not kept", 0, []edit{{"note_token(term_key, term, math.max(token, tonumber(ARGV[6]))) --", "--", 1}}},
	{"memory goes back", 0, []edit{{"if token > math.max(term.token, term.known) then", "if token > term.token then", 1}}},
	{"a foreign lease is taken for a relic", 0, []edit{{"local relic = tenured and term.token < token", "local relic = term.token < token", 1}}},
	{"a lease of the same term is taken for a relic", 0, []edit{{"local relic = tenured and term.token < token", "local relic = tenured and term.token <= token", 1}}},
	{"adopts below what another remembers", 0, []edit{{"math.max(floor, term.known) then -- rule adopt-guard", "floor then -- rule adopt-guard", 1}}},
	{"memory leaves the nonce", 0, []edit{{"note('HDEL', term_key, 'nonce', 'released')", "", 1}}},
	{"adopt compares no nonce", 0, []edit{{"if holder == id and term.nonce == nonce and term.hold <= now", "if holder == id and term.hold <= now", 1}}},
	{"adopt extends nothing", 0, []edit{{"call('PEXPIRE', lease_key, ttl) -- our own lost reply", "-- our own lost reply", 1}}},
	{"a foreign lease is taken for ours", 0, []edit{{"return holder and term.holder == holder and not term.released end", "return holder end", 1}}},
	{"a promotion is not seen", 0, []edit{{"if promoted or (elsewhere", "if (elsewhere", 1}}},
	{"the margin is forgotten", 0, []edit{{"local guard = hold_off + margin", "local guard = hold_off", 1}}},
	{"the margin is forgotten in renew", 0, []edit{{"now + hold_off + margin)", "now + hold_off)", 1}}},
	{"a hold-off that memory armed does not grow", 0, []edit{{"integer(floor), 'armed', integer(guard),", "integer(floor),", 1}}},
	{"a hold-off that a renewal armed does not grow", 0, []edit{{"'hold', integer(hold), 'armed', integer(hold_off + margin))", "'hold', integer(hold))", 1}}},
	{"a hold-off that a new history armed does not grow", 0, []edit{{"arm, length = from + guard, guard", "arm = from + guard", 1}}},
	{"a hold-off grows again and again", 0, []edit{{"'armed', integer(guard), 'hold', integer(term.hold), 'ttl', integer(term.ttl))\nend\n\n-- Guard", "'hold', integer(term.hold), 'ttl', integer(term.ttl))\nend\n\n-- Guard", 1}}},
	{"an absurd token is believed", 0, []edit{{"if raw[1] and (token <= 0 or token > MAX_TOKEN or token > now + CENTURY) then\n    refuse('BADTERM", "if false then\n    refuse('BADTERM", 1}}},
	{"the clamp is not written back", 0, []edit{{"note('HSET', term_key, 'until', integer(term.ends))", "", 1}}},
	{"leader gives a foreign client a token", 0, []edit{{"tenured and term.token or 0", "term.token", 1}}},
	{"an offer is kept over the end of the term", 0, []edit{{"refused('HDEL', KEYS[3], 'released', 'heir', 'reserved', 'ready')", "refused('HDEL', KEYS[3], 'released')", 1}}},
	{"an offer that is taken back stays", 0, []edit{{"  call('HDEL', term_key, 'heir', 'reserved', 'ready')\n", "  call('HDEL', term_key, 'reserved', 'ready')\n", 1}}},
	{"another offer finds the last one taken up", 0, []edit{{"  call('HDEL', term_key, 'heir', 'reserved', 'ready')\n", "  call('HDEL', term_key, 'heir', 'reserved')\n", 1}}},
	{"a plain release leaves the offer", 0, []edit{{"    else\n      call('HDEL', term_key, 'heir')\n", "", 1}}},
	{"a release reserves for somebody else", 0, []edit{{"term.heir == ARGV[7] and term.ready > now", "term.heir and term.ready > now", 1}}},
	{"the heir does not count as ready", 0, []edit{{"    note('HSET', term_key, 'ready', integer(now + math.floor(ttl * 3 / 20)))\n", "", 1}}},
	{"an heir that asked long ago is ready", 0, []edit{{"return heir and term.ready > now and 'ready' end", "return heir and 'ready' end", 1}}},
	{"a lease of a foreign client is offered", 0, []edit{{"local heir = tenured and term.heir == id", "local heir = term.heir == id", 1}}},
	{"a lease is offered to everybody", 0, []edit{{"local heir = tenured and term.heir == id", "local heir = tenured and term.heir", 1}}},
	{"a reservation keeps the heir out", 0, []edit{{"term.heir and term.heir ~= id then -- rule reserve", "term.heir then -- rule reserve", 1}}},
	{"a candidate that does not hear is the best", 0, []edit{{"local rank = tonumber(ARGV[13])\n", "local rank = tonumber(ARGV[13]) or 3\n", 1}}},
	{"the last candidate is the best", 0, []edit{{"term.best == id or rank > term.rank)", "term.best == id or rank >= term.rank)", 1}}},
	{"the best is never replaced", 0, []edit{{"(term.best == id or rank > term.rank)", "(term.best == id)", 1}}},
	{"the best does not count on", 0, []edit{{"(term.best == id or rank > term.rank)", "(rank > term.rank)", 1}}},
	{"equals wait for each other", 0, []edit{{"if rank and term.best and term.rank > rank then", "if rank and term.best and term.best ~= id then", 1}}},
	{"the best is the best for ever", 0, []edit{{"if term.best == id then call('HDEL', term_key, 'best', 'best_rank', 'best_until') end\n", "", 1}}},
	{"a release does not say when", 0, []edit{{"    call('HSET', term_key, 'until', integer(now)) -- the vacancy begins\n", "", 1}}},
	{"nobody answers an open offer", 0, []edit{{"(rank ~= 0 or term.heir == ANYONE)", "rank ~= 0", 1}}},
	{"an open offer knows who asked before", 0, []edit{{"    term.best = nil\n    call('HDEL', term_key, 'best', 'best_rank', 'best_until')\n  end\n  if heir then", "  end\n  if heir then", 1}}},
	{"an open offer is none", 0, []edit{{"raw[16] == ANYONE and ANYONE or instance(raw[16])", "instance(raw[16])", 1}}},
	{"zero is written too", 0, []edit{{"not term.best and (rank ~= 0 or term.heir == ANYONE)", "not term.best", 1}}},
	{"a leader does not hear of the best", 0, []edit{{"mark, term.best and integer(term.rank) .. ':' .. term.best)", "mark, nil)", 1}}},
	{"a leader hears of one that has gone", 0, []edit{{"if term.best and (term.best_until <= now or term.best_until > now + 2 * hold_off) then -- it has gone", "if false then -- it has gone", 1}}},
	{"a leader hears of one of a clock that was set back", 0, []edit{{"if term.best and (term.best_until <= now or term.best_until > now + 2 * hold_off) then -- it has gone", "if term.best and term.best_until <= now then -- it has gone", 1}}},
	{"one that has gone is noted for ever", 0, []edit{{"    call('HDEL', term_key, 'best', 'best_rank', 'best_until')\n  end\n  return answer('kept'", "  end\n  return answer('kept'", 1}}},
	{"a quick grant at the clock's word", 0, []edit{{"integer(math.max(token, now))", "integer(now)", 1}}},
	{"a quick grant of a lease that was not given back", 0, []edit{{"local free = not holder and term[12] == '1'", "local free = not holder", 1}, {"number(term[3], free and now or now + hold_off)", "term[3]", 1}}},
	{"a quick grant below what another remembers", 0, []edit{{"math.max(last, known) + 1", "last + 1", 1}}},
	{"a quick grant below the floor", 0, []edit{{"origin and last >= tonumber(ARGV[5]) and", "origin and", 1}}},
	{"a quick grant in a hold", 0, []edit{{" and (not term[10] or term[10] == '0' or number(term[10], now)) then", " then", 1}}},
	{"a quick grant over a reservation", 0, []edit{{"not term[13] and not term[14] and", "", 1}}},
	{"a quick grant past the best", 0, []edit{{" and not term[15] and named", " and named", 1}}},
	{"a quick release compares no nonce", 0, []edit{{"(ARGV[3] == '0' or ARGV[3] == token) and term[2] == ARGV[2] and", "(ARGV[3] == '0' or ARGV[3] == token) and", 1}}},
	{"a quick release compares no token", 0, []edit{{"(ARGV[3] == '0' or ARGV[3] == token) and", "", 1}}},
	{"a quick release forgets what the asker knows", 0, []edit{{" and tonumber(ARGV[6]) <= tonumber(token) then", " then", 1}}},
	{"a quick release leaves the offer", 0, []edit{{" and not term[6] and", " and", 1}}},
	{"too late is a millisecond earlier", 0, []edit{{"now > not_after", "now >= not_after", 2}}},
}

// TestEveryLeaseRuleIsTested leaves one rule out of the scripts, or breaks them: the comparison
// with the oracle must see it. An oracle without the same rule agrees with them, so that the names
// mean the same on both sides.
func TestEveryLeaseRuleIsTested(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	const questions, most = 40, 400
	agreed := uint64(8)
	if testing.Short() {
		agreed = 3
	}
	named := oracle.Rules(0)
	for _, m := range slices.Concat(withoutRule, mistaken) {
		named |= m.rule
		if m.rule == 0 && testing.Short() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			together(t)
			w := miniLease(t)
			w.store.scripts = m.scripts(t)
			asked, _, err := duels(t.Context(), w, oracle.All, 1, most, questions)
			if err == nil {
				t.Fatalf("not noticed in %d questions", asked)
			}
			if !strings.Contains(err.Error(), "want") {
				t.Fatal(err)
			}
			t.Logf("noticed after %d questions", asked)
			if m.rule == 0 {
				return
			}
			if _, _, err := duels(t.Context(), w, oracle.All.Without(m.rule), 1, agreed, questions); err != nil {
				t.Errorf("the oracle without the rule says otherwise: %v", err)
			}
		})
	}
	if named != oracle.All {
		t.Errorf("rules that nothing switches off: %v", oracle.All.Without(named))
	}
}
