package tenure

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// asideStore is a scripted store with a way to Redis that the script does not touch.
type asideStore struct {
	*scriptedStore
	err  error // what it says instead of an answer
	hang bool

	mu   sync.Mutex
	sent []time.Duration
}

func (s *asideStore) AskAside(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	s.mu.Lock()
	s.sent = append(s.sent, s.election.now())
	s.mu.Unlock()
	if s.hang {
		<-s.healed
	}
	if s.err != nil {
		return store.LeaseReply{}, s.err
	}
	if r.Kind == lease.Acquire {
		return s.execute("acquire", r), nil
	}
	return s.execute("renew", r), nil
}

func (s *asideStore) copies() []time.Duration {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.sent...)
}

// No renewal over the pool of the client is ever answered, and each holds its call for ever. The
// term goes on by the second copies, also at the cap of calls, and its deadline counts from before
// the first.
func TestSecondCopyKeepsTheTerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{lost: true, hang: true}))
		store := &asideStore{scriptedStore: s.store}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		first := s.Status().Token
		second := electionRenew + electionTTL/3/secondCopy
		s.at(second - time.Millisecond)
		require.Empty(s, store.copies())
		s.at(second)
		require.Len(s, store.copies(), 1)
		require.WithinDuration(s, s.began.Add(electionRenew+electionLife), s.Status().Deadline, time.Millisecond)
		for range 30 {
			s.pass(electionRenew)
			require.True(s, s.IsLeader())
		}
		require.Equal(s, first, s.Status().Token)
		require.Len(s, s.told(EventCallsStuck), 1)
		require.LessOrEqual(s, s.Status().CallsInFlight, maxCalls+1)
		require.Empty(s, s.told(EventRedisDown))
	})
}

// A second copy that fails says nothing: the first is still on its way. An answer to the first
// makes one needless.
func TestSecondCopyThatFailsIsNoNews(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{back: 2 * time.Second}))
		store := &asideStore{scriptedStore: s.store, err: errNetwork}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.at(electionRenew + time.Second)
		require.Len(s, store.copies(), 1)
		s.store.on(nil)
		s.pass(time.Minute)
		require.Len(s, store.copies(), 1, "Redis answers at once")
		require.True(s, s.IsLeader())
		require.Empty(s, s.told(EventRedisDown))
		require.NoError(s, s.Status().Err)
	})
}

func TestOneSecondCopyAtATime(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{back: 2 * time.Second}))
		store := &asideStore{scriptedStore: s.store, hang: true}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.pass(time.Minute)
		require.Len(s, store.copies(), 1)
		require.True(s, s.IsLeader())
	})
}

// A candidate whose calls all hang asks on over the way aside.
func TestProbeAtTheCapOfCalls(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{lost: true, hang: true}))
		s.Elector.loop.store = &asideStore{scriptedStore: s.store}
		s.run(s.honest(0))
		s.pass(10 * time.Minute)
		require.Len(s, s.store.made("acquire"), maxCalls)
		require.True(s, s.IsLeader())
	})
}
