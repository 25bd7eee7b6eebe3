package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
	"github.com/tenure-go/tenure/internal/store"
)

// longestPauseOfHearing is the longest pause between two attempts to subscribe.
const longestPauseOfHearing = 2 * time.Second

// listenFor listens on channels until ctx is done, and hands over what it hears.
func listenFor(ctx context.Context, db *Store, take func(store.Hint), channels ...string) {
	db.Listen(ctx, store.Audience{
		Channels: func() []string { return channels },
		TTL:      func() time.Duration { return 30 * time.Second },
		Wait:     func() time.Duration { return 250 * time.Millisecond },
		Leads:    func() bool { return false },
		Take:     take,
		Report:   func(store.Notice) {},
		State:    store.NewSubscription(),
	})
}

// aSubscription listens on a client and hands over what it is told.
func aSubscription(ctx context.Context, client redis.UniversalClient) (<-chan store.Hint, <-chan struct{}) {
	db := openStore(client, "ns")
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
		"", "{", "[]", `"vacant"`, `{"type":7}`, `{"type":"connected"}`, `{"type":"listeners","Count":9}`, `{"type":"vacant","role":` + strings.Repeat("[", 2000),
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

// dialsFail is a hook in which dials fail while that is switched on.
type dialsFail struct {
	fail   func()
	on     atomic.Bool
	failed chan struct{} // has a buffer of one
}

func (h *dialsFail) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if h.on.Load() {
			select {
			case h.failed <- struct{}{}:
			default:
			}
			h.fail()
		}
		return next(ctx, network, addr)
	}
}

func (h *dialsFail) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *dialsFail) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestDialHookThatPanics: the client connects again by itself when a subscription breaks, and holds
// a lock for good if that panics, or ends its goroutine. However often that was, another
// subscription stands once dials are sound, and Listen ends.
func TestDialHookThatPanics(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("a hook") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) { dialsThatFail(t, fail) })
	}
}

func dialsThatFail(t *testing.T, fail func()) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	hook := &dialsFail{fail: fail, failed: make(chan struct{}, 1)}
	client.AddHook(hook)
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := aSubscription(ctx, client)
	stands := func() {
		select {
		case hint := <-told:
			require.Equal(t, store.HintConnected, hint.Type)
		case <-time.After(30 * time.Second):
			t.Fatal("no subscription stands any more")
		}
	}
	for range mostHanging + 1 {
		stands()
		hook.on.Store(true)
		server.Close()
		require.NoError(t, server.Restart())
		<-hook.failed
		hook.on.Store(false)
		select { // of another dial meanwhile
		case <-hook.failed:
		default:
		}
	}
	stands()
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
		opts := &redis.Options{
			Addr:       "127.0.0.1:6379", // a name would be looked up, which ties the resolver to this bubble
			MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				dials = append(dials, time.Now())
				return nil, errors.New("refused")
			},
		}
		clientopts.Set(opts, "DialerRetries", 1)
		client := redis.NewClient(opts)
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

func TestHintJSONIsWhatTheScriptsSend(t *testing.T) {
	require.Contains(t, scriptsLua, `'{"type":"' .. kind .. '","role":"' .. role .. '"'`)
	for _, kind := range []string{store.HintVacant, store.HintGranted, store.HintRollCall, store.HintNamed, store.HintReady} {
		require.Contains(t, scriptsLua, fmt.Sprintf("'%s'", kind))
	}
}

// TestPublishedFramesAcrossTheDeadline: somebody publishes a message whose rest comes when the
// subscriber has given up waiting, cut at any place. Behind the cut nothing may be read as
// protocol: not what would end the process, nor a hint, nor an address to go to.
func TestPublishedFramesAcrossTheDeadline(t *testing.T) {
	forged := simnet.MessageFrame("ns:events", `{"type":"vacant","role":"forged"}`)
	for _, protocol := range []int{2, 3} {
		for _, attack := range []string{
			"*0\r\n", forged, "$4611686018427387904\r\n",
			">4\r\n$6\r\nMOVING\r\n:1\r\n:1\r\n$13\r\n10.0.0.1:6379\r\n",
		} {
			payload := "+++\r\n" + strings.Repeat(attack, 3)
			message := simnet.MessageFrame("ns:events", payload)
			body := strings.Index(message, payload)
			for _, cut := range []int{1, 5, 20, body - 2, body, body + 1, body + 4, body + 5, body + 6, len(message) - 1} {
				t.Run(fmt.Sprintf("RESP%d %q at %d", protocol, attack[:4], cut), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { acrossTheDeadline(t, protocol, message, cut) })
				})
			}
		}
	}
}

