package tenure

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

func TestVacantWakesAFollowerAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		hint store.Hint
		asks bool
	}{
		"vacant":             {store.Hint{Type: store.HintVacant, Role: "cleanup"}, true},
		"another role name":  {store.Hint{Type: store.HintVacant, Role: "other"}, true},
		"of another lease":   {store.Hint{Type: store.HintVacant, Role: "cleanup", Channel: "tenure:leader:other:events"}, false},
		"granted to another": {store.Hint{Type: store.HintGranted, Role: "cleanup"}, false},
		"roll-call":          {store.Hint{Type: store.HintRollCall, Role: "cleanup"}, false},
		"unknown":            {store.Hint{Type: "reboot", Role: "cleanup"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *election) {
				s.store.hold("other", time.Hour)
				s.run(s.honest(0))
				s.at(time.Second)
				s.store.hold("other", 0)
				s.hint(test.hint)
				s.pass(0)
				require.Equal(s, test.asks, s.IsLeader())
			})
		})
	}
}

// A hint that comes while a request is on its way is remembered.
func TestHintDuringARequest(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.store.on(on("acquire", fate{back: 10 * time.Millisecond}))
		s.run(s.honest(0))
		s.at(5 * time.Millisecond)
		s.store.hold("other", 0)
		s.hint(store.Hint{Type: store.HintVacant})
		s.at(25*time.Millisecond + 10*time.Millisecond)
		require.True(s, s.IsLeader())
	})
}

func TestFloodOfHintsIsNoFloodOfRequests(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.run(s.honest(0))
		for s.now() < time.Second {
			for range 100 {
				s.hint(store.Hint{Type: store.HintVacant})
				s.hint(store.Hint{Type: store.HintConnected})
			}
			s.pass(time.Millisecond)
		}
		calls := s.store.made("")[1:] // the first one came by itself
		require.LessOrEqual(s, len(calls), 41)
		for i, call := range calls[1:] {
			require.GreaterOrEqual(s, call.at-calls[i].at, 25*time.Millisecond)
		}
	})
}

func TestRollCallMakesALeaderRenewAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		hint   store.Hint
		renews int
	}{
		"its lease":        {store.Hint{Type: store.HintRollCall}, 1},
		"every lease":      {store.Hint{Type: store.HintRollCall, Channel: "any", All: true}, 1},
		"another lease":    {store.Hint{Type: store.HintRollCall, Channel: "other"}, 0},
		"vacant":           {store.Hint{Type: store.HintVacant}, 0},
		"subscribed again": {store.Hint{Type: store.HintConnected}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.honest(0))
				s.at(time.Second)
				s.hint(test.hint)
				s.pass(0)
				require.Len(s, s.store.made("renew"), test.renews)
			})
		})
	}
}

func TestHintsWhileStandingBackAreIgnored(t *testing.T) {
	for name, test := range map[string]struct {
		ends  error
		pause time.Duration // a hundred of them are shorter than it stands back
	}{"resigned": {ErrResigned, 40 * time.Millisecond}, "failed": {errBroken, 10 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.after(time.Second, func() error { return test.ends }))
				s.at(time.Second)
				for range 100 {
					s.hint(store.Hint{Type: store.HintVacant})
					s.pass(test.pause)
				}
				require.Len(s, s.store.made("acquire"), 1)
			})
		})
	}
}

// A client that connects for ever, whatever its context says, does not hold up Run past the
// shutdown bound.
func TestP11_SubscriptionThatHangs(t *testing.T) {
	redistest.NoLeaks(t)
	release, dialling := make(chan struct{}), make(chan struct{}, 100)
	client := redis.NewClient(&redis.Options{
		MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			dialling <- struct{}{}
			<-release
			return nil, errors.New("refused")
		},
	})
	defer client.Close()
	elector, err := NewElector(client, Options{Namespace: "tenure", ShutdownTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }()
	<-dialling
	<-dialling // the first acquire, and the subscription
	cancel()
	err = <-ended
	require.ErrorIs(t, err, ErrDrainTimeout)
	require.ErrorContains(t, err, "the subscription to hints")
	close(release)
}
