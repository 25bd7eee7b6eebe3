//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// The lease operations are linearizable: each takes effect at one instant between its call and its
// answer, as internal/proof/oracle says. One that had no answer took effect at some instant after
// its call, or never: the check follows both.

//
// An operation takes effect at the time that it reads by TIME. Redis 7.0 looks at its clock again
// for each expiry that it sets, and before for those that it judges: on a machine with other things
// to do these are different milliseconds. The times of the call and of its answer, by the clock
// that this process shares with its redis-server, bound them.

// linearCall is one operation of a history.
type linearCall struct {
	asker oracle.Asker
	lease.Request
	sent int64 // Unix time in ms
}

// linearAnswer is its answer.
type linearAnswer struct {
	unknown bool
	oracle.Reply
	came int64 // Unix time in ms
}

// linearState is Redis after some operations. It is comparable.
type linearState struct {
	oracle.Data
	now         int64 // of the last operation: Redis's clock does not go back
	early, late int64 // by how much the lease may end before Lease.Expires, and after it; late < 0: by as much as passes to the next operation
}

// linearOutcome is what one operation may come to.
type linearOutcome struct {
	linearState
	reply oracle.Reply
}

// linearModel is the oracle as a nondeterministic state machine. times are those at which an
// operation without an answer may have taken effect, as far as it can make a difference to what
// others were answered.
func linearModel(history string, times []int64) porcupine.Model {
	run := func(s linearState, c linearCall, now int64) (linearState, oracle.Reply) {
		r := oracle.Redis{Rules: oracle.All, Facts: oracle.Facts{Origin: history, Uptime: math.MaxInt32}, Data: s.Data}
		var reply oracle.Reply
		switch c.Kind {
		case lease.Acquire:
			reply = r.Acquire(now, c.asker, c.Request)
		case lease.Renew:
			reply = r.Renew(now, c.asker, c.Request)
		default:
			reply = r.Release(now, c.asker, c.Request)
		}
		s.Data, s.now = r.Data, now
		return s, reply
	}
	// outcomes plays an operation that reads the time now and has ended by the time came (negative:
	// nobody knows).
	outcomes := func(s linearState, c linearCall, now, came int64) (all []linearOutcome) {
		since := min(max(s.now, c.sent), now)
		if s.late < 0 {
			s.late = now - s.now
		}
		for _, gone := range []bool{false, true} {
			from := s
			switch {
			case gone && (s.Lease.Holder == "" || s.Lease.Expires-s.early > now), !gone && s.Lease.Expires+s.late < since && s.Lease.Holder != "":
				continue
			case gone:
				from.Lease.Expires = now
			case s.Lease.Holder != "":
				from.Lease.Expires = max(from.Lease.Expires, now+1)
			}
			after, reply := run(from, c, now)
			switch {
			case reply.Verdict == lease.Won || reply.Verdict == lease.Kept:
				after.early, after.late = now-since, max(came-now, -1)
			case after.Lease.Holder == "":
				after.early, after.late = 0, 0
			default:
				after.Lease.Expires = s.Lease.Expires
			}
			all = append(all, linearOutcome{after, reply})
		}
		return all
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{linearState{}} },
		Step: func(state, input, output any) (next []any) {
			s, c, a := state.(linearState), input.(linearCall), output.(linearAnswer)
			if !a.unknown {
				if a.Now < s.now {
					return nil
				}
				for _, o := range outcomes(s, c, a.Now, a.came) {
					if o.reply.Verdict == a.Verdict && o.reply.Token == a.Token && o.reply.Holder == a.Holder && o.reply.Reason == a.Reason &&
						o.reply.Offered == a.Offered && o.reply.Ready == a.Ready {
						next = append(next, o.linearState)
					}
				}
				return next
			}
			next = append(next, s) // never
			for _, now := range append([]int64{s.now}, times...) {
				if now >= s.now {
					for _, o := range outcomes(s, c, now, -1) {
						next = append(next, o.linearState)
					}
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(linearState) == b.(linearState) },
	}
	return model.ToModel()
}

// linearHistory has three clients work on one lease through a network that loses replies and holds
// requests up.
func linearHistory(t *testing.T, proxies []*redistest.Proxy, mutated *Scripts, seed uint64, transfers bool) (history []porcupine.Operation) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	heal := unruly(proxies, seed)
	var asking sync.WaitGroup
	for number, proxy := range proxies {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(number)))
			client := single(proxy)
			defer client.Close()
			store := openStore(client, fmt.Sprintf("{lease-%d}", seed)) // a late request finds the keys of its own history
			if mutated != nil {
				store.scripts = mutated
			}
			w := &leaseCluster{cluster: &cluster{rdb: client, store: store}}
			asker := oracle.Asker{ID: string(rune('a' + number)), TTL: 40, RestartGuard: -1}
			if transfers { // an heir counts as one for 3/20 of it
				asker.TTL = 100
			}
			heir := string(rune('a' + (number+1)%len(proxies)))
			a, nonces, token := w.asker(asker), 0, int64(0)
			var old lease.Request // a release of an earlier campaign: it may come at any time
			nonce := func() string { return fmt.Sprint(asker.ID, seed, "-", nonces) }
			for range 9 {
				q := lease.Request{Nonce: nonce(), HoldOff: time.Duration(asker.TTL) * time.Millisecond, Kind: lease.Acquire}
				if token != 0 {
					q.Kind, q.Token = []lease.Kind{lease.Renew, lease.Renew, lease.Release}[random.IntN(3)], token
					if transfers && random.IntN(4) > 0 {
						q.Heir = heir
					}
					if transfers && q.Kind == lease.Release {
						q.Reserve = reserveFor
					}
				}
				if a.joint = q.Kind == lease.Renew && random.IntN(2) == 0; a.joint {
					q.NotAfter = time.Now().Add(time.Hour).UnixMilli()
				}
				late := old.Nonce != "" && random.IntN(5) == 0
				if late {
					q = old
				}
				sent, call := time.Now().UnixMilli(), time.Since(began)
				reply, err := a.ask(context.Background(), q)
				op := porcupine.Operation{
					ClientId: number, Call: int64(call), Return: int64(time.Since(began)),
					Input: linearCall{asker, q, sent}, Output: linearAnswer{err != nil, reply, time.Now().UnixMilli()},
				}
				if err != nil {
					op.Return = math.MaxInt64 // it may take effect at any time to come
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
				switch {
				case late:
				case q.Kind == lease.Release, reply.Verdict == lease.Lost:
					old = lease.Request{Kind: lease.Release, Nonce: q.Nonce, Token: token}
					token = 0
					nonces++
				case reply.Verdict == lease.Won:
					token = reply.Token
				}
				if err != nil { // a client has one operation at a time: what is under way goes on under another name
					number += len(proxies)
				}
				time.Sleep(time.Duration(random.IntN(12)) * time.Millisecond) // not to wait for anything: bounded poll
			}
		})
	}
	asking.Wait()
	heal()
	return history
}