func acrossTheDeadline(t *testing.T, protocol int, message string, cut int) {
	dials := 0
	var later sync.WaitGroup
	server := &simnet.FramedServer{}
	server.Reply = func(args []string, say func(string)) (string, bool) {
		switch {
		case args[0] == "publish":
			return ":1\r\n", true // it never arrives
		case args[0] == "ping" && dials == 1:
			return "", true // its answer would come behind the message
		case args[0] == "subscribe" && args[1] == "ns:events":
			if dials++; dials == 1 {
				later.Go(func() { // ends after a minute
					time.Sleep(time.Second)
					say(message[:cut])
					time.Sleep(time.Minute)
					say(message[cut:])
				})
			}
		}
		return "", false
	}
	client := server.Client(func(o *redis.Options) {
		o.Protocol = protocol
		if protocol == 3 {
			clientopts.Maintenance(o, "enabled")
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := aSubscription(ctx, client)
	time.Sleep(2 * time.Minute)
	require.NotEmpty(t, told, "it was subscribed")
	for len(told) > 0 {
		require.Equal(t, store.Hint{Type: store.HintConnected, Channel: "ns:events"}, <-told, "and nothing else")
	}
	require.Greater(t, dials, 1, "another subscription")
	cancel()
	<-ended
	require.NoError(t, client.Close())
	later.Wait()
	server.Wait()
}

// TestAnyErrorEndsTheSubscription: behind an error, even one that the client takes for the answer
// to a command, nothing is read.
func TestAnyErrorEndsTheSubscription(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			subscriptions := 0
			server := &simnet.FramedServer{Reply: func(args []string, _ func(string)) (string, bool) {
				if args[0] != "subscribe" || args[1] != "ns:events" {
					return "", false
				}
				if subscriptions++; subscriptions > 1 {
					return "", false
				}
				return simnet.SubscribedFrame(args[1]) + "-ERR torn\r\n" + simnet.MessageFrame("ns:events", `{"type":"vacant","role":"forged"}`), true
			}}
			client := server.Client(func(o *redis.Options) { o.Protocol = protocol })
			ctx, cancel := context.WithCancel(context.Background())
			told, ended := aSubscription(ctx, client)
			time.Sleep(time.Minute)
			cancel()
			<-ended
			require.NoError(t, client.Close())
			server.Wait()
			require.Greater(t, subscriptions, 1, "another subscription")
			require.NotEmpty(t, told, "it was subscribed")
			for len(told) > 0 {
				require.Equal(t, store.Hint{Type: store.HintConnected, Channel: "ns:events"}, <-told, "and nothing else")
			}
		})
	}
}

// TestNonsenseReloadsNoSlots: a node of a cluster that does not answer may have lost its slots, and
// the client looks for them. One that answers nonsense is there: what the client reads of it in a
// goroutine of its own may end the process.
func TestNonsenseReloadsNoSlots(t *testing.T) {
	for err, want := range map[error]int{io.EOF: 1, &clientPanicError{"a hook"}: 0, errors.New("redis: can't parse reply"): 0} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				asked++
				return nil, errors.New("none")
			}})
			defer client.Close()
			require.Error(t, openStore(client, "{ns}").explain("renew", err))
			synctest.Wait()
			require.Equal(t, want, asked, err)
		})
	}
}

// heardServer is a server on which one process listens, and what that says of it.
type heardServer struct {
	*simnet.FramedServer
	state *atomic.Pointer[store.Subscription]
	more  chan struct{} // tells that there are more channels

	mu         sync.Mutex
	channels   []string
	deaf       bool                      // what is published arrives nowhere
	holds      time.Duration             // for so long what is published is held up
	confirms   time.Duration             // and the answer to those that subscribe
	publishing string                    // the answer to it; "": it is taken
	hangs      bool                      // it has none
	mute       bool                      // PING has no answer
	unsaved    bool                      // or it is refused, as by a Redis that cannot save its data
	unsaid     string                    // a channel that is not confirmed; "": all are
	once       bool                      // unless it is asked for again
	listeners  map[string]int            // as PUBSUB NUMSUB says; of any other channel 1
	uncounted  bool                      // it is refused
	refused    func(channel string) bool // nobody may listen there; nil: on all channels one may
	says       []func(string)            // of the subscriptions
	last       string                    // check as it arrived
	asked      []string                  // the channels that were asked for
	published  int                       // checks
	notices    []store.NoticeKind        // since they were taken last
}

