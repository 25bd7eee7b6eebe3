package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// roundTrip is the longest on a network of simnet that nothing is wrong with.
const roundTrip = 4 * time.Millisecond

// TestRenewalsTravelTogether: what comes while four calls are on their way goes in one pipeline, at
// most 200 in each; one that comes alone goes alone; a script that the server does not know is
// loaded once.
func TestRenewalsTravelTogether(t *testing.T) {
	for _, many := range []int{1, 4, 5, 300, 1000} {
		synctest.Test(t, func(t *testing.T) {
			network := simnet.New(simnet.Options{Seed: 1})
			defer network.Close()
			network.NewServer(simnet.Addr, simnet.ServerOptions{})
			client := network.Client("a", nil)
			db := openStore(client, "ns")
			require.NoError(t, client.Ping(t.Context()).Err())
			ask := func() (took time.Duration) {
				began, done := time.Now(), make(chan error)
				for i := range many {
					role := db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "a", TTL: 10 * time.Second, Attempt: 10 * time.Second / 3})
					go func() { // ends with its answer
						ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
						defer cancel()
						reply, err := role.Renew(ctx, lease.Request{Nonce: "n", Token: int64(i + 1), HoldOff: time.Second, Draining: true})
						if err == nil && reply.Reason != "vanished" {
							err = fmt.Errorf("answered %+v", reply)
						}
						done <- err
					}()
				}
				for range many {
					require.NoError(t, <-done)
				}
				return time.Since(began)
			}
			first, second := ask(), ask()
			t.Logf("%d renewals: %v on a server that does not know the script, then %v", many, first, second)
			trips := 1 + (many-4+799)/800
			require.LessOrEqual(t, second, time.Duration(trips+2)*roundTrip)
			require.LessOrEqual(t, first, time.Duration(trips+6)*roundTrip)
		})
	}
}

// leading acquires the leases of so many roles and returns their renewals.
func leading(t *testing.T, db *Store, roles int) []store.Renewal {
	t.Helper()
	all := make([]store.Renewal, roles)
	for i := range all {
		role := db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "a", TTL: 10 * time.Second, RestartGuard: -1}) // no Attempt: the hooks are of this client
		reply, err := role.Acquire(t.Context(), lease.Request{Nonce: fmt.Sprint("n", i), HoldOff: 10 * time.Second})
		require.NoError(t, err)
		require.Equal(t, lease.Won, reply.Verdict, "%+v", reply)
		all[i] = store.Renewal{Lease: role, Request: lease.Request{
			Kind: lease.Renew, Nonce: fmt.Sprint("n", i), Token: reply.Token, Origin: reply.Origin, Since: reply.Since, HoldOff: 10 * time.Second, NotAfter: reply.Now + 3_600_000,
		}}
	}
	return all
}

// renewAll sends renewals together. An index of which answered was called twice or never fails.
func renewAll(t *testing.T, all []store.Renewal, bound time.Duration) (replies []store.LeaseReply, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var mu sync.Mutex
	calls := make([]int, len(all))
	replies, errs = make([]store.LeaseReply, len(all)), make([]error, len(all))
	all = slices.Clone(all)
	store.SendAll(ctx, all, false, func(answered []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range answered {
			calls[i]++
			replies[i], errs[i] = all[i].Reply, all[i].Err
		}
	})
	for i, n := range calls {
		require.Equal(t, 1, n, i)
	}
	return replies, errs
}

