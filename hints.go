package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hints travel on <ns>:events. Losing, repeating or forging one costs latency or a request, never correctness.
const (
	hintVacant    = "vacant"    // a lease was released: followers ask at once
	hintGranted   = "granted"   // a lease was granted
	hintRollCall  = "roll-call" // Redis has no history: leaders renew at once
	hintConnected = "connected" // not sent: the subscription stands again, hints may have been missed
)

// hint is one message of the events channel. Everything in it is untrusted.
type hint struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Subject string `json:"instance,omitempty"`
	// Subjects are the instances that one sweep has changed.
	Subjects []string `json:"instances,omitempty"`
	Source   string   `json:"source,omitempty"` // incarnation of the sender

	all bool // meant for every role
}

const (
	pingEvery    = time.Minute
	maxHintBytes = 4096
	maxReconnect = 2 * time.Second
)

// listenForHints hands hints to take until ctx is done, in the caller's goroutine. It subscribes again for ever; take gets
// hintConnected each time the subscription stands.
func listenForHints(ctx context.Context, s *redisStore, take func(hint)) {
	pause := 50 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		s.subscribed(ctx, take)
		if time.Since(began) > maxReconnect {
			pause = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxReconnect)
	}
}

// subscribed listens on one subscription until it breaks or ctx is done.
func (s *redisStore) subscribed(ctx context.Context, take func(hint)) {
	subscription := s.rdb.Subscribe(ctx, s.keys.events())
	unblock := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // a read in flight heeds no context
	defer func() {
		if unblock() {
			_ = subscription.Close()
		}
	}()
	// With a context that is done the client does not connect again by itself when a connection breaks: it would hold a lock
	// meanwhile that Close waits for, and heed no context.
	here, cancel := context.WithCancel(ctx)
	cancel()
	pinged := false
	for {
		message, err := subscription.ReceiveTimeout(here, pingEvery)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			if subscription.Ping(here) != nil {
				return
			}
			continue
		default:
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			take(hint{Type: hintConnected})
		case *redis.Message:
			if h, ok := parseHint(m.Payload); ok {
				take(h)
			}
		}
	}
}

// parseHint reads a message of the channel, on which anybody may publish anything.
func parseHint(payload string) (h hint, ok bool) {
	ok = len(payload) <= maxHintBytes && json.Unmarshal([]byte(payload), &h) == nil && h.Type != hintConnected
	return h, ok
}