// onHeardServer runs act with a process that listens, in virtual time.
func onHeardServer(t *testing.T, act func(s *heardServer), change ...func(*redis.Options)) {
	synctest.Test(t, func(t *testing.T) {
		s := &heardServer{state: store.NewSubscription(), more: make(chan struct{}), channels: []string{"ns:leader:events"}}
		s.FramedServer = &simnet.FramedServer{Reply: s.reply}
		client := s.Client(change...)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { // ends with ctx
			openStore(client, "ns").Listen(ctx, store.Audience{
				Channels: func() []string {
					s.mu.Lock()
					defer s.mu.Unlock()
					return slices.Clone(s.channels)
				},
				More:  s.more,
				TTL:   func() time.Duration { return 10 * time.Second },
				Wait:  func() time.Duration { return 250 * time.Millisecond },
				Leads: func() bool { return false },
				Take:  func(store.Hint) {},
				Report: func(n store.Notice) {
					s.set(func() { s.notices = append(s.notices, n.Kind) })
				},
				State: s.state,
			})
		})
		defer func() {
			cancel()
			running.Wait()
			_ = client.Close()
			s.Wait()
		}()
		act(s)
	})
}

// dialsSlowly has a test come before the first subscription.
func dialsSlowly(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(500 * time.Millisecond)
		return dial(ctx, network, addr)
	}
}

func (s *heardServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// reply answers what a subscription asks for, and its checks.
func (s *heardServer) reply(args []string, say func(string)) (frame string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch args[0] {
	case "subscribe":
		s.asked = append(s.asked, args[1:]...)
		if s.refused != nil && s.refused(args[1]) {
			return "-NOPERM User app has no permissions to access one of the channels used as arguments\r\n", true
		}
		s.says = append(s.says, say)
		if s.unsaid != "" {
			for _, channel := range args[1:] {
				if channel != s.unsaid {
					frame += simnet.SubscribedFrame(channel)
				}
			}
			if s.once {
				s.unsaid = ""
			}
			return frame, true
		}
		if confirms := s.confirms; confirms > 0 {
			time.AfterFunc(confirms+time.Duration(len(s.asked)), func() { // in the order in which they were asked for
				for _, channel := range args[1:] {
					say(simnet.SubscribedFrame(channel))
				}
			})
			return "", true
		}
	case "publish":
		s.published++
		if s.hangs || s.publishing != "" {
			return s.publishing, true
		}
		s.last = simnet.MessageFrame(args[1], args[2])
		if says, holds := slices.Clone(s.says), s.holds; !s.deaf {
			time.AfterFunc(holds, func() {
				for _, say := range says {
					say(simnet.MessageFrame(args[1], args[2]))
				}
			})
		}
		return ":1\r\n", true
	case "ping":
		if s.unsaved {
			return "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.\r\n", true
		}
		return "", s.mute
	case "pubsub":
		if s.uncounted {
			return "-NOPERM User app has no permissions to run the 'pubsub|numsub' command\r\n", true
		}
		frame = fmt.Sprintf("*%d\r\n", 2*len(args[2:]))
		for _, channel := range args[2:] {
			frame += fmt.Sprintf("$%d\r\n%s\r\n:%d\r\n", len(channel), channel, max(s.listeners[channel], 1))
		}
		return frame, true
	}
	return "", false
}

// checks is how many checks there are in the next time, in which nothing is reported.
func (s *heardServer) checks(t *testing.T, d time.Duration) (n int) {
	t.Helper()
	s.set(func() { s.published = 0 })
	require.Empty(t, s.told(d))
	s.set(func() { n = s.published })
	return n
}

// breaks breaks what subscriptions there are.
func (s *heardServer) breaks() {
	s.set(func() {
		for _, say := range s.says {
			say("this is no frame\r\n")
		}
		s.says = nil
	})
}

// told returns what was reported in the next time.
func (s *heardServer) told(d time.Duration) (notices []store.NoticeKind) {
	time.Sleep(d)
	synctest.Wait()
	s.set(func() { notices, s.notices = s.notices, nil })
	return notices
}

// TestNoticesOfASubscription: each loss is reported once, and so is its end, however often it is
// tried to subscribe between; the state says since when it is so. What breaks over nonsense time
// and again is one loss, and ends when it was quiet for a minute.
func TestNoticesOfASubscription(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		lost, restored := []store.NoticeKind{store.SubscriptionLost}, []store.NoticeKind{store.SubscriptionRestored}
		require.Empty(t, s.told(time.Minute))
		require.True(t, s.state.Load().Active)
		require.Greater(t, time.Since(s.state.Load().Since), 55*time.Second)
		for range 2 {
			s.set(func() { s.deaf = true })
			require.Equal(t, lost, s.told(time.Minute))
			require.False(t, s.state.Load().Active)
			require.ErrorIs(t, s.state.Load().Err, store.ErrUnreachable)
			require.Greater(t, time.Since(s.state.Load().Since), 55*time.Second)
			s.set(func() { s.deaf = false })
			require.Equal(t, restored, s.told(time.Minute))
			require.True(t, s.state.Load().Active)
			require.Greater(t, time.Since(s.state.Load().Since), 55*time.Second)
		}
		s.breaks()
		require.Equal(t, lost, s.told(10*time.Second))
		for range 12 {
			require.True(t, s.state.Load().Active, "it was made anew")
			s.breaks()
			require.Empty(t, s.told(10*time.Second))
		}
		require.Equal(t, restored, s.told(quietTime))
	})
}

