package virtual

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

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
	server := &simnet.FramedServer{Reply: func(args []string, _ func(string)) (string, bool) {
		for _, command := range where {
			if args[0] == command {
				if command == "subscribe" {
					return simnet.SubscribedFrame(args[1]) + frame, true
				}
				return frame, true
			}
		}
		if strings.HasPrefix(args[0], "eval") {
			return "-LOADING wait\r\n", true
		}
		return "", false
	}}
	client := server.Client(func(o *redis.Options) { o.Protocol = protocol })
	c, err := tenure.New(client, tenure.Options{Namespace: "tenure", InstanceID: "a", ShutdownTimeout: time.Second})
	require.NoError(t, err)
	var mu sync.Mutex
	lost := 0
	c.Observe(func(e tenure.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Type == tenure.EventSubscriptionLost {
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
	_, err = c.Registry().Instances(t.Context(), tenure.InstanceQuery{})
	require.Error(t, err)
	_, _ = c.Tasks().List(t.Context())
	_, _ = c.Tasks().Runs(t.Context(), "t", 10)
	mu.Lock()
	require.LessOrEqual(t, lost, 1, "an attack is reported once")
	mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		require.ErrorIs(t, err, tenure.ErrDrainTimeout)
	}
	require.NoError(t, client.Close())
	server.Wait()
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
	f.Add([]byte(simnet.MessageFrame("tenure:leader:events", `{"type":"vacant"}`)), true, false)
	f.Fuzz(func(t *testing.T, frame []byte, subscription, resp3 bool) {
		if len(frame) > 4096 || claims.Match(frame) {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			server := &simnet.FramedServer{Reply: func(args []string, _ func(string)) (string, bool) {
				switch {
				case args[0] == "hello":
					return "", false
				case args[0] == "subscribe" && subscription:
					return simnet.SubscribedFrame(args[1]) + string(frame), true
				case !subscription:
					return string(frame), true
				}
				return "", false
			}}
			protocol := 2
			if resp3 {
				protocol = 3
			}
			client := server.Client(func(o *redis.Options) { o.Protocol = protocol })
			c, err := tenure.New(client, tenure.Options{Namespace: "tenure", InstanceID: "a", ShutdownTimeout: time.Second})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			go func() { ended <- c.Run(ctx) }()
			time.Sleep(5 * time.Second)
			cancel()
			stopped := time.Now()
			if err := <-ended; err != nil {
				require.ErrorIs(t, err, tenure.ErrDrainTimeout)
			}
			require.LessOrEqual(t, time.Since(stopped), time.Second)
			require.NoError(t, client.Close())
			server.Wait()
		})
	})
}
