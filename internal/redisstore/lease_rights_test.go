//go:build unix

package redisstore

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// leaseRights is all that the lease scripts need to do their work.
var leaseRights = []string{"evalsha", "eval", "time", "get", "set", "del", "pttl", "pexpire", "hmget", "hset", "hdel"}

// limited is a client of a user with these rights and no others.
func (w *leaseCluster) limited(t *testing.T, name string, rules ...any) *leaseCluster {
	t.Helper()
	ctx := t.Context()
	if err := w.rdb.Do(ctx, append([]any{"ACL", "SETUSER", name, "reset", "on", ">secret", "~{lease}:*"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
	opts := *w.rdb.Options()
	opts.Username, opts.Password, opts.DisableIdentity, opts.Protocol = name, "secret", true, 2
	return &leaseCluster{cluster: clusterOf(t, &opts, leaseNamespace), history: w.history}
}

func grants(commands ...string) []any {
	rules := make([]any, len(commands))
	for i, command := range commands {
		rules[i] = "+" + command
	}
	return rules
}

// TestNopermIsToldInTheWordsOfEveryServer: each version has its own for a right that a script
// lacks.
func TestNopermIsToldInTheWordsOfEveryServer(t *testing.T) {
	for server, text := range map[string]string{
		"outside of a script": "NOPERM this user has no permissions to run the 'get' command [GET ns:leader]",
		"up to Redis 7.0":     "ERR The user executing the script can't run this command or subcommand [GET ns:leader]",
		"Redis 7.2, Valkey":   "ERR ACL failure in script: User app has no permissions to run the 'get' command [GET ns:leader]",
	} {
		t.Run(server, func(t *testing.T) {
			err := explain("acquire", refusal(text))
			if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "grant the Redis user +get and access to ~ns:leader") {
				t.Error(err)
			}
			if e, is := store.AsType[*store.Error](err); !is || !e.Refused {
				t.Errorf("no right is missing: %v", err)
			}
		})
	}
	require.ErrorContains(t, explain("acquire", refusal("NOAUTH Authentication required.")), "REDIS_PASSWORD in the environment", "who has no code to mend")
	if e, is := store.AsType[*store.Error](explain("acquire", refusal("WRONGPASS invalid username-password pair or user is disabled."))); !is || e.Refused {
		t.Error("a wrong password is taken for a missing right")
	}
}

func TestNopermNamesCommandAndFix(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w := realLease(t, redistest.Start(t))
	for _, command := range leaseRights {
		t.Run(command, func(t *testing.T) {
			ctx := t.Context()
			rights := slices.DeleteFunc(slices.Clone(leaseRights), func(c string) bool { return c == command })
			u := w.limited(t, "user-"+command, grants(rights...)...)
			if command == "eval" { // needed while the server does not know the script
				w.rdb.ScriptFlush(ctx)
			}
			refused := false
			for _, held := range []bool{false, true} {
				data := oracle.Data{}
				if held {
					data = oracle.Data{Lease: oracle.Lease{Holder: "a"}, Since: oracle.Since{There: true, Unix: 1}, Term: oracle.Term{Token: 41, Nonce: "na", Holder: "a"}}
				}
				for _, r := range everything(41) {
					if err := w.load(ctx, data); err != nil {
						t.Fatal(err)
					}
					_, err := u.candidateA().ask(ctx, r)
					if err == nil {
						continue
					}
					refused = true
					misconfigured(t, err, "+"+command)
				}
			}
			if !refused {
				t.Errorf("nothing needs %s", command)
			}
		})
	}
}

// TestRightsInAQuietTerm: a shortcut that lacks a right in the middle of what it writes does not
// say that it was done.
func TestRightsInAQuietTerm(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w := realLease(t, redistest.Start(t))
	ctx, a := t.Context(), w.candidateA()
	token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
	without := func(command, prefix string) leaseAsker {
		rights := slices.DeleteFunc(append(slices.Clone(leaseRights), "info"), func(c string) bool { return c == command })
		return w.limited(t, prefix+command, grants(rights...)...).candidateA()
	}
	for _, command := range []string{"hdel", "hset", "del"} {
		_, err := without(command, "gives-back-without-").ask(ctx, releasing("na", token))
		misconfigured(t, err, "+"+command)
		require.Equal(t, "a", w.rdb.Get(ctx, leaseKey).Val())
	}
	w.rdb.HDel(ctx, leaseKey+":term", "released")
	a.must(ctx, t, lease.Done, releasing("na", token))
	for _, command := range []string{"hset", "hdel", "set"} {
		_, err := without(command, "asks-without-").ask(ctx, acquiring(nil))
		misconfigured(t, err, "+"+command)
		require.Zero(t, w.rdb.Exists(ctx, leaseKey).Val())
	}
}

// TestLeaseWithoutChannelsAndInfo: hints and the history witness are off, everything else works.
func TestLeaseWithoutChannelsAndInfo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w := realLease(t, redistest.Start(t))
	for name, rules := range map[string][]any{
		"no publish, no info": grants(leaseRights...),
		"no channels":         append(grants(leaseRights...), "+publish", "+info", "resetchannels"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			w.rdb.FlushAll(ctx)
			u := w.limited(t, "lesser", rules...)
			a, b := u.asker(oracle.Asker{ID: "a", TTL: 60_000, EmptyWait: 250, RestartGuard: -1}), u.candidateB()
			if reply := a.must(ctx, t, lease.RollCall, acquiring(nil)); (reply.Origin != "") != (name == "no channels") {
				t.Errorf("history %q", reply.Origin)
			}
			w.rdb.HSet(ctx, leaseKey+":term", "hold", 1, "asked", 1)
			token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
			a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token = token }))
			b.must(ctx, t, lease.Held, acquiring(func(r *lease.Request) { r.Nonce = "nb" }))
			a.must(ctx, t, lease.Done, releasing("na", token))
			b.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nb" }))
		})
	}
}