// TestHintsThatAreRefused: that Redis does not publish for want of a right is reported each time
// that it begins, and said for as long as it is so. Other errors are no refusal.
func TestHintsThatAreRefused(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		refused := "-NOPERM User app has no permissions to run the 'publish' command\r\n"
		loading := "-LOADING Redis is loading the dataset in memory\r\n"
		publishing := func(answer string) { s.set(func() { s.publishing = answer }) }
		publishing(loading)
		require.Empty(t, s.told(time.Minute))
		require.NoError(t, s.state.Load().Err)
		for range 2 {
			publishing(refused)
			require.Equal(t, []store.NoticeKind{store.HintsRefused}, s.told(time.Minute))
			require.ErrorIs(t, s.state.Load().Err, store.ErrMisconfigured)
			publishing("")
			require.Empty(t, s.told(time.Minute))
			require.NoError(t, s.state.Load().Err)
		}
		require.True(t, s.state.Load().Active)
	})
}

// TestOwnChannelIsTriedAgain: who may not listen on the channel of its own messages does with PING,
// which says less: the next subscription tries it again.
func TestOwnChannelIsTriedAgain(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		checks := func() int { return s.checks(t, time.Minute) }
		require.Positive(t, checks())
		s.set(func() { s.refused = func(channel string) bool { return channel != "ns:leader:events" } })
		s.breaks()
		s.told(time.Minute + quietTime)
		require.Zero(t, checks())
		s.set(func() { s.refused = nil })
		s.breaks()
		s.told(time.Minute + quietTime)
		require.Positive(t, checks())
	})
}

// TestPingOfARedisThatCannotSave: a Redis that cannot save its data refuses PING, and answers by
// that.
func TestPingOfARedisThatCannotSave(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		s.set(func() { s.publishing = "-NOPERM User app has no permissions to run the 'publish' command\r\n" })
		require.Equal(t, []store.NoticeKind{store.HintsRefused}, s.told(time.Minute))
		s.set(func() { s.unsaved, s.asked = true, nil })
		require.Empty(t, s.told(time.Minute))
		require.True(t, s.state.Load().Active)
		s.set(func() { require.Empty(t, s.asked, "it is the same subscription") })
	})
}

// TestOwnChannelIsNotGivenUp: only who may not listen on the channel of its own messages does
// without. A subscription that breaks before that channel is confirmed says nothing of the kind.
func TestOwnChannelIsNotGivenUp(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		require.Positive(t, s.checks(t, time.Minute))
		s.set(func() { s.unsaid = store.Keys("ns").Own("a") })
		s.breaks()
		time.Sleep(time.Second)
		s.set(func() { s.unsaid = "" })
		s.breaks()
		s.told(time.Minute + quietTime)
		require.Positive(t, s.checks(t, time.Minute))
	})
}

// TestUnconfirmedChannel: a subscription of which one channel is not confirmed does not stand, and
// another one is made before long.
func TestUnconfirmedChannel(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		require.Empty(t, s.told(time.Minute))
		s.set(func() { s.unsaid, s.asked = "ns:leader:events", nil })
		s.breaks()
		require.Equal(t, []store.NoticeKind{store.SubscriptionLost}, s.told(time.Minute))
		require.False(t, s.state.Load().Active)
		s.set(func() { require.Greater(t, len(s.asked), 20, "attempts, each with two channels") })
	})
}

