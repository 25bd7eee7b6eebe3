package tenure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
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
			onStage(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *stage) {
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
	onStage(t, nil, func(s *stage) {
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
	onStage(t, nil, func(s *stage) {
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
			onStage(t, nil, func(s *stage) {
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
	for name, fail := range map[string]error{"resigned": nil, "failed": errBroken} {
		t.Run(name, func(t *testing.T) {
			onStage(t, nil, func(s *stage) {
				s.run(s.after(time.Second, func() error { return fail }))
				s.at(time.Second)
				for range 100 {
					s.hint(store.Hint{Type: store.HintVacant})
					s.pass(40 * time.Millisecond)
				}
				require.Len(s, s.store.made("acquire"), 1)
			})
		})
	}
}

// longestPauseOfHearing is the longest pause between two attempts to subscribe.
const longestPauseOfHearing = 2 * time.Second

// listenFor listens on channels until ctx is done, and hands over what it hears.
func listenFor(ctx context.Context, db *redisstore.Store, take func(store.Hint), channels ...string) {
	db.Listen(ctx, store.Audience{
		Channels: func() []string { return channels },
		TTL:      func() time.Duration { return 30 * time.Second },
		Wait:     func() time.Duration { return 250 * time.Millisecond },
		Take:     take,
		Report:   func(store.Notice) {},
		State:    store.NewSubscription(),
	})
}

// aSubscription listens on a client and hands over what it is told.
func aSubscription(ctx context.Context, client redis.UniversalClient) (<-chan store.Hint, <-chan struct{}) {
	var c checker
	db := newRedisStore(client, &c, Options{Namespace: "ns", InstanceID: "a", secret: nonce})
	told, ended := make(chan store.Hint, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		listenFor(ctx, db, func(h store.Hint) { told <- h }, "ns:events")
	}()
	return told, ended
}

func TestForgedHintsAreIgnored(t *testing.T) {
	redistest.NoLeaks(t)
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told, ended := aSubscription(ctx, client)
	require.Equal(t, store.Hint{Type: store.HintConnected, Channel: "ns:events"}, <-told)
	for _, forged := range []string{
		"", "{", "[]", `"vacant"`, `{"type":7}`, `{"type":"connected"}`, `{"type":"vacant","role":` + strings.Repeat("[", 2000),
		`{"type":"vacant","role":"` + strings.Repeat("x", store.MaxHintBytes) + `"}`, "\xff\xfe", "{\"type\":\"vacant\"}\x00",
	} {
		server.Publish("ns:events", forged)
	}
	server.Publish("other:events", `{"type":"vacant"}`)
	server.Publish("ns:events", `{"type":"roll-call","role":"r","instance":"i","source":"s","all":true,"more":1}`)
	require.Equal(t, store.Hint{Type: store.HintRollCall, Role: "r", Subject: "i", Source: "s", Channel: "ns:events"}, <-told, "the first that is one")
	cancel()
	<-ended
}

// A subscription that breaks is made anew, and the elector told, since hints may have been missed.
func TestSubscriptionStandsAgain(t *testing.T) {
	redistest.NoLeaks(t)
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := aSubscription(ctx, client)
	require.Equal(t, store.HintConnected, (<-told).Type)
	server.Close()
	require.NoError(t, server.Restart())
	require.Equal(t, store.HintConnected, (<-told).Type)
	server.Publish("ns:events", `{"type":"vacant"}`)
	require.Equal(t, store.HintVacant, (<-told).Type)
	cancel()
	<-ended
}

// A connection that is silent is asked; if it does not answer, another one is made. Pauses grow,
// and are bounded.
func TestSubscriptionInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{Seed: 1})
		defer network.Close()
		server := network.NewServer(simnet.Addr, simnet.ServerOptions{})
		client := network.Client("a", nil)
		ctx, cancel := context.WithCancel(context.Background())
		told, ended := aSubscription(ctx, client)
		publish := func() {
			server.Do(func(m *miniredis.Miniredis) { m.Publish("ns:events", `{"type":"vacant"}`) })
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		require.Equal(t, store.HintConnected, (<-told).Type)
		time.Sleep(time.Hour)
		require.Empty(t, told, "one subscription for all of a silent hour")
		publish()
		require.Equal(t, store.HintVacant, (<-told).Type)

		network.Partition("a", simnet.Both, time.Hour)
		time.Sleep(30 * time.Minute)
		publish()
		require.Empty(t, told)
		network.Heal("a")
		time.Sleep(20 * time.Second)
		require.Equal(t, store.HintConnected, (<-told).Type)
		for len(told) > 0 {
			<-told
		}
		publish()
		require.Equal(t, store.HintVacant, (<-told).Type)
		cancel()
		<-ended
	})
}

// While Redis refuses connections the pauses between subscriptions grow to longestPauseOfHearing,
// and no further.
func TestSubscriptionPausesGrowAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials []time.Time
		client := redis.NewClient(&redis.Options{
			Addr:       "127.0.0.1:6379", // a name would be looked up, which ties the resolver to this bubble
			MaxRetries: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				dials = append(dials, time.Now())
				return nil, errors.New("refused")
			},
		})
		defer client.Close()
		ctx, cancel := context.WithCancel(context.Background())
		_, ended := aSubscription(ctx, client)
		const during = 10 * time.Minute
		time.Sleep(during)
		cancel()
		<-ended
		var pauses []time.Duration // between the instants at which it tries, each with one dial or more
		for i, at := range dials[1:] {
			if pause := at.Sub(dials[i]); pause > 0 {
				pauses = append(pauses, pause)
			}
		}
		require.Less(t, pauses[0], 200*time.Millisecond, "a blip costs little")
		require.Greater(t, pauses[len(pauses)-1], longestPauseOfHearing/2)
		require.LessOrEqual(t, len(pauses), int(during/longestPauseOfHearing)+20)
		require.GreaterOrEqual(t, len(pauses), int(during/longestPauseOfHearing)*9/10)
	})
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

func TestHintJSONIsWhatTheScriptsSend(t *testing.T) {
	require.Contains(t, scriptsLua, `'{"type":"' .. kind .. '","role":"' .. role .. '"'`)
	for _, kind := range []string{store.HintVacant, store.HintGranted, store.HintRollCall} {
		require.Contains(t, scriptsLua, fmt.Sprintf("'%s'", kind))
	}
}