// reserveFor is for how long a release leaves the vacancy to its heir.
const reserveFor = 30 * time.Millisecond

// unruly has the network lose replies and hold requests up until heal is called.
func unruly(proxies []*redistest.Proxy, seed uint64) (heal func()) {
	var striking sync.WaitGroup
	healed := make(chan struct{})
	striking.Go(func() { // ends with healed
		random := rand.New(rand.NewPCG(seed, 99))
		for {
			proxy := proxies[random.IntN(len(proxies))]
			if random.IntN(2) == 0 {
				proxy.LoseReply(func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") })
			} else {
				proxy.HoldRequests()
			}
			select {
			case <-healed:
				proxy.Heal()
				return
			case <-time.After(time.Duration(random.IntN(6)) * time.Millisecond):
			}
			proxy.Heal()
			select {
			case <-healed:
				return
			case <-time.After(time.Duration(random.IntN(40)) * time.Millisecond):
			}
		}
	})
	return func() {
		close(healed)
		striking.Wait()
	}
}

// single is a client that asks each question once, on one connection. The network resets it soon
// after a reply was lost; a busy machine may need long for an answer.
func single(proxy *redistest.Proxy) *redis.Client {
	opts := &redis.Options{
		Addr: proxy.Addr(), MaxRetries: -1, PoolSize: 1, ReadTimeout: 30 * time.Second, DisableIdentity: true, Protocol: 2,
	}
	clientopts.Set(opts, "DialerRetries", 1)
	return redis.NewClient(opts)
}

// timesOf are the times at which an operation of a history that had no answer may have made a
// difference.
func timesOf(history []porcupine.Operation, transfers bool) (times []int64) {
	for _, op := range history {
		c, a := op.Input.(linearCall), op.Output.(linearAnswer)
		if a.unknown {
			continue
		}
		// a grant, an answer, and the last millisecond from which a lease has ended by then, and
		// the first from which it has not
		bounds := []int64{a.Token, a.Now, a.Now - c.asker.TTL, a.Now - c.asker.TTL + 1}
		if transfers { // likewise of the heir that counts as one, and of the vacancy that is left to it
			ready, reserve := 3*c.asker.TTL/20, reserveFor.Milliseconds()
			bounds = append(bounds, a.Now-ready, a.Now-ready+1, a.Now-reserve, a.Now-reserve+1)
		}
		for _, at := range bounds {
			if at > 0 {
				times = append(times, at)
			}
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// histories counts what a number of them have shown.
type histories struct{ asked, unanswered, illegal, undecided int }

// patience is for how long one history is searched for an order. The search grows by a power of the
// operations without an answer, of which a busy machine has many, and nothing else bounds it.
const patience = 2 * time.Second

// check reports whether no order explains a history.
func (h *histories) check(model porcupine.Model, history []porcupine.Operation, unanswered func(output any) bool) (illegal bool) {
	for _, op := range history {
		h.asked++
		if unanswered(op.Output) {
			h.unanswered++
		}
	}
	switch porcupine.CheckOperationsTimeout(model, history, patience) {
	case porcupine.Illegal:
		h.illegal++
		return true
	case porcupine.Unknown:
		h.undecided++
	}
	return false
}

// require fails the test unless n histories say something.
func (h *histories) require(t *testing.T, n int) {
	t.Helper()
	t.Logf("%d histories, %d of them undecided, %d operations, %d without an answer", n, h.undecided, h.asked, h.unanswered)
	require.LessOrEqual(t, h.undecided, n/2, "too few histories were searched in time")
	require.GreaterOrEqual(t, h.unanswered, n/10, "too few operations had no answer")
}

// show says in which order the operations of a history were asked and answered.
func show(t *testing.T, seed uint64, history []porcupine.Operation) {
	t.Helper()
	for _, op := range history {
		t.Logf("%+v", op)
	}
	t.Errorf("seed %d: no order of these operations explains the answers", seed)
}

// linearRun checks a number of histories, at most up to the first that no order explains.
func linearRun(t *testing.T, mutated *Scripts, transfers bool, seeds int) (h histories) {
	t.Helper()
	server := redistest.Start(t)
	origin := server.Info(t, "replication")["master_replid"]
	var proxies []*redistest.Proxy
	for range 3 {
		proxies = append(proxies, redistest.NewProxy(t, server.Addr()))
	}
	for seed := uint64(1); seed <= uint64(seeds) && h.illegal == 0; seed++ {
		history := linearHistory(t, proxies, mutated, seed, transfers)
		model := linearModel(origin, timesOf(history, transfers))
		if h.check(model, history, func(output any) bool { return output.(linearAnswer).unknown }) && mutated == nil {
			show(t, seed, history)
		}
	}
	return h
}

func TestLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	h := linearRun(t, nil, false, 120)
	h.require(t, 120)
}

// TestTransfersAreLinearizable: offers, the answers to the heir and to the leader, and the vacancy
// that is left to the heir are too.
func TestTransfersAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	h := linearRun(t, nil, true, 120)
	h.require(t, 120)
}

// TestLinearizabilityCanFail: scripts that are wrong are noticed.
func TestLinearizabilityCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	for name, edit := range map[string][2]string{
		"release without compare":               {"if term.nonce == nonce and (token == 0 or term.token == token) then\n  call('HDEL', term_key, '-')", "if true then\n  call('HDEL', term_key, '-')"},
		"token not increased":                   {"math.max(term.token + 1, floor + 1, term.known + 1, now)", "math.max(term.token, floor, 1)"},
		"a lease is granted twice":              {"if holder then\n  note_token(", "if holder and floor > 0 then\n  note_token("},
		"a lease is too short":                  {"refused('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])", "refused('SET', KEYS[1], ARGV[1], 'PX', math.floor(ARGV[3] / 8))"},
		"transfer: nothing is left to the heir": {"if term.reserved > now and term.heir and term.heir ~= id then", "if false then"},
		"transfer: ready whoever asks":          {"if heir == term.heir then return heir and term.ready > now and 'ready' end", "if heir == term.heir then return heir and 'ready' end"},
		"a renewal that is lost":                {"if holder == id and term.nonce == nonce and term.token == token then\n  call('PEXPIRE', lease_key, ttl)", "if holder == id and term.nonce == nonce and term.token == token then\n  call('PEXPIRE', lease_key, 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(scriptsLua, edit[0]), "the scripts have no such text, or more than one: %s", edit[0])
			mutated, err := Load(strings.Replace(scriptsLua, edit[0], edit[1], 1))
			require.NoError(t, err)
			h := linearRun(t, mutated, strings.HasPrefix(name, "transfer: "), 300)
			require.Positive(t, h.illegal, "300 histories of a broken script are all in order") // a few, unless hardly a question is answered in time
		})
	}
}
