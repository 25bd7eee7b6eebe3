//go:build unix

package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	prefix    = "fleet"
	leaderKey = prefix + ":leader"
)

// single is one redis-server.
type single struct {
	server   *redistest.Server
	keeps    bool // its data outlive it
	conn     connection
	deck     []fault // nil: all that can happen to a single server
	operator *redis.Client
}

// newSingle starts a server that keeps its data in an append-only file, or keeps nothing.
func newSingle(t redistest.TB, keeps bool, opts ...redistest.Option) *single {
	t.Helper()
	if keeps {
		opts = append(opts, redistest.Persist())
	}
	server := redistest.Start(t, opts...)
	patient := server.Options()
	patient.ReadTimeout = operatorBound // a slow script that is sent again meets itself
	operator := redis.NewClient(patient)
	t.Cleanup(func() { _ = operator.Close() })
	return &single{server: server, keeps: keeps, operator: operator}
}

func (w *single) namespace() string   { return prefix }
func (w *single) addresses() []string { return []string{w.server.Addr()} }

func (w *single) connection(l *link) connection {
	c := w.conn
	c.Addrs, c.Via = w.addresses(), l.via()
	return c
}

func (w *single) settle(redistest.TB) {} // its faults return when the server answers

// must has the operator give a command: no fault is in its way.
func (w *single) must(c *cluster, args ...any) {
	ctx, cancel := bounded()
	defer cancel()
	if err := w.operator.Do(ctx, args...).Err(); err != nil {
		c.t.Errorf("fleet: %v: %v", args, err)
	}
}

// faults are those of the process, the network and the server, or what the stage has instead.
func (w *single) faults() []fault {
	if w.deck != nil {
		return w.deck
	}
	return slices.Concat(processFaults, networkFaults, w.serverFaults())
}

// operatorBound is for one command of the operator.
const operatorBound = 10 * time.Second

// bounded bounds what the operator does.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), operatorBound)
}
