//go:build unix

package scenario

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// What Redis answers while it cannot serve means that nothing is known: the leader leads on, at
// most until its deadline, and everything goes on by itself.
func TestP12_UnusableAnswersAreUnknown(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1}) // else it would try again itself
	t.Cleanup(func() { _ = client.Close() })                                      // it has nothing to say
	leader := s.join("leader", client, young)
	token := s.leads(leader)
	answer := func(reply string) {
		proxy.ScriptedReply(func(cmd []string) ([]byte, bool) { return []byte("-" + reply + "\r\n"), isScript(cmd) })
	}
	trouble := func(reply string) func() bool {
		return func() bool {
			err := leader.Status().Err
			return errors.Is(err, tenure.ErrUnreachable) && !errors.Is(err, tenure.ErrMisconfigured) && strings.Contains(err.Error(), reply)
		}
	}
	replies := []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
	}
	for _, reply := range replies {
		answer(reply)
		s.eventually("the status to report "+reply, trouble(reply))
		proxy.ScriptedReply(nil)
		s.eventually("recovery from "+reply, func() bool { return leader.Status().Err == nil })
		if !leader.IsLeader() {
			t.Errorf("%q deposed the leader", reply)
		}
	}
	s.onlyTerms(token)
	if failed := leader.log.count("failed to renew"); failed != len(replies) {
		t.Errorf("%d records of failed renewals for %d troubles", failed, len(replies))
	}
	answer(replies[0])
	s.steppedDownInTime(leader, token)
	s.eventually("the status to report the trouble", trouble(replies[0]))
	proxy.ScriptedReply(nil)
	s.leader(token)
}

// A Redis that refuses connections from the start is tried for ever, and reported once.
func TestP12_RefusedAtStart(t *testing.T) {
	s := newParallelStage(t, time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Cut()
	candidate := s.join("candidate", clientOf(t, proxy.Addr()), young)
	s.eventually("the status to say so", func() bool { return errors.Is(candidate.Status().Err, tenure.ErrUnreachable) })
	s.holds(s.ttl, "nobody leads", func() bool { return !candidate.IsLeader() })
	if n := candidate.log.count("redis gives no usable answer"); n != 1 {
		t.Errorf("told %d times", n)
	}
	proxy.Heal()
	s.leads(candidate)
	if n := candidate.log.count("redis answers again"); n != 1 {
		t.Errorf("the recovery was reported %d times", n)
	}

	proxy.Cut()
	hasty := s.join("hasty", clientOf(t, proxy.Addr()), young, func(o *tenure.Options) { o.FailFast = true })
	<-hasty.idle
	if !errors.Is(hasty.err, tenure.ErrUnreachable) {
		t.Errorf("with FailFast Run returned %v", hasty.err)
	}
}

// A missing or wrong password is reported once, with what to do about it, at the start and later.
// It is tried on, and means unknown.
func TestP12_WrongPassword(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t, redistest.Args("--requirepass", "secret"), redistest.Login("", "secret"))
	admin := server.Client(t)
	misconfigured := func(p *player) {
		t.Helper()
		s.eventually(p.name+" to say that it is misconfigured", func() bool {
			err := p.Status().Err
			return errors.Is(err, tenure.ErrMisconfigured) && strings.Contains(err.Error(), "set Username and Password")
		})
	}
	without := s.join("without", clientOf(t, server.Addr()), young)
	wrong := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "wrong"})
	t.Cleanup(func() { _ = wrong.Close() })
	mistaken := s.join("mistaken", wrong, young)
	misconfigured(without)
	misconfigured(mistaken)
	hasty := s.join("hasty", clientOf(t, server.Addr()), young, func(o *tenure.Options) { o.FailFast = true })
	<-hasty.idle
	if !errors.Is(hasty.err, tenure.ErrMisconfigured) {
		t.Errorf("with FailFast Run returned %v", hasty.err)
	}
	s.holds(s.ttl, "nobody leads", func() bool { return !without.IsLeader() && !mistaken.IsLeader() })
	for _, p := range []*player{without, mistaken} {
		if n := p.log.count(" misconfigured instance="); n != 1 {
			t.Errorf("%s reported %d times:\n%s", p.name, n, p.log)
		}
		s.must(p.quit(s))
	}

	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	conn := admin.Conn() // it stays what it was when it logged in
	defer conn.Close()
	s.must(conn.Ping(t.Context()).Err())
	s.must(conn.ConfigSet(t.Context(), "requirepass", "another").Err())
	s.must(conn.Process(t.Context(), redis.NewIntCmd(t.Context(), "client", "kill", "type", "normal", "skipme", "yes")))
	misconfigured(leader)
	s.steppedDownInTime(leader, token)
	s.must(conn.ConfigSet(t.Context(), "requirepass", "secret").Err())
	s.leader(token)
	if n := leader.log.count(" misconfigured instance="); n != 1 {
		t.Errorf("told %d times:\n%s", n, leader.log)
	}
}

// An application that uses the pool up does not starve renewals: their second copies go over
// connections of their own. If there are no more of those either, the leader steps down in time,
// and comes back by itself.
func TestP4_ExhaustedPool(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	opts := server.Options()
	opts.PoolSize = 1
	var full atomic.Bool
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if full.Load() {
			return nil, errors.New("max number of clients reached")
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	shared := redis.NewClient(opts)
	t.Cleanup(func() { _ = shared.Close() })
	leader := s.join("leader", shared, young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	conn := shared.Conn()
	s.must(conn.Ping(t.Context()).Err())
	s.holds(2*s.ttl, "the same leader", leader.IsLeader)
	full.Store(true)
	s.eventually("the leader to report it", func() bool { return leader.log.count("failed to renew") == 1 })
	s.steppedDownInTime(leader, token)
	full.Store(false)
	s.leads(follower)
	s.must(conn.Close())
	s.follows(leader, follower)
}
