package scenario

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// Machines that are cut from each other, with a Redis and a Sentinel on each of three: one leader
// at most (P1), tokens that increase (P2, P3), and after the partition has healed one leader and
// nobody left behind (P7).
func TestP1P2P3P7_PartitionedMachinesUnderSentinel(t *testing.T) { //nolint:tparallel // its parts share a name for their machines: one after the other
	t.Parallel()
	machines := []string{"m0", "m1", "m2"}
	begin := func(t *testing.T) (*stage, *redistest.LANSentinel, *player, *player) {
		s := newParallelStage(t, 5*time.Second)
		s.fence()
		lan := redistest.NewLAN(t, "m0", "m1", "m2", "c0", "c1")
		sentinel := lan.StartSentinel(t, machines, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
		timing := func(o *tenure.Options) { o.Election.RenewInterval = time.Second }
		first := s.join("first", sentinel.Client(t, "c0"), young, timing)
		s.leads(first)
		second := s.join("second", sentinel.Client(t, "c1"), young, timing)
		s.follows(second, first)
		return s, sentinel, first, second
	}
	t.Run("the master with the leader, against the rest", func(t *testing.T) {
		s, sentinel, first, second := begin(t)
		_, token := s.leader(0)
		minority, majority := []string{"m0", "c0"}, []string{"m1", "m2", "c1"}
		cut := monotonic()
		sentinel.Cut(t, minority, majority)
		s.eventually("the majority to have another master", func() bool { m := sentinel.MasterBy("m1"); return m != "" && m != "m0" })
		replaced := monotonic()
		if got := sentinel.MasterBy("m0"); got != "m0" {
			t.Errorf("the Sentinel beside the old master calls %q the master", got)
		}
		next, higher := s.leader(token)
		if next != second {
			t.Errorf("%s leads, in the minority", next.name)
		}
		s.eventually("the old leader to step down", func() bool { return !first.IsLeader() })
		t.Logf("a failover within %v, another leader %v after the cut, the old one ended %v before", round(replaced-cut),
			round(s.beliefs.term(higher).first-cut), round(s.beliefs.term(higher).first-s.beliefs.term(token).last))
		sentinel.Heal(t, minority, majority)
		s.agree(first, second)
	})
	t.Run("the leader's client alone", func(t *testing.T) {
		s, sentinel, first, second := begin(t)
		_, token := s.leader(0)
		cut := monotonic()
		sentinel.Cut(t, []string{"c0"}, machines)
		next, higher := s.leader(token)
		if next != second {
			t.Errorf("%s leads, cut off", next.name)
		}
		t.Logf("another leads %v after the cut, the old one ended %v before", round(s.beliefs.term(higher).first-cut),
			round(s.beliefs.term(higher).first-s.beliefs.term(token).last))
		sentinel.Heal(t, []string{"c0"}, machines)
		s.agree(first, second)
	})
}

// The machine of the master is gone without a sign, and with it the Sentinel that the leader's
// client has asked: the client finds another Sentinel, and the new master, within the term. It is
// set as docs/redis.md says, so that the dial of one server ends before DialTimeout does.
func TestP12_SentinelThatIsGoneWithTheMaster(t *testing.T) {
	s := newParallelStage(t, 20*time.Second)
	lan := redistest.NewLAN(t, "m0", "m1", "m2", "c0")
	sentinel := lan.StartSentinel(t, []string{"m0", "m1", "m2"}, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	leader := s.join("leader", sentinel.Client(t, "c0", func(o *redis.FailoverOptions) {
		o.SentinelAddrs = o.SentinelAddrs[:1] // that of m0: the client hears of the others from it
		o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 5*time.Second
		clientopts.Set(o, "DialerRetries", 1)
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return dial(ctx, network, addr)
		}
	}), young, func(o *tenure.Options) { o.Election.RenewInterval = time.Second })
	token := s.leads(leader)
	sentinel.Cut(t, []string{"m0"}, []string{"m1", "m2", "c0"})
	s.eventually("another master", func() bool { m := sentinel.MasterBy("m1"); return m != "" && m != "m0" })
	s.goesOnElsewhere(leader, token)
}

// agree waits until both have heard from Redis, and one of them leads and the other knows.
func (s *stage) agree(first, second *player) {
	s.Helper()
	healed := time.Now()
	s.eventually("both to hear from Redis, and to know the same leader", func() bool {
		one, other := first.Status(), second.Status()
		return one.LastAnswer.After(healed) && other.LastAnswer.After(healed) && one.Leader != "" && one.Leader == other.Leader &&
			first.IsLeader() != second.IsLeader()
	})
	s.Logf("healed: both agree %v later", round(time.Since(healed)))
}