// TestLostConfirmation: what was not confirmed, but was asked for before the last channel that was,
// is asked for again, once, and the subscription stands at once.
func TestLostConfirmation(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		s.set(func() { s.unsaid, s.once = "ns:leader:events", true })
		require.Empty(t, s.told(2*time.Second))
		require.True(t, s.state.Load().Active)
		s.set(func() {
			require.Len(t, s.asked, 3)
			require.Equal(t, s.asked[0], s.asked[2])
		})
		require.Empty(t, s.told(time.Minute))
		s.set(func() { require.Len(t, s.asked, 3) })
	}, dialsSlowly)
}

// TestChecksThatHang: that a message cannot be published says nothing of the subscription, which is
// asked itself then, at each check anew: by an answer it stands, without one it is lost.
func TestChecksThatHang(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		require.Empty(t, s.told(time.Minute))
		for range 2 {
			s.set(func() { s.hangs = true })
			require.Empty(t, s.told(time.Minute))
			require.True(t, s.state.Load().Active)
			s.set(func() { s.hangs = false })
			require.Positive(t, s.checks(t, time.Minute))
		}
		s.set(func() { s.hangs, s.mute = true, true })
		require.Equal(t, []store.NoticeKind{store.SubscriptionLost}, s.told(10*time.Second))
		s.set(func() { s.hangs, s.mute = false, false })
		require.Equal(t, []store.NoticeKind{store.SubscriptionRestored}, s.told(time.Minute))
		s.set(func() { s.publishing, s.mute = "-LOADING Redis is loading the dataset in memory\r\n", true })
		require.Equal(t, []store.NoticeKind{store.SubscriptionLost}, s.told(10*time.Second))
	}, func(o *redis.Options) { o.ReadTimeout = 20 * time.Second })
}

// TestUnaskedAnswers: an answer to PING that nobody has asked for, and a message of our own that
// somebody repeats, do not pass for what comes of a check, nor put one off.
func TestUnaskedAnswers(t *testing.T) {
	for name, frame := range map[string]func(s *heardServer) string{
		"PONG":    func(*heardServer) string { return "*2\r\n$4\r\npong\r\n$0\r\n\r\n" },
		"message": func(s *heardServer) string { return s.last },
	} {
		t.Run(name, func(t *testing.T) {
			onHeardServer(t, func(s *heardServer) {
				require.Empty(t, s.told(time.Minute))
				checks := s.checks(t, time.Minute)
				says := func() {
					for range 600 {
						time.Sleep(100 * time.Millisecond)
						s.set(func() {
							for _, say := range s.says {
								say(frame(s))
							}
						})
					}
				}
				s.set(func() { s.published = 0 })
				says()
				s.set(func() { require.InDelta(t, checks, s.published, 2) })
				if name == "message" {
					return
				}
				s.set(func() { s.deaf = true })
				says()
				require.Equal(t, []store.NoticeKind{store.SubscriptionLost}, s.told(0))
			}, func(o *redis.Options) { o.Protocol = 2 })
		})
	}
}

// TestCrowdOfOneOfManyLeases: a process that listens to several leases is one of the greatest crowd
// among them, for as long as nobody says otherwise: not if counting is refused. Any number will do.
func TestCrowdOfOneOfManyLeases(t *testing.T) {
	onHeardServer(t, func(s *heardServer) {
		s.set(func() {
			s.channels = []string{"ns:leader:events", "ns:other:events", "ns:third:events"}
			s.listeners = map[string]int{"ns:other:events": 10_000}
		})
		s.more <- struct{}{}
		time.Sleep(5 * time.Minute)
		crowd := func() { require.InDelta(t, 20, s.checks(t, 20*time.Minute), 2, "once a minute") }
		crowd()
		s.set(func() { s.uncounted = true })
		crowd()
		s.set(func() { s.uncounted, s.listeners = false, map[string]int{"ns:third:events": 1 << 62} })
		crowd()
	})
}

// TestRolesAddedAtAnyMoment: their channels are listened on too, by the same subscription: whether
// it is being made, does not stand yet, or is being checked.
func TestRolesAddedAtAnyMoment(t *testing.T) {
	for name, at := range map[string]time.Duration{
		"while the client dials": 250 * time.Millisecond, "before it stands": time.Second, "during a check": 2200 * time.Millisecond, "later": 5 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			onHeardServer(t, func(s *heardServer) {
				s.set(func() { s.holds, s.confirms = 300*time.Millisecond, time.Second })
				time.Sleep(at)
				s.set(func() { s.channels, s.confirms = append(s.channels, "ns:other:events"), 0 })
				s.more <- struct{}{}
				require.Empty(t, s.told(time.Minute))
				require.True(t, s.state.Load().Active)
				s.set(func() {
					require.Len(t, s.asked, 3, "with that of its own messages: %v", s.asked)
					require.Contains(t, s.asked, "ns:other:events")
				})
			}, dialsSlowly)
		})
	}
}

