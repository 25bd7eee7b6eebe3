//go:build unix

package scenario

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// resource is what leaders write to: it refuses a token below the highest that it has seen. It
// stands on a server of its own, which the faults of the election do not touch.
type resource struct {
	client *redis.Client

	mu      sync.Mutex
	refused map[int64]int // writes, by token
}

// fence gives the leaders of a stage something to write to, and holds it against P3 at the end of
// the test.
func (s *stage) fence() {
	s.Helper()
	s.fenced = &resource{client: redistest.Start(s).Client(s), refused: make(map[int64]int)}
	s.Cleanup(func() {
		s.Helper()
		accepted, err := s.fenced.client.LRange(context.Background(), fenceKey+":accepted", 0, -1).Result()
		if err != nil {
			s.Errorf("read what was accepted: %v", err)
		}
		if !slices.IsSortedFunc(accepted, compareNumbers) {
			s.Errorf("P3: the resource has accepted an older token after a newer one: %v", slices.Compact(accepted))
		}
		s.Logf("the resource accepted %d writes", len(accepted))
	})
}

// compareNumbers compares two numbers without a sign, as Redis writes them.
func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

// serve writes under a token until the term ends.
func (r *resource) serve(ctx context.Context, token int64) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		// A write that is on its way when the term ends is not called back: that is what the token
		// is for.
		reply, err := fence.Run(context.WithoutCancel(ctx), r.client, []string{fenceKey}, token).Text()
		if err == nil && reply == "refused" {
			r.mu.Lock()
			r.refused[token]++
			r.mu.Unlock()
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *resource) refusals(token int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused[token]
}
