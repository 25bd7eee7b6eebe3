package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

var (
	errSilent     = fmt.Errorf("%w: the subscription does not answer, or hears nothing of what is published", store.ErrUnreachable)
	errOwnChannel = errors.New("the channel of our own messages is refused")
)

// wire is one subscription in the client. What comes over it is untrusted: anybody may publish, and
// a server may send anything.
type wire struct {
	store    *Store
	own, tag string // messages of our own: channel ("": none), text
	take     func(store.Hint)

	pubsub atomic.Pointer[redis.PubSub]
	done   context.Context //nolint:containedctx // done from the beginning: see serve
}

// serve subscribes and reads until ctx is done, or anything is not as it must be. A read that takes
// longer than bound is an error.
func (w *wire) serve(ctx context.Context, channels []string, bound time.Duration, tell func(hearingReport)) error {
	pubsub, err := w.store.subscriber(ctx, channels[0])
	if err != nil {
		return err
	}
	err = recovering(func() error {
		if err := pubsub.Subscribe(ctx, channels...); err != nil || w.own == "" {
			return err
		}
		return pubsub.Subscribe(ctx, w.own) // apart: it may be refused alone
	})
	if err != nil {
		closeAfter(pubsub, err)
		return err
	}
	closed := make(chan struct{})
	unblock := context.AfterFunc(ctx, func() { // a read in flight heeds no context; Close waits for a connecting client, which is done
		defer close(closed)
		_ = pubsub.Close()
	})
	defer func() {
		switch {
		case unblock():
			closeAfter(pubsub, err)
		case !panicked(err):
			<-closed
		}
	}()
	// When a connection breaks the client dials by itself, and holds a lock meanwhile that Close
	// waits for. With a context that is done such a dial fails at once.
	done, cancel := context.WithCancel(ctx)
	cancel()
	w.done = done
	w.pubsub.Store(pubsub)
	for {
		var message any
		err = errGoexit // stands if a hook ends this goroutine
		err = recovering(func() (err error) {
			message, err = pubsub.ReceiveTimeout(done, bound)
			return err
		})
		if err != nil && redis.HasErrorPrefix(err, "MISCONF") { // so PING is answered while Redis cannot save
			message, err = &redis.Pong{}, nil
		}
		if err != nil {
			return err
		}
		w.received(message, tell)
	}
}

// closeAfter closes a subscription that has ended with that error. After a failure of a Dial hook
// go-redis holds a lock for good that Close waits for: nobody waits for Close then.
func closeAfter(pubsub *redis.PubSub, err error) {
	if panicked(err) {
		go pubsub.Close() // ends if go-redis lets it
		return
	}
	_ = pubsub.Close()
}

func (w *wire) received(message any, tell func(hearingReport)) {
	switch m := message.(type) {
	case *redis.Subscription:
		if m.Kind == "subscribe" {
			tell(hearingReport{kind: reportSubscribed, channel: m.Channel})
		}
	case *redis.Pong:
		tell(hearingReport{kind: reportPong})
	case *redis.Message:
		if m.Channel == w.own {
			if m.Payload == w.tag {
				tell(hearingReport{kind: reportOwn})
			}
		} else if h, ok := store.ParseHint(m.Payload); ok {
			h.Channel = m.Channel
			w.take(h)
		}
	}
}

// subscribe asks for further channels. If that fails the read does too.
func (w *wire) subscribe(channels []string) {
	if pubsub := w.pubsub.Load(); pubsub != nil {
		_ = recovering(func() error { return pubsub.Subscribe(w.done, channels...) })
	}
}

// ping asks for an answer. If that fails the read does too.
func (w *wire) ping() {
	if pubsub := w.pubsub.Load(); pubsub != nil {
		_ = recovering(func() error { return pubsub.Ping(w.done) })
	}
}

// subscriber returns a subscription to nothing that is not connected yet. In a cluster it will be
// at the master of the slot, where the scripts run: a client that reads from replicas (ReadOnly,
// RouteByLatency, RouteRandomly) would subscribe at one of them.
func (s *Store) subscriber(ctx context.Context, key string) (pubsub *redis.PubSub, err error) {
	err = recovering(func() error {
		master, err := s.masterFor(ctx, key)
		if err == nil {
			pubsub = master.Subscribe(ctx)
		}
		return err
	})
	return pubsub, err
}

// publish sends a message by the client that runs the scripts, so that it takes their way.
func (s *Store) publish(ctx context.Context, channel, text string) error {
	cmd := redis.NewIntCmd(ctx, "publish", channel, text)
	err := recovering(func() error {
		master, err := s.masterFor(ctx, channel)
		if err != nil {
			return err
		}
		_ = master.Process(ctx, cmd)
		return cmd.Err()
	})
	if err != nil {
		return explainChannels("PUBLISH", "+publish", err, []string{channel})
	}
	return nil
}

// listeners asks how many listen on channels: at the server where all subscribe that have these
// channels.
func (s *Store) listeners(ctx context.Context, channels []string) (count map[string]int64, err error) {
	err = recovering(func() error {
		master, err := s.masterFor(ctx, channels[0])
		if err == nil {
			count, err = master.PubSubNumSub(ctx, channels...).Result()
		}
		return err
	})
	return count, err
}

// isRefusal reports whether Redis refused a command for want of a right.
func isRefusal(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// isNonsense reports whether a subscription or a call ended over what is no frame of Redis.
func isNonsense(err error) bool {
	if panicked(err) {
		return true
	}
	if _, refused := store.AsType[redis.Error](err); refused {
		return false
	}
	return slices.ContainsFunc([]string{"redis: can't parse", "redis: invalid", "redis: unsupported pubsub"}, func(prefix string) bool {
		return strings.HasPrefix(err.Error(), prefix)
	})
}

// explainHearing says what the end of a subscription means.
func explainHearing(err error, channels []string) error {
	if errors.Is(err, store.ErrUnreachable) {
		return err
	}
	return explainChannels("SUBSCRIBE", "+subscribe +unsubscribe +ping", err, channels)
}

// explainChannels is explain for commands whose rights are those to channels.
func explainChannels(op, commands string, err error, channels []string) error {
	explained := explain(op, err)
	if e, ok := store.AsType[*store.Error](explained); ok && isRefusal(err) {
		if found := refusedCommand.FindStringSubmatch(err.Error()); found != nil && !strings.Contains(commands+" ", "+"+found[1]+" ") {
			return explained // not this command, but one that go-redis sends as it connects
		}
		const most = 3
		named := channels[:min(len(channels), most)]
		e.Fix = fmt.Sprintf("grant the Redis user %s and access to the channels &%s", commands, strings.Join(named, " &"))
		if len(channels) > most {
			e.Fix += fmt.Sprintf(" and %d more (ACLRules lists patterns for all)", len(channels)-most)
		}
	}
	return explained
}