// TestSubscriptionGoesToTheMaster: a client of a cluster that reads from replicas listens, and
// checks, at the master all the same.
func TestSubscriptionGoesToTheMaster(t *testing.T) {
	for name, change := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				asked := map[string]int{} // by command and address
				servers := map[string]*simnet.FramedServer{}
				var slot redis.ClusterSlot
				slot.End = 16383
				for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379"} { // master, replica
					slot.Nodes = append(slot.Nodes, redis.ClusterNode{Addr: addr})
					servers[addr] = &simnet.FramedServer{Reply: func(args []string, _ func(string)) (string, bool) {
						mu.Lock()
						defer mu.Unlock()
						asked[args[0]+" "+addr]++
						return "", false
					}}
				}
				opts := &redis.ClusterOptions{
					ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return []redis.ClusterSlot{slot}, nil },
					Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
						return servers[addr].Connect(), nil
					},
				}
				clientopts.Maintenance(opts, "disabled")
				change(opts)
				for range 10 { // it may draw lots
					client := redis.NewClusterClient(opts)
					ctx, cancel := context.WithCancel(context.Background())
					_, ended := aSubscription(ctx, client)
					time.Sleep(30 * time.Second)
					cancel()
					<-ended
					require.NoError(t, client.Close())
				}
				for _, server := range servers {
					server.Wait()
				}
				require.GreaterOrEqual(t, asked["subscribe 10.0.0.1:6379"], 20, "hints, and what checks them")
				require.Zero(t, asked["subscribe 10.0.0.2:6379"])
				require.Positive(t, asked["publish 10.0.0.1:6379"], asked)
				require.Zero(t, asked["publish 10.0.0.2:6379"])
			})
		})
	}
}

// TestListenersAreCounted: a process is told how many listen to a lease, itself included, once all
// that started with it do, and again if they are more; never how many listen to the registry.
func TestListenersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{Seed: 1})
		defer network.Close()
		network.NewServer(simnet.Addr, simnet.ServerOptions{})
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		var dials atomic.Int64
		told := make(chan store.Hint, 1000)
		listen := func(n int, take func(store.Hint)) {
			db := openStore(network.Client(fmt.Sprint("client", n), func(o *redis.Options) {
				dial := o.Dialer
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					return dial(ctx, network, addr)
				}
			}), "ns")
			wait.Go(func() { listenFor(ctx, db, take, "ns:events", "ns:leader:events") })
		}
		listen(0, func(h store.Hint) {
			if h.Type == store.HintListeners {
				told <- h
			}
		})
		for n := range 60 {
			listen(n+1, func(store.Hint) {})
		}
		time.Sleep(10 * time.Second)
		require.Len(t, told, 1)
		require.Equal(t, store.Hint{Type: store.HintListeners, Channel: "ns:leader:events", Count: 61}, <-told)
		require.Empty(t, told)
		listen(61, func(store.Hint) {})
		time.Sleep(store.ChecksPerCount * store.CheckInterval(30*time.Second))
		require.Equal(t, 62, (<-told).Count)
		require.Empty(t, told, "once in sixteen checks")
		require.EqualValues(t, 2*62, dials.Load(), "a count takes no connection of its own")
		cancel()
		wait.Wait()
	})
}

// TestListenersCannotBeCounted: without the right to ask, and without an answer, the subscription
// stands as before.
func TestListenersCannotBeCounted(t *testing.T) {
	for name, refuse := range map[string]func(*server.Peer){
		"refused": func(p *server.Peer) {
			p.WriteError("NOPERM this user has no permissions to run the 'pubsub|numsub' command")
		},
		"no answer": func(*server.Peer) {},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.NoLeaks(t)
			mini := miniredis.RunT(t)
			client := redis.NewClient(&redis.Options{Addr: mini.Addr(), MaxRetries: -1})
			defer client.Close()
			asked := make(chan struct{}, 100)
			mini.Server().SetPreHook(func(p *server.Peer, command string, _ ...string) bool {
				if !strings.EqualFold(command, "pubsub") {
					return false
				}
				asked <- struct{}{}
				refuse(p)
				return true
			})
			ctx, cancel := context.WithCancel(context.Background())
			state, ended := store.NewSubscription(), make(chan struct{})
			go func() {
				defer close(ended)
				openStore(client, "ns").Listen(ctx, store.Audience{
					Channels: func() []string { return []string{"ns:leader:events"} },
					TTL:      func() time.Duration { return 300 * time.Millisecond },
					Wait:     func() time.Duration { return 250 * time.Millisecond },
					Leads:    func() bool { return false },
					Take: func(h store.Hint) {
						if h.Type == store.HintListeners {
							t.Errorf("hint %+v", h)
						}
					},
					Report: func(n store.Notice) { t.Errorf("notice %+v", n) },
					State:  state,
				})
			}()
			<-asked
			require.Eventually(t, func() bool { return state.Load().Active }, 30*time.Second, 10*time.Millisecond)
			require.NoError(t, state.Load().Err)
			cancel()
			<-ended
		})
	}
}

