package tenure

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// framedServer answers with the bytes that a test gives it, whatever they are.
type framedServer struct {
	// reply gives what is written for a command; say writes more to the same connection, then and
	// later. ok is false for commands that the server answers by itself: those that a client
	// connects with.
	reply func(args []string, say func(string)) (frame string, ok bool)
	ended sync.WaitGroup
}

// client returns a client that talks to the server, at once and with short patience.
func (s *framedServer) client(change ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		Addr: "127.0.0.1:6379", DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			s.ended.Go(func() { s.serve(there) }) // ends when the client closes its end
			return here, nil
		},
	}
	for _, fn := range change {
		fn(opts)
	}
	return redis.NewClient(opts)
}

func (s *framedServer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	number := func() int {
		line, err := r.ReadString('\n')
		if err != nil {
			return -1
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	// A connection of the system takes what is written before the other end reads: a client may
	// send two commands and then read.
	out, done := make(chan string, 1000), make(chan struct{})
	defer close(done)
	s.ended.Go(func() { // ends with serve, or with the connection
		for {
			select {
			case frame := <-out:
				if _, err := io.WriteString(conn, frame); err != nil {
					return
				}
			case <-done:
				return
			}
		}
	})
	say := func(frame string) {
		select {
		case out <- frame:
		case <-done:
		}
	}
	for {
		count := number()
		if count < 0 {
			return
		}
		args := make([]string, count)
		for i := range args {
			text := make([]byte, number()+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return
			}
			args[i] = string(text[:len(text)-2])
		}
		args[0] = strings.ToLower(args[0])
		if frame, ok := s.reply(args, say); ok {
			say(frame)
			continue
		}
		switch args[0] {
		case "hello":
			say(map[string]string{"2": "*0\r\n", "3": "%1\r\n+proto\r\n:3\r\n"}[args[1]])
		case "subscribe":
			for _, channel := range args[1:] {
				say(subscribedFrame(channel))
			}
		default:
			say("+OK\r\n")
		}
	}
}

func subscribedFrame(channel string) string {
	return fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
}

func messageFrame(channel, payload string) string {
	return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(payload), payload)
}

// nonsense are frames that no Redis sends; most of them make go-redis panic, or did.
var nonsense = []string{
	"*0\r\n", "*1\r\n:1\r\n", "*1\r\n$7\r\nmessage\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", "*2\r\n+subscribe\r\n+x\r\n", "*1\r\n+pong\r\n",
	"$4611686018427387904\r\n", "*4611686018427387904\r\n", "%4611686018427387904\r\n", "=4\r\nabcd\r\n", "%1\r\n*0\r\n+x\r\n", "*-7\r\n", "$-7\r\n",
	"?\r\n", "\r\n", "+\r\n", "|1\r\n+a\r\n+b\r\n*0\r\n", ">1\r\n:1\r\n", ">0\r\n", "(x\r\n", "#x\r\n", ",x\r\n", "!1\r\nx\r\n", "-\r\n", "~1\r\n$-1\r\n", "*3\r\n+message\r\n+a\r\n*1\r\n:1\r\n",
}

// TestFramesOfAServer: whatever a server answers, on a subscription or to a call, the process goes
// on, believes nothing and reports it.
func TestFramesOfAServer(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		for _, frame := range nonsense {
			for name, where := range map[string][]string{"subscription": {"subscribe"}, "calls": {"evalsha", "eval", "publish", "sscan", "hmget", "xrevrange"}, "connecting": {"hello"}} {
				t.Run(fmt.Sprintf("RESP%d %s %q", protocol, name, frame), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { framesOfAServer(t, protocol, frame, where) })
				})
			}
		}
	}
}

