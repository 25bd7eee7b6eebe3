//go:build unix

package scenario

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A failover by Sentinel: the leader goes on under its token, or the next one comes after the
// hold-off, whether Redis knew of the term or the promoted replica has missed it.
func TestP1P2P3_SentinelFailover(t *testing.T) {
	t.Parallel()
	for name, failOver := range map[string]func(*stage, *redistest.Sentinel){
		"asked for": func(s *stage, sentinel *redistest.Sentinel) { sentinel.Failover(s) },
		"crash": func(s *stage, sentinel *redistest.Sentinel) {
			old := sentinel.Master()
			old.Kill(s)
			sentinel.AwaitMaster(s, old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, 4*time.Second)
			s.fence()
			sentinel := redistest.StartSentinel(t)
			s.join("candidate-0", sentinel.Client(t), young)
			s.join("candidate-1", sentinel.Client(t), young)
			leader, token := s.leader(0)
			lost := monotonic()
			failOver(s, sentinel)
			t.Logf("the failover took %v", round(monotonic()-lost))
			s.join("newcomer", sentinel.Client(t))
			s.continued(leader, token, lost)
		})
	}
	t.Run("last writes lost", func(t *testing.T) {
		s := newParallelStage(t, 3*time.Second)
		s.fence()
		sentinel := redistest.StartSentinel(t)
		sentinel.HealAfter(t, time.Minute) // longer than all of this takes
		first := s.join("first", sentinel.Client(t), young)
		before := s.leads(first)
		second := s.join("second", sentinel.Client(t), young)
		s.follows(second, first)
		old := sentinel.Master()
		for _, replica := range sentinel.Data {
			if replica != old {
				replica.WaitReplicated(t)
			}
		}
		sentinel.HoldReplication(t)
		s.must(first.Resign(t.Context()))
		leader, token := s.leader(before)
		lost := monotonic()
		old.Kill(t)
		next := sentinel.AwaitMaster(t, old)
		t.Logf("the failover took %v, %s leads under %d, the new master knows of %d", round(monotonic()-lost), leader.name, token, before)
		s.join("newcomer", next.Client(t))
		s.continued(leader, token, lost)
	})
}

// continued waits until an election goes on after Redis may have lost data: with the same term, or
// with the next after the hold-off.
func (s *stage) continued(leader *player, token int64, lost time.Duration) {
	s.Helper()
	s.eventually("the same leader to renew, or the next to lead", func() bool {
		for _, p := range s.players {
			if term, ok := p.Term(); ok && term.Token > token {
				return true
			}
		}
		status := leader.Status()
		return status.Token == token && status.Err == nil && status.LastAnswer.After(time.Now().Add(-s.ttl/2)) &&
			monotonic()-lost > s.ttl
	})
	if leader.IsLeader() && leader.Status().Token == token {
		s.Logf("%s leads on under its token", leader.name)
		s.holds(s.ttl, "the same leader", leader.IsLeader)
		return
	}
	next, higher := s.leader(token)
	gap := s.beliefs.term(higher).first - s.beliefs.term(token).last
	s.Logf("%s leads %v after the loss, nobody led for %v", next.name, round(s.beliefs.term(higher).first-lost), round(gap))
	if after := s.beliefs.term(higher).first - lost; after < s.ttl {
		s.Errorf("the next leader came %v after the loss, within the hold-off", after)
	}
}