// listeningCrowd are processes that listen to one lease, each at a server of its own, as so many as
// the servers say.
type listeningCrowd struct {
	leads  atomic.Bool // all of them
	states []*atomic.Pointer[store.Subscription]
	end    func()

	mu         sync.Mutex
	listeners  int // as the servers say
	deaf       bool
	away       bool           // no subscription is taken
	says       []func(string) // of subscriptions
	checks     []time.Time
	subscribed []time.Time
	counts     []time.Time
}

func startListeningCrowd(processes int, every time.Duration, listeners int) *listeningCrowd {
	const channel = "ns:leader:events"
	c := &listeningCrowd{listeners: listeners}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for n := range processes {
		var says []func(string) // of this process
		server := &simnet.FramedServer{Reply: func(args []string, say func(string)) (string, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			switch args[0] {
			case "subscribe":
				if c.away {
					return "-LOADING Redis is loading the dataset in memory\r\n", true
				}
				says, c.says = append(says, say), append(c.says, say)
				if args[1] == channel {
					c.subscribed = append(c.subscribed, time.Now())
				}
			case "publish":
				c.checks = append(c.checks, time.Now())
				for _, say := range says {
					if !c.deaf {
						say(simnet.MessageFrame(args[1], args[2]))
					}
				}
				return ":1\r\n", true
			case "pubsub":
				c.counts = append(c.counts, time.Now())
				return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n:%d\r\n", len(args[2]), args[2], c.listeners), true
			}
			return "", false
		}}
		client, state := server.Client(), store.NewSubscription()
		c.states = append(c.states, state)
		running.Go(func() { // ends with ctx
			db := New(client, contract, "ns", "a", func() string { return fmt.Sprint(uint64(n+1) * 0x9e3779b97f4a7c15) })
			db.Listen(ctx, store.Audience{
				Channels: func() []string { return []string{channel} },
				TTL:      func() time.Duration { return 4 * every },
				Wait:     func() time.Duration { return 250 * time.Millisecond },
				Leads:    c.leads.Load,
				Take:     func(store.Hint) {},
				Report:   func(store.Notice) {},
				State:    state,
			})
			_ = client.Close()
			server.Wait()
		})
	}
	c.end = func() {
		cancel()
		running.Wait()
	}
	return c
}

// checksIn returns the checks of all in the next time. counts are those in it then.
func (c *listeningCrowd) checksIn(d time.Duration) []time.Time {
	c.mu.Lock()
	c.checks, c.counts = nil, nil
	c.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks
}

// breakAll breaks all subscriptions at one moment, and returns when each subscribed after that
// within the next time.
func (c *listeningCrowd) breakAll(d time.Duration) (after []time.Duration) {
	return c.breakFor(0, d)
}

// breakFor is breakAll with an outage behind it, in which nobody can subscribe.
func (c *listeningCrowd) breakFor(away, d time.Duration) (after []time.Duration) {
	began := time.Now()
	c.mu.Lock()
	c.away = away > 0
	for _, say := range c.says {
		say("this is no frame\r\n")
	}
	c.says, c.subscribed = nil, nil
	c.mu.Unlock()
	time.Sleep(away)
	c.mu.Lock()
	c.away = false
	c.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.subscribed {
		after = append(after, at.Sub(began))
	}
	slices.Sort(after)
	return after
}

func (c *listeningCrowd) set(deaf bool, listeners int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf, c.listeners = deaf, listeners
}