// TestFullRedis: a leader keeps its lease and gives it back, refusals are answered, and nobody is
// granted anything.
func TestFullRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	s := redistest.Start(t)
	w := realLease(t, s)
	ctx, a, b := t.Context(), w.candidateA(), w.candidateB()
	other := func(change func(*lease.Request)) lease.Request {
		r := acquiring(change)
		r.Nonce = "nb"
		return r
	}
	unknown := func(what string, a leaseAsker, r lease.Request) {
		t.Helper()
		if _, err := a.ask(ctx, r); !errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v, want ErrUnreachable with OOM", what, err)
		}
	}
	token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
	s.ConfigSet(t, "maxmemory-policy", "noeviction")
	s.ConfigSet(t, "maxmemory", "1")

	a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token, r.Origin = token, w.history }))
	if reply := b.must(ctx, t, lease.Held, other(nil)); reply.Token != token || reply.Holder != "a" {
		t.Errorf("refused with %+v", reply)
	}
	a.must(ctx, t, lease.Won, acquiring(nil)) // its own lease is adopted
	a.must(ctx, t, lease.Held, lease.Request{Kind: askLeader})
	a.must(ctx, t, lease.Done, releasing("na", token))
	a.must(ctx, t, lease.Unknown, lease.Request{Kind: askLeader})
	unknown("acquire", b, other(nil))

	b.must(ctx, t, lease.Held, other(func(r *lease.Request) { r.Floor = token + 1 })) // data were lost: the hold-off is on
	longer := w.asker(oracle.Asker{ID: "c", TTL: 120_000, EmptyWait: 250, RestartGuard: -1})
	longer.must(ctx, t, lease.Held, other(nil)) // though nobody can note for how long it may have led
	unknown("reclaim", a, renewing(func(r *lease.Request) { r.Token = token + 2 }))
	w.rdb.Del(ctx, leaseKey+":term")
	empty := w.asker(oracle.Asker{ID: "b", TTL: 60_000, EmptyWait: 250, RestartGuard: -1})
	unknown("first question", empty, other(nil)) // else the roll-call would begin anew with each, and nobody would hear why

	s.ConfigSet(t, "maxmemory", "0")
	b.must(ctx, t, lease.Won, other(nil))
}

// TestGuardOnRedis: a server that was just started grants nothing for the hold-off, and neither
// does a promoted one.
func TestGuardOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-servers")
	}
	ctx := t.Context()
	master := redistest.Start(t)
	replica := redistest.Start(t, redistest.ReplicaOf(master))
	w := realLease(t, master)
	young := w.asker(oracle.Asker{ID: "a", TTL: 60_000, EmptyWait: 250})
	for _, want := range []lease.Verdict{lease.RollCall, lease.Held} {
		if reply := young.must(ctx, t, want, acquiring(nil)); reply.Wait > 61*time.Second || reply.Wait < 30*time.Second {
			t.Errorf("a young server says %+v", reply)
		}
	}
	w.rdb.FlushAll(ctx)
	a := w.candidateA()
	won := a.must(ctx, t, lease.Won, acquiring(nil))
	replica.WaitReplicated(t)
	replica.Promote(t)

	p := realLease(t, replica)
	if p.history == w.history {
		t.Fatal("the promotion changed no history")
	}
	b := p.candidateB()
	reply := b.must(ctx, t, lease.Held, acquiring(func(r *lease.Request) { r.Nonce, r.Floor = "nb", won.Token }))
	if reply.Reason != "lease" || reply.Holder != "a" {
		t.Errorf("a promoted server says %+v", reply)
	}
	if data, err := p.dump(ctx); err != nil || data.Term.Origin != p.history || data.Term.Hold < reply.Now+59_000 {
		t.Errorf("a promoted server holds off until %d (now %d) for %q: %v", data.Term.Hold, reply.Now, data.Term.Origin, err)
	}
	pa := p.candidateA()
	pa.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token, r.Origin = won.Token, won.Origin }))

	p.rdb.FlushAll(ctx)
	if reply := b.must(ctx, t, lease.Held, acquiring(nil)); reply.Reason != "hold" || reply.Wait < 59*time.Second {
		t.Errorf("a promoted server without history says %+v", reply)
	}
	kept := pa.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token, r.Origin = won.Token, p.history }))
	if kept.Token != won.Token {
		t.Errorf("reclaimed with token %d, want %d", kept.Token, won.Token)
	}
}

