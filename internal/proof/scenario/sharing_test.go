//go:build unix

package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// If hints cannot be heard, a hand-over still happens when the follower wakes by itself.
func TestP7_HandOverWithoutHints(t *testing.T) {
	const ttl, retry = 40 * time.Second, time.Second
	s := newParallelStage(t, ttl)
	server := redistest.Start(t, redistest.Args("--user", "mute", "on", ">secret", "~*", "+@all", "resetchannels"))
	mute := func() *redis.Client {
		opts := server.Options()
		opts.Username, opts.Password = "mute", "secret"
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	wakeful := func(o *tenure.Options) { o.Election.RetryInterval = retry }
	s.join("candidate-0", mute(), young, wakeful)
	s.join("candidate-1", mute(), young, wakeful)
	token := int64(0)
	for range 3 {
		var leader *player
		leader, token = s.leader(token)
		for _, p := range s.players {
			if p != leader {
				s.follows(p, leader)
			}
		}
		s.must(leader.Resign(t.Context()))
		last := s.beliefs.term(token).last
		_, higher := s.leader(token)
		after := s.beliefs.term(higher).first - last
		t.Logf("hand-over without hints after %v, a follower sleeps %v at most", round(after), retry)
		if after > retry+20*time.Second { // it would be the rest of the lease
			t.Errorf("hand-over after %v", after)
		}
	}
	heard, err := server.Client(t).PubSubNumSub(t.Context(), leaderKey+":events").Result()
	s.must(err)
	if heard[leaderKey+":events"] != 0 {
		t.Error("hints were heard: nothing was shown")
	}
}

// A flood of forged hints costs few requests and no leader.
func TestForgedHintsCoalesce(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	s.eventually("both to listen", func() bool {
		return admin.PubSubNumSub(t.Context(), leaderKey+":events").Val()[leaderKey+":events"] == 2
	})
	calls := func() int {
		for part := range strings.SplitSeq(server.Info(t, "commandstats")["cmdstat_evalsha"], ",") {
			if text, ok := strings.CutPrefix(part, "calls="); ok {
				n, err := strconv.Atoi(text)
				s.must(err)
				return n
			}
		}
		return 0
	}
	const flood, batch = 20_000, 500
	before, began := calls(), time.Now()
	for range flood / batch {
		pipe := admin.Pipeline()
		for range batch {
			pipe.Publish(t.Context(), leaderKey+":events", `{"type":"vacant","role":""}`)
		}
		_, err := pipe.Exec(t.Context())
		s.must(err)
	}
	s.holds(s.ttl/2, "the same leader", leader.IsLeader)
	took := time.Since(began)
	asked := calls() - before
	most := int(took/(25*time.Millisecond)) + int(took/(s.ttl/4)) + 2 // attempts that hints cause, renewals, edges
	t.Logf("%d forged hints in %v: %d calls of scripts", flood, took.Round(time.Millisecond), asked)
	if asked > most {
		t.Errorf("%d calls of scripts, want at most %d", asked, most)
	}
	s.onlyTerms(token)
}

// Two living processes under one instance ID: an ID is a label, and one leads at a time.
func TestP1P5_TwoElectorsUnderOneID(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	for i := range 2 {
		s.join(fmt.Sprint("twin-", i), server.Client(t), young, func(o *tenure.Options) { o.InstanceID = "twin" })
	}
	token := int64(0)
	for range 3 {
		var leader *player
		leader, token = s.leader(token)
		s.holds(s.ttl*3/2, "the same leader", leader.IsLeader)
		if holder, stored := s.stored(admin); holder != "twin" || stored != token {
			t.Errorf("Redis shows %q under %d", holder, stored)
		}
		s.must(leader.Resign(t.Context()))
	}
}