// TestCrowdChecksLessOften: one of ten thousand listeners checks its subscription once a minute,
// and at the usual pace as soon as it leads, or is one of few again. Its checks and counts lie
// apart from those of others that counted, or subscribed again, at the same moment. It notices all
// the same that it hears nothing.
func TestCrowdChecksLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, every = 40, 7500 * time.Millisecond
		c := startListeningCrowd(processes, every, 10_000)
		time.Sleep(2 * time.Minute)
		for _, what := range []string{"since the start", "since a restart"} {
			began := time.Now()
			all := c.checksIn(10 * time.Minute)
			require.InDelta(t, 10*processes, len(all), 1.5*processes, "once a minute")
			require.InDelta(t, 10*processes/4, len(c.counts), processes, "one check in four")
			for _, of := range []struct {
				times  []time.Time
				period time.Duration
			}{{all, time.Minute}, {c.counts, 4 * time.Minute}} {
				sixths := make([]int, 6)
				for _, at := range of.times {
					sixths[at.Sub(began)%of.period*6/of.period]++
				}
				require.Less(t, slices.Max(sixths), len(of.times)*2/5, "apart %s: %v", what, sixths)
			}
			c.breakFor(time.Second, 2*time.Minute)
		}

		c.leads.Store(true)
		time.Sleep(every)
		require.InDelta(t, 8*processes, len(c.checksIn(time.Minute)), processes, "who leads must hear a roll-call")
		c.leads.Store(false)

		c.set(true, 10_000)
		time.Sleep(time.Minute + every)
		for _, state := range c.states {
			require.False(t, state.Load().Active)
		}
		c.set(false, 100)
		time.Sleep(6 * time.Minute)
		for _, state := range c.states {
			require.True(t, state.Load().Active)
		}
		require.InDelta(t, 8*processes, len(c.checksIn(time.Minute)), processes, "few again")

		c.set(false, 0)
		time.Sleep(4 * time.Minute)
		c.checksIn(10 * time.Minute)
		require.InDelta(t, 10*processes/2, len(c.counts), processes, "a count of nobody spreads nothing anew")
		c.end()
	})
}

// TestChecksOfFewLieApart: processes that subscribed at one moment check at one, and apart from
// then on.
func TestChecksOfFewLieApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, every = 40, 7500 * time.Millisecond
		c := startListeningCrowd(processes, every, processes)
		defer c.end()
		time.Sleep(time.Minute)
		began := time.Now()
		tenths := make([]int, 10)
		for _, at := range c.checksIn(every) {
			tenths[at.Sub(began)*10/every%10]++
		}
		require.Less(t, slices.Max(tenths), processes*2/5, "%v", tenths)
	})
}

// TestCrowdSubscribesApart: subscriptions of a crowd that broke at one moment are made again about
// one a millisecond, within the time between two checks. Who leads does not wait for that, nor goes
// on waiting once it leads, since it must hear a roll-call; nor do few.
func TestCrowdSubscribesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, every = 40, 7500 * time.Millisecond
		c := startListeningCrowd(processes, every, 10_000)
		defer c.end()
		time.Sleep(5 * time.Minute)
		after := c.breakAll(every + time.Second)
		require.Len(t, after, processes)
		require.Less(t, after[0], every/8)
		require.InDelta(t, every/2, after[processes/2], float64(every)/6)
		require.Greater(t, after[processes-1], every*7/8)

		for _, away := range []time.Duration{time.Second, every, 40 * time.Second} {
			after = c.breakFor(away, every+mostPause)
			parts := make([]int, 5)
			for _, at := range after {
				parts[min(int((at-away)*5/every), 4)]++
			}
			require.Len(t, after, processes, "after an outage of %v: %v", away, parts)
			require.Less(t, slices.Max(parts), processes*2/5, "after an outage of %v: %v", away, parts)
			time.Sleep(5 * time.Minute)
		}
		for range 10 { // it comes back for moments, in which not all are checked
			c.breakFor(3*time.Second, 2*time.Second)
		}
		after = c.breakFor(3*time.Second, 2*every)
		for i := range after[:len(after)-processes/5] {
			require.Greater(t, after[i+processes/5]-after[i], 20*time.Millisecond, "%v", after)
		}
		time.Sleep(5 * time.Minute)

		after = c.breakAll(every / 2)
		require.InDelta(t, processes/2, len(after), processes/6)
		c.leads.Store(true)
		time.Sleep(looksWhetherLeads)
		synctest.Wait()
		c.mu.Lock()
		require.Len(t, c.subscribed, processes, "all lead by now")
		c.mu.Unlock()

		after = c.breakAll(time.Second)
		require.Len(t, after, processes)
		require.LessOrEqual(t, after[processes-1], 4*leastPause, "who leads: the pause alone, doubled twice")
		c.leads.Store(false)

		c.set(false, 40)
		time.Sleep(20 * time.Minute) // all have counted again
		after = c.breakAll(time.Second)
		require.Len(t, after, processes)
		require.LessOrEqual(t, after[processes-1], leastPause+40*time.Millisecond, "few")
	})
}
