package tenure

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// deaf is a store of which every call hangs until it is released, whatever its context says.
type deaf struct {
	store.Lease
	store.Registry
	store.Tasks
	released chan struct{}
}

func (d *deaf) hang() error {
	<-d.released
	return errNetwork
}

func (d *deaf) Leader(context.Context) (store.LeaseReply, error) { return store.LeaseReply{}, d.hang() }
func (d *deaf) Instance(context.Context, string) (store.Entry, int64, error) {
	return store.Entry{}, 0, d.hang()
}
func (d *deaf) Scan(context.Context, string, bool) (store.ScanReply, error) {
	return store.ScanReply{}, d.hang()
}
func (d *deaf) Names(context.Context, int) ([]string, bool, error) { return nil, false, d.hang() }
func (d *deaf) Runs(context.Context, string, int) ([]store.Run, error) {
	return nil, d.hang()
}
func (d *deaf) Record(context.Context, string) (store.TaskReply, error) {
	return store.TaskReply{}, d.hang()
}

// Every public method that asks Redis comes back when its context is done, though the client does
// not.
func TestQuestionsHeedTheirContext(t *testing.T) {
	for name, question := range map[string]func(context.Context, *Coordinator) error{
		"Leader": func(ctx context.Context, c *Coordinator) error { _, err := c.Elector().Leader(ctx); return err },
		"Instances": func(ctx context.Context, c *Coordinator) error {
			_, err := c.Registry().Instances(ctx, InstanceQuery{})
			return err
		},
		"Instance": func(ctx context.Context, c *Coordinator) error { _, err := c.Registry().Instance(ctx, "a"); return err },
		"Counts":   func(ctx context.Context, c *Coordinator) error { _, err := c.Registry().Counts(ctx); return err },
		"Tasks":    func(ctx context.Context, c *Coordinator) error { _, err := c.Tasks().Tasks(ctx); return err },
		"Runs":     func(ctx context.Context, c *Coordinator) error { _, err := c.Tasks().Runs(ctx, "t", 1); return err },
		"Pause":    func(ctx context.Context, c *Coordinator) error { return c.Tasks().Pause(ctx, "t") },
		"Resume":   func(ctx context.Context, c *Coordinator) error { return c.Tasks().Resume(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deaf{released: make(chan struct{})}
				var check checker
				opts := Options{Namespace: "tenure", InstanceID: "me"}.complete(&check)
				require.NoError(t, check.err())
				c := newCoordinator(opts, backend{
					leases: func(store.Role) store.Lease { return d }, timing: func(*lease.Timing) {}, registry: d, tasks: d,
				})
				ctx, cancel := context.WithTimeoutCause(context.Background(), 200*time.Millisecond, errBroken)
				defer cancel()
				began := time.Now()
				bound := time.AfterFunc(time.Minute, func() { close(d.released) }) // so that the test fails instead of hanging
				err := question(ctx, c)
				require.Equal(t, 200*time.Millisecond, time.Since(began))
				require.ErrorIs(t, err, ErrUnreachable)
				require.ErrorIs(t, err, errBroken)
				require.ErrorIs(t, question(ctx, c), errBroken, "a context that is done already")
				if bound.Stop() {
					close(d.released)
				}
			})
		})
	}
}

func TestQuestionsThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := callGate{most: maxQuestions}
		released := make(chan struct{})
		try := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := ask(ctx, &q, func(context.Context) (int, error) { <-released; return 1, nil })
			return err
		}
		for range maxQuestions {
			require.ErrorIs(t, try(), context.DeadlineExceeded)
		}
		require.ErrorContains(t, try(), "64 calls hang")
		require.ErrorIs(t, q.left.flush(time.Now().Add(time.Second), "a question"), ErrDrainTimeout)
		close(released)
		synctest.Wait()
		require.Zero(t, q.left.count())
		require.NoError(t, try(), "they have returned")
		require.NoError(t, q.left.flush(time.Now(), "a question"))
	})
}

func TestQuestionThatPanics(t *testing.T) {
	q := callGate{most: maxQuestions}
	_, err := ask(t.Context(), &q, func(context.Context) (int, error) { panic("a reply that the client cannot read") })
	require.ErrorIs(t, err, ErrUnreachable)
	var panicked *PanicError
	require.ErrorAs(t, err, &panicked)
}