// TestRenewAll: a group travels in one call, on a server that does not know the script in two; each
// renewal has its own answer, and one that is refused is refused alone. What the script for many
// leaves is asked for by itself, at once and from then on, until nothing else is to be said of it.
func TestRenewAll(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		all := leading(t, db, 200)
		sent.take()
		replies, errs := renewAll(t, all, time.Second)
		require.Equal(t, []int{200, 200}, sent.take()) // the script was not known
		for i, r := range all {
			require.NoError(t, errs[i])
			require.Equal(t, lease.Kept, replies[i].Verdict)
			require.Equal(t, r.Request.Token, replies[i].Token)
		}
		require.NoError(t, db.rdb.Set(t.Context(), "ns:leader:r7", "foreign", time.Minute).Err())
		require.NoError(t, db.rdb.Del(t.Context(), "ns:leader:r8:term").Err())
		require.NoError(t, db.rdb.Set(t.Context(), "ns:leader:r8:term", "a text", 0).Err())
		sent.take()
		for round, want := range [][]int{{200, 2, 2}, {200}} { // the script for one was not known
			replies, errs = renewAll(t, all, time.Second)
			require.Equal(t, want, sent.take(), round)
			for i := range all {
				switch i {
				case 7:
					require.Equal(t, lease.Lost, replies[i].Verdict)
				case 8:
					require.ErrorIs(t, errs[i], store.ErrMisconfigured)
				default:
					require.NoError(t, errs[i])
					require.Equal(t, lease.Kept, replies[i].Verdict)
				}
			}
		}
		require.Equal(t, []int{200, 200, 200, 198}, sent.joint)
	})
}

// TestRenewAllOfCandidates: while another candidate is preferred, and while the lease is offered,
// the script for one is asked: its answers have what the other's have not. The script for many is
// tried again, ever less often.
func TestRenewAllOfCandidates(t *testing.T) {
	for name, until := range map[string]time.Duration{"it has gone": -time.Second, "Redis's clock was set back since it asked": time.Hour} {
		t.Run(name, func(t *testing.T) { renewAllOfCandidates(t, until) })
	}
}

// renewAllOfCandidates: the best candidate counts until then from now on.
func renewAllOfCandidates(t *testing.T, until time.Duration) {
	t.Helper()
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		all := leading(t, db, 20)
		renewAll(t, all, time.Second)
		now, err := db.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.NoError(t, db.rdb.HSet(t.Context(), "ns:leader:r3:term", "best", "b", "best_rank", "1", "best_until", now.Add(15*time.Second).UnixMilli()).Err())
		all[4].Request.Heir = "b"
		all[5].Request.Floor = all[5].Request.Token + 1
		all[6].Request.NotAfter = 0
		ask := func() []store.LeaseReply {
			replies, errs := renewAll(t, all, time.Second)
			for i := range all {
				require.NoError(t, errs[i])
				require.Equal(t, lease.Kept, replies[i].Verdict)
			}
			return replies
		}
		sent.joint, sent.sizes = nil, nil
		for n := range 40 { // each time that the script for many has left it, it is spared for longer
			require.Equal(t, "b", ask()[3].Best, n)
		}
		tried := 0
		for _, roles := range sent.joint {
			require.Contains(t, []int{16, 17}, roles)
			tried += roles - 16
		}
		require.Equal(t, 5, tried, "renewals 1, 3, 7, 15 and 31")
		require.NoError(t, db.rdb.HSet(t.Context(), "ns:leader:r3:term", "best_until", now.Add(until).UnixMilli()).Err())
		sent.joint, sent.sizes = nil, nil
		for range mostApart + 10 {
			require.Empty(t, ask()[3].Best)
		}
		require.Equal(t, slices.Repeat([]int{20}, mostApart+10), sent.sizes)
		require.Equal(t, append(slices.Repeat([]int{16}, 6), slices.Repeat([]int{17}, mostApart+4)...), sent.joint, "nine of the fifteen were before")
		require.Equal(t, []any{nil, nil, nil}, db.rdb.HMGet(t.Context(), "ns:leader:r3:term", "best", "best_rank", "best_until").Val())
	})
}