// TestExaminationOfTheWitness: what counts is what scripts are told of Redis's history, since some
// servers answer INFO to clients and refuse it to scripts.
func TestExaminationOfTheWitness(t *testing.T) {
	w := realLease(t, redistest.Start(t))
	examined := func(rdb redis.UniversalClient, scripts *Scripts) store.Facts {
		role := store.Role{Key: leaseKey, Holder: "me", TTL: time.Minute, Attempt: 20 * time.Second}
		return New(rdb, scripts, leaseNamespace, "me", func() string { return "secret" }).ForRole(role).Examine(t.Context(), unbounded)
	}
	require.True(t, examined(w.rdb, w.store.scripts).Witness)

	refused, witness := *w.store.scripts, *w.store.scripts.witness
	witness.source = "local redis = { pcall = function() return { err = 'ERR This Redis command is not allowed from script' } end }\n" + witness.source
	witness.digest = "none of this server"
	refused.witness = &witness
	facts := examined(w.rdb, &refused)
	require.False(t, facts.Witness)
	require.Empty(t, facts.Refused)

	limited := w.limited(t, "limited", grants(append(leaseRights, "ping", "info")...)...)
	require.True(t, examined(limited.rdb, w.store.scripts).Witness)
	limited = w.limited(t, "blind", grants(append(leaseRights, "ping")...)...)
	facts = examined(limited.rdb, w.store.scripts)
	require.False(t, facts.Witness)
	require.ErrorContains(t, facts.Refused[store.ProbeInfo], "NOPERM")
}

// hintsOf subscribes to the hints of the lease until the test ends.
func hintsOf(t *testing.T, w *leaseCluster) *redis.PubSub {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: w.rdb.Options().Addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	sub := rdb.Subscribe(t.Context(), leaseKey+":events")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sub
}

// TestHintsOfATransfer: the heir is called, then the leader, then the heir again, and others hear
// for how long it is in vain to ask.
func TestHintsOfATransfer(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		sub := hintsOf(t, w)
		asker := func(id string) leaseAsker {
			return w.asker(oracle.Asker{ID: id, TTL: 60_000, EmptyWait: 0, RestartGuard: -1})
		}
		a, b, c := asker("a"), asker("b"), asker("c")
		as := func(nonce string) lease.Request { return acquiring(func(r *lease.Request) { r.Nonce = nonce }) }
		token := a.must(ctx, t, lease.Won, as("na")).Token
		offer := lease.Request{Kind: lease.Renew, Nonce: "na", Token: token, Heir: "b"}
		a.must(ctx, t, lease.Kept, offer)
		a.must(ctx, t, lease.Kept, offer) // says nothing again
		c.must(ctx, t, lease.Held, as("nc"))
		b.must(ctx, t, lease.Held, as("nb"))
		w.rdb.Publish(ctx, leaseKey+":events", "once")
		b.must(ctx, t, lease.Held, as("nb")) // says nothing again
		if reply := a.must(ctx, t, lease.Kept, offer); !reply.Ready {
			t.Errorf("%+v: the heir is not ready", reply)
		}
		a.must(ctx, t, lease.Done, lease.Request{Kind: lease.Release, Nonce: "na", Token: token, Heir: "b", Reserve: 5 * time.Second})
		c.must(ctx, t, lease.Held, as("nc"))
		b.must(ctx, t, lease.Won, as("nb"))
		w.rdb.Publish(ctx, leaseKey+":events", "end")
		named := store.Hint{Type: store.HintNamed, Subject: "b"}
		want := []store.Hint{
			{Type: store.HintGranted}, named, {Type: store.HintReady}, {}, {Type: store.HintVacant, Subject: "b", Wait: 5000}, named, {Type: store.HintGranted},
		}
		var got []store.Hint
		for {
			message, err := sub.ReceiveMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if message.Payload == "end" {
				break
			}
			hint, _ := store.ParseHint(message.Payload)
			got = append(got, hint)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("hints\n\t%+v, want\n\t%+v", got, want)
		}
	})
}