// A frozen master is replaced, wakes up, and takes writes beside the new one until Sentinel tells
// it what it is; a leader that goes on using it goes on leading. min-replicas-to-write, or a
// FailoverMargin, keeps P1; without either the overlap is measured. Tokens and what they fence are
// sound always.
func TestP1P2P3_SecondMasterUnderSentinel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		heal   time.Duration // the second master takes writes for so long
		args   []string
		margin time.Duration
	}{
		"without protection":      {heal: 10 * time.Second},
		"min-replicas-to-write 1": {heal: 10 * time.Second, args: []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
		"FailoverMargin":          {heal: time.Second, margin: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, 7*time.Second)
			s.fence()
			sentinel := redistest.StartSentinel(t, redistest.Args(tc.args...))
			sentinel.HealAfter(t, tc.heal)
			timing := func(o *tenure.Options) {
				o.Election.RenewInterval, o.Election.Safety.FailoverMargin = 500*time.Millisecond, tc.margin
			}
			old := sentinel.Master()
			leader := s.join("leader", old.Client(t), young, timing)
			token := s.leads(leader)
			follower := s.join("follower", sentinel.Client(t), young, timing)
			s.follows(follower, leader)
			frozen := monotonic()
			old.Pause(t)
			sentinel.AwaitMaster(t, old)
			replaced := monotonic()
			old.Resume(t)
			if !leader.IsLeader() {
				t.Logf("this machine is slow: the failover took longer than the lease, %v", round(replaced-frozen))
			}
			if tc.args == nil && tc.margin == 0 {
				s.beliefs.mayOverlap("a second master that takes writes, and nothing against it")
			}
			admin := old.Client(t)
			s.eventually("the second master to be told that it is a replica", func() bool { return isReplica(t, admin) })
			second := monotonic() - replaced
			if tc.margin > 0 && second > tc.margin {
				s.beliefs.mayOverlap("a second master for longer than FailoverMargin")
			}
			demoted := time.Now()
			s.eventually("another to lead, or Redis to go back to the first master, and with it the leader", func() bool {
				status := leader.Status()
				return follower.IsLeader() || status.Token == token && status.LastAnswer.After(demoted) && status.Err == nil
			})
			if !follower.IsLeader() {
				t.Log("this machine is slow: the sentinels took the new master for dead too, and the old leader has its lease again")
				return
			}
			next, higher := s.leader(token)
			s.eventually("the old leader to step down", func() bool { return !leader.IsLeader() })
			t.Logf("a failover within %v, then a second master for %v; %s leads %v after the failover; overlap %v",
				round(replaced-frozen), round(second), next.name, round(s.beliefs.term(higher).first-replaced),
				round(max(0, s.beliefs.overlap(token, higher))))
			if s.beliefs.overlap(token, higher) > 100*time.Millisecond {
				s.eventually("the resource to have refused the old leader", func() bool { return s.fenced.refusals(token) > 0 })
				t.Logf("the resource refused %d writes of the old leader", s.fenced.refusals(token))
			}
		})
	}
}

// A user of the Sentinels with the rights of docs/redis.md, and no others, finds the master and the
// other Sentinels, and hears of a failover: nothing is refused.
func TestRightsOnSentinels(t *testing.T) {
	text, err := os.ReadFile("../../../docs/redis.md")
	require.NoError(t, err)
	rules := strings.Fields(string(regexp.MustCompile(`(?m)^user shop on .*$`).Find(text)))
	require.NotEmpty(t, rules)
	s := newParallelStage(t, 20*time.Second)
	sentinel := redistest.StartSentinel(t)
	options := sentinel.Options()
	options.SentinelAddrs, options.SentinelUsername, options.SentinelPassword = options.SentinelAddrs[:1], "shop", "password"
	watchers := make([]*redis.Client, 0, len(sentinel.Watchers))
	for _, w := range sentinel.Watchers {
		admin := w.Client(t)
		watchers = append(watchers, admin)
		set := []any{"ACL", "SETUSER"}
		for _, rule := range rules[1:] {
			set = append(set, rule)
		}
		require.NoError(t, admin.Do(t.Context(), set...).Err())
	}
	client := redis.NewFailoverClient(options)
	t.Cleanup(func() { _ = client.Close() })
	leader := s.join("leader", client, young, func(o *tenure.Options) { o.Election.RenewInterval = 500 * time.Millisecond })
	token := s.leads(leader)
	sentinel.Failover(s)
	s.goesOnElsewhere(leader, token)
	for _, admin := range watchers {
		refused, err := admin.ACLLog(t.Context(), 100).Result()
		require.NoError(t, err)
		for _, entry := range refused {
			require.Equal(t, "client|setinfo", entry.Object, "%+v", entry) // which go-redis can do without
		}
	}
}

func isReplica(t *testing.T, admin *redis.Client) bool {
	t.Helper()
	role, err := admin.Do(t.Context(), "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "slave"
}