// TestRenewAllWaitsLikeOne: while four batches are on their way a group waits, for no longer than
// its bound, and what waits with it travels with it, at most 200 at a time.
func TestRenewAllWaitsLikeOne(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		all := leading(t, db, 450)
		renewAll(t, all[:10], time.Second)
		sent.take()
		hang := make(chan struct{})
		sent.mu.Lock()
		sent.hold = func(nth int) {
			if nth <= maxPipelines {
				<-hang
			}
		}
		sent.mu.Unlock()
		var group sync.WaitGroup
		for i := range maxPipelines {
			group.Go(func() { renewAll(t, all[10*i:10*i+10], time.Hour) })
		}
		synctest.Wait()
		_, errs := renewAll(t, all[40:50], batchPatience/2) // given up while it waits
		for _, err := range errs {
			require.ErrorIs(t, err, store.ErrUnreachable)
		}
		for _, part := range [][]store.Renewal{all[50:200], all[200:240], all[240:440]} {
			group.Go(func() {
				_, errs := renewAll(t, part, time.Hour)
				for _, err := range errs {
					require.NoError(t, err)
				}
			})
			synctest.Wait()
		}
		close(hang)
		group.Wait()
		require.Equal(t, []int{10, 10, 10, 10, 190, 200}, sent.take())
	})
}