// TestHintOfTheBest: whoever is refused since a better candidate has asked calls that one, which
// may have missed that the lease is free.
func TestHintOfTheBest(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		asker := func(id string) leaseAsker { return w.asker(oracle.Asker{ID: id, TTL: 60_000, RestartGuard: -1}) }
		asking := func(rank lease.Rank) lease.Request {
			return acquiring(func(r *lease.Request) {
				r.Nonce, r.Rank, r.Counts, r.Slice = fmt.Sprint("n", rank), rank, time.Minute, 30*time.Second
			})
		}
		a, b, c := asker("a"), asker("b"), asker("c")
		token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		b.must(ctx, t, lease.Held, asking(5))
		a.must(ctx, t, lease.Done, releasing("na", token))
		sub := hintsOf(t, w)
		if reply := c.must(ctx, t, lease.Held, asking(3)); reply.Reason != "yield" {
			t.Errorf("%+v: b is better", reply)
		}
		w.rdb.Publish(ctx, leaseKey+":events", "end")
		message, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"type":"named","role":"","instance":"b"}`; message.Payload != want {
			t.Errorf("hint %s, want %s", message.Payload, want)
		}
	})
}

// TestHintOfAnOpenOffer calls everybody, once.
func TestHintOfAnOpenOffer(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		a := w.asker(oracle.Asker{ID: "a", TTL: 60_000, RestartGuard: -1})
		b := w.asker(oracle.Asker{ID: "b", TTL: 60_000, RestartGuard: -1})
		token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		sub := hintsOf(t, w)
		offer := lease.Request{Kind: lease.Renew, Nonce: "na", Token: token, Heir: lease.Anyone}
		a.must(ctx, t, lease.Kept, offer)
		a.must(ctx, t, lease.Kept, offer)
		b.must(ctx, t, lease.Held, acquiring(func(r *lease.Request) { r.Nonce, r.Counts = "nb", time.Minute }))
		if reply := a.must(ctx, t, lease.Kept, offer); reply.Best != "b" || reply.Ready {
			t.Errorf("%+v: b has asked", reply)
		}
		w.rdb.Publish(ctx, leaseKey+":events", "end")
		message, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if hint, ok := store.ParseHint(message.Payload); !ok || hint.Type != store.HintNamed || hint.Subject != lease.Anyone {
			t.Errorf("hint %q", message.Payload)
		}
		if message, err = sub.ReceiveMessage(ctx); err != nil || message.Payload != "end" {
			t.Errorf("%v, %v: nobody is called again", message, err)
		}
	})
}

// TestLeaseHints: what the scripts publish is what electors read.
func TestLeaseHints(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		sub := hintsOf(t, w)
		a := w.asker(oracle.Asker{ID: "a", TTL: 60_000, EmptyWait: 250, RestartGuard: -1})
		a.must(ctx, t, lease.RollCall, acquiring(nil))
		w.rdb.HSet(ctx, leaseKey+":term", "hold", 1, "asked", 1)
		token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		a.must(ctx, t, lease.Done, releasing("na", token))
		a.must(ctx, t, lease.Done, releasing("na", token)) // says nothing
		deleted := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		w.rdb.Del(ctx, leaseKey)
		a.must(ctx, t, lease.Done, releasing("na", deleted))
		w.rdb.Publish(ctx, leaseKey+":events", "end")
		for _, want := range []string{store.HintRollCall, store.HintGranted, store.HintVacant, store.HintGranted, store.HintVacant, ""} {
			message, err := sub.ReceiveMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			expected := "end"
			if want != "" {
				expected = fmt.Sprintf(`{"type":%q,"role":""}`, want)
			}
			if message.Payload != expected {
				t.Errorf("hint %s, want %s", message.Payload, expected)
			}
		}
	})
}

// TestRenewAllThatIsRefused: a user that may not touch one of the keys has the other leases
// renewed, and is told of that one.
func TestRenewAllThatIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w := realLease(t, redistest.Start(t))
	all := leading(t, w.store, 5)
	rules := append(grants(append(leaseRights, "info")...), "resetkeys")
	for _, i := range []int{0, 1, 2, 4} {
		rules = append(rules, fmt.Sprintf("~ns:leader:r%d*", i))
	}
	u := w.limited(t, "some", rules...)
	for i, r := range all {
		role := *r.Lease.(*Lease)
		role.Store = u.store
		all[i].Lease = &role
	}
	for range 3 { // together, each by itself, and together again
		replies, errs := renewAll(t, all, 5*time.Second)
		for i := range all {
			if i == 3 {
				misconfigured(t, errs[i], "access to the keys and channels of the namespace")
			} else if errs[i] != nil || replies[i].Verdict != lease.Kept {
				t.Errorf("role %d: %v, %v", i, replies[i].Verdict, errs[i])
			}
		}
	}
}