func framesOfAServer(t *testing.T, protocol int, frame string, where []string) {
	server := &framedServer{reply: func(args []string, _ func(string)) (string, bool) {
		for _, command := range where {
			if args[0] == command {
				if command == "subscribe" {
					return subscribedFrame(args[1]) + frame, true
				}
				return frame, true
			}
		}
		if strings.HasPrefix(args[0], "eval") {
			return "-LOADING wait\r\n", true
		}
		return "", false
	}}
	client := server.client(func(o *redis.Options) { o.Protocol = protocol })
	c, err := New(client, Options{Namespace: "tenure", InstanceID: "a", ShutdownTimeout: time.Second})
	require.NoError(t, err)
	var mu sync.Mutex
	lost := 0
	c.Observe(func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Type == EventSubscriptionLost {
			lost++
			require.Less(t, len(e.Err.Error()), 1000)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	time.Sleep(time.Minute)
	require.False(t, c.IsLeader())
	require.Error(t, c.Elector().Status().Err)
	_, err = c.Elector().Leader(t.Context())
	require.Error(t, err)
	_, err = c.Registry().Instances(t.Context(), InstanceQuery{})
	require.Error(t, err)
	_, _ = c.Tasks().Tasks(t.Context())
	_, _ = c.Tasks().Runs(t.Context(), "t", 10)
	mu.Lock()
	require.LessOrEqual(t, lost, 1, "an attack is reported once")
	mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		require.ErrorIs(t, err, ErrDrainTimeout)
	}
	require.NoError(t, client.Close())
	server.ended.Wait()
}

// TestPublishedFramesAcrossTheDeadline: somebody publishes a message whose rest comes when the
// subscriber has given up waiting, cut at any place. Behind the cut nothing may be read as
// protocol: not what would end the process, nor a hint, nor an address to go to.
func TestPublishedFramesAcrossTheDeadline(t *testing.T) {
	forged := messageFrame("ns:events", `{"type":"vacant","role":"forged"}`)
	for _, protocol := range []int{2, 3} {
		for _, attack := range []string{
			"*0\r\n", forged, "$4611686018427387904\r\n",
			">4\r\n$6\r\nMOVING\r\n:1\r\n:1\r\n$13\r\n10.0.0.1:6379\r\n",
		} {
			payload := "+++\r\n" + strings.Repeat(attack, 3)
			message := messageFrame("ns:events", payload)
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
	server := &framedServer{}
	server.reply = func(args []string, say func(string)) (string, bool) {
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
	client := server.client(func(o *redis.Options) {
		o.Protocol = protocol
		if protocol == 3 {
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
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
	server.ended.Wait()
}

// TestAnyErrorEndsTheSubscription: behind an error, even one that the client takes for the answer
// to a command, nothing is read.
func TestAnyErrorEndsTheSubscription(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			subscriptions := 0
			server := &framedServer{reply: func(args []string, _ func(string)) (string, bool) {
				if args[0] != "subscribe" || args[1] != "ns:events" {
					return "", false
				}
				if subscriptions++; subscriptions > 1 {
					return "", false
				}
				return subscribedFrame(args[1]) + "-ERR torn\r\n" + messageFrame("ns:events", `{"type":"vacant","role":"forged"}`), true
			}}
			client := server.client(func(o *redis.Options) { o.Protocol = protocol })
			ctx, cancel := context.WithCancel(context.Background())
			told, ended := aSubscription(ctx, client)
			time.Sleep(time.Minute)
			cancel()
			<-ended
			require.NoError(t, client.Close())
			server.ended.Wait()
			require.Greater(t, subscriptions, 1, "another subscription")
			require.NotEmpty(t, told, "it was subscribed")
			for len(told) > 0 {
				require.Equal(t, store.Hint{Type: store.HintConnected, Channel: "ns:events"}, <-told, "and nothing else")
			}
		})
	}
}

// TestHugeHolderIsCut: whatever a foreign client writes into the lease key, or the term hash, it
// takes a few bytes with us, and never passes for an ID.
func TestHugeHolderIsCut(t *testing.T) {
	inCrew(t, func(c *crew) {
		long := strings.Repeat("x", 128)
		c.redis.Do(func(m *miniredis.Miniredis) {
			require.NoError(c, m.Set("tenure:leader", long+strings.Repeat("y", 1<<20)))
			m.HSet("tenure:leader:term", "origin", strings.Repeat("z", 1<<20))
		})
		a := c.member(long).start()
		c.pass(time.Second)
		status := a.Elector().Status()
		require.Equal(c, long+"…", status.Leader)
		require.Zero(c, status.LeaderToken)
		require.False(c, store.IDPattern.MatchString(status.Leader))
		leader, err := a.Elector().Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, long+"…", leader.InstanceID)
	})
}

// TestHolderWithoutANameIsReported: a foreign client may write an empty text into the lease key.
// That is not the same as no leader.
func TestHolderWithoutANameIsReported(t *testing.T) {
	inCrew(t, func(c *crew) {
		e := c.member("a").Elector()
		_, err := e.Leader(c.Context())
		require.ErrorIs(c, err, ErrNoLeader)
		c.redis.Do(func(m *miniredis.Miniredis) { require.NoError(c, m.Set("tenure:leader", "")) })
		leader, err := e.Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, LeaderInfo{Remaining: leader.Remaining}, leader)
	})
}

// claims are lengths that the client would allocate: its memory is not what FuzzFrames is about.
// Longer ones make it panic.
var claims = regexp.MustCompile(`[$*%~>=!|][+]?0*[1-9]\d{4,15}\r\n`)

// FuzzFrames: whatever bytes come over a subscription, or as the answer to a call, the process goes
// on and Run ends in time.
func FuzzFrames(f *testing.F) {
	for i, frame := range nonsense {
		f.Add([]byte(frame), i%2 == 0, i%3 == 0)
	}
	f.Add([]byte(messageFrame("tenure:leader:events", `{"type":"vacant"}`)), true, false)
	f.Fuzz(func(t *testing.T, frame []byte, subscription, resp3 bool) {
		if len(frame) > 4096 || claims.Match(frame) {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			server := &framedServer{reply: func(args []string, _ func(string)) (string, bool) {
				switch {
				case args[0] == "hello":
					return "", false
				case args[0] == "subscribe" && subscription:
					return subscribedFrame(args[1]) + string(frame), true
				case !subscription:
					return string(frame), true
				}
				return "", false
			}}
			protocol := 2
			if resp3 {
				protocol = 3
			}
			client := server.client(func(o *redis.Options) { o.Protocol = protocol })
			c, err := New(client, Options{Namespace: "tenure", InstanceID: "a", ShutdownTimeout: time.Second})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			go func() { ended <- c.Run(ctx) }()
			time.Sleep(5 * time.Second)
			cancel()
			stopped := time.Now()
			if err := <-ended; err != nil {
				require.ErrorIs(t, err, ErrDrainTimeout)
			}
			require.LessOrEqual(t, time.Since(stopped), time.Second)
			require.NoError(t, client.Close())
			server.ended.Wait()
		})
	})
}