// TestWays: all renewals travel together, on a Redis Cluster those of one slot.
func TestWays(t *testing.T) {
	role := func(db *Store, key string, attempt time.Duration) any {
		return db.ForRole(store.Role{Key: key, Holder: "a", TTL: 10 * time.Second, Attempt: attempt}).Way()
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	one := openStore(client, "ns")
	require.Equal(t, role(one, "ns:leader:a", time.Second), role(one, "ns:leader:b", time.Second))
	require.Equal(t, role(one, "ns:leader:a", time.Second), role(one, "ns:leader:b", 2*time.Second))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	spread := openStore(cluster, "{ns}")
	require.Equal(t, role(spread, "{ns}:leader:a", time.Second), role(spread, "{ns}:leader:b", time.Second))
	require.NotEqual(t, role(spread, "{ns}:leader:a", time.Second), role(spread, "{other}:leader", time.Second))
	require.Nil(t, role(openStore(struct{ redis.UniversalClient }{client}, "{ns}"), "{ns}:leader", time.Second))
}

// TestBatchOfShortAndLongBounds: a batch lasts as long as the call that has the most time, and goes
// by the client of that: the client of another would give up sooner.
func TestBatchOfShortAndLongBounds(t *testing.T) {
	call := func(bound time.Duration) *request {
		ctx, cancel := context.WithCancel(context.Background())
		if bound > 0 {
			ctx, cancel = context.WithTimeout(context.Background(), bound)
		}
		t.Cleanup(cancel)
		return &request{ctx: ctx, store: &Store{}}
	}
	short, long, longest, unbounded := call(time.Minute), call(time.Hour), call(2*time.Hour), call(0)
	for _, batch := range [][]*request{{short, long, longest}, {longest, short, long}, {long, longest, short}, {longest}} {
		s, ctx, cancel := latest(batch)
		require.Same(t, longest.store, s)
		deadline, _ := ctx.Deadline()
		want, _ := longest.ctx.Deadline()
		require.Equal(t, want, deadline)
		cancel()
	}
	s, ctx, cancel := latest([]*request{short, unbounded, longest})
	defer cancel()
	require.Same(t, unbounded.store, s)
	_, bounded := ctx.Deadline()
	require.False(t, bounded)
}

// TestRollCallTime: a round trip for each four pipelines, and three more.
func TestRollCallTime(t *testing.T) {
	channels := func(tags, each int) (names []string) {
		for i := range tags * each {
			names = append(names, fmt.Sprintf("{t%d}:leader:r%d:events", i%tags, i))
		}
		return names
	}
	for _, tt := range []struct {
		tags, each int
		spread     bool
		trips      time.Duration
	}{
		{1, 0, false, 3}, {1, 1, false, 4}, {1, 800, false, 4}, {1, 801, false, 5}, {60, 10, false, 4},
		{1, 800, true, 4}, {1, 801, true, 5}, {4, 200, true, 4}, {4, 201, true, 5}, {60, 1, true, 18},
	} {
		require.Equal(t, tt.trips*time.Second, rollCallTime(channels(tt.tags, tt.each), tt.spread, time.Second), "%+v", tt) //nolint:durationcheck // trips are no duration
	}
}

// TestRenewalsApart: one that renew_all has left to renew travels by itself, each time for longer
// up to a bound; with the others again after one that was not left.
func TestRenewalsApart(t *testing.T) {
	var a apart
	by := func() (n int) {
		for a.next() {
			n++
		}
		return n
	}
	require.Zero(t, by())
	for _, want := range []int{1, 3, 7, mostApart, mostApart} {
		a.refused()
		require.Equal(t, want, by())
	}
	l := quietStore(t).ForRole(store.Role{Key: "ns:leader", Holder: "a", TTL: time.Second})
	l.apart = &a
	cmd := redis.NewStringCmd(t.Context())
	cmd.SetVal("17 o 1")
	(&journey{places: []int{0}}).takeJoint([]store.Renewal{{Lease: l}}, cmd, nil)
	a.refused()
	require.Equal(t, 1, by())
}

// TestRolesThatAreAlike: one call of renew_all names these once for all of its roles.
func TestRolesThatAreAlike(t *testing.T) {
	s := quietStore(t)
	was := store.Role{Key: "ns:leader", Holder: "a", TTL: time.Second, Margin: time.Second}
	for name, change := range map[string]func(r *store.Role){
		"holder":   func(r *store.Role) { r.Holder = "b" },
		"TTL":      func(r *store.Role) { r.TTL *= 2 },
		"margin":   func(r *store.Role) { r.Margin *= 2 },
		"hold-off": func(r *store.Role) { r.HoldOff = time.Minute },
	} {
		r := was
		change(&r)
		require.NotEqual(t, s.ForRole(was).alike(), s.ForRole(r).alike(), name)
	}
	other := was
	other.Key, other.EmptyWait = "ns:leader:other", time.Minute
	require.Equal(t, s.ForRole(was).alike(), s.ForRole(other).alike())
}

// TestJointReplyIsUntrusted: a reply of renew_all that is not about as many roles is none.
func TestJointReplyIsUntrusted(t *testing.T) {
	reply, err := parseJointReply("17 o 101", 3)
	require.NoError(t, err)
	require.Equal(t, jointReply{now: 17, origin: "o", renewed: "101"}, reply)
	for _, line := range []string{"", "17", "17 o", "17 o 10", "17 o 1011", "17 o 10x", "x o 101", "17 o 101 1"} {
		_, err := parseJointReply(line, 3)
		require.ErrorIs(t, err, store.ErrUnreachable, line)
	}
}

// TestSlowRollCallIsSaidOnce: that a roll-call would be slow is said once until it would be fast,
// and not at all if nobody waits for a roll-call.
func TestSlowRollCallIsSaidOnce(t *testing.T) {
	var r rollCallTimer
	told := 0
	measure := func(trips ...time.Duration) int {
		told = 0
		for _, trip := range trips {
			r.measured(trip, []string{"ns:leader:events"}, false, 100*time.Millisecond, func(n store.Notice) {
				told++
				require.Equal(t, store.RollCallSlow, n.Kind)
			})
		}
		return told
	}
	const slow, fast = 20 * time.Millisecond, time.Millisecond
	require.Zero(t, measure(slow, slow), "two say little")
	require.Equal(t, 1, measure(slow))
	require.Zero(t, measure(slow, slow, slow, slow))
	require.Zero(t, measure(fast, slow, slow), "one of three was fast")
	require.Equal(t, 1, measure(slow))
	var unasked rollCallTimer
	for range 3 {
		unasked.measured(slow, []string{"ns:leader:events"}, false, 0, func(store.Notice) { t.Error("nobody waits for it") })
	}
}
