package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

// account is a resource in Redis that takes no write of an older leader after one of a newer.
type account struct {
	client *redis.Client
	key    string
}

var errStale = errors.New("stale token")

// guardedWrite compares and writes in one step: between two commands another leader could come in.
// The token is kept with the value, so that neither is lost without the other. An equal token is
// the same leader, which may write more than once. It returns the highest token.
var guardedWrite = redis.NewScript(`
local highest = redis.call('HGET', KEYS[1], 'token')
if highest and tonumber(ARGV[1]) < tonumber(highest) then
  return highest
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return ARGV[1]
`)

// write stores the value, or returns errStale if a newer leader has written before.
func (a *account) write(ctx context.Context, token int64, value string) error {
	highest, err := guardedWrite.Run(ctx, a.client, []string{a.key}, token, value).Int64()
	if err != nil {
		return err
	}
	if highest > token {
		return fmt.Errorf("%w: a leader with token %d has written before", errStale, highest)
	}
	return nil
}

func (a *account) read(ctx context.Context) (string, error) {
	return a.client.HGet(ctx, a.key, "value").Result()
}

// worker is one process of a service: it campaigns, and while it leads it writes to the account.
type worker struct {
	name    string
	out     io.Writer
	client  *redis.Client // the elector's alone
	elector *tenure.Elector
	account *account

	beforeWrite func()
	wrote       chan error // size 1
}

func newWorker(name string, out io.Writer, options *redis.Options, namespace string, account *account) (*worker, error) {
	client := redis.NewClient(options)
	elector, err := tenure.NewElector(client, tenure.ElectorOptions{
		Namespace:  namespace,
		InstanceID: name,
		Election:   tenure.ElectionOptions{LeaseTTL: time.Second}, // short, so that its end can be watched
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &worker{
		name: name, out: out, client: client, elector: elector, account: account,
		beforeWrite: func() {}, wrote: make(chan error, 1),
	}, nil
}

// lead is leader work. What matters is one thing: the token goes along with the write.
func (w *worker) lead(ctx context.Context, term tenure.Term) error {
	fmt.Fprintf(w.out, "%s leads with token %d\n", w.name, term.Token)
	if !term.Valid() { // spares a write that would be refused, and cannot replace the token: a pause may come right here
		return nil
	}
	w.beforeWrite()
	// A request that is on its way heeds no context, so neither does this one.
	err := w.account.write(context.WithoutCancel(ctx), term.Token, "written by "+w.name)
	fmt.Fprintf(w.out, "%s writes with token %d: %s (still the leader: %t)\n", w.name, term.Token, outcome(err), term.Valid())
	select {
	case w.wrote <- err:
	default: // a later term: the show has its result already
	}
	<-ctx.Done() // other work would go on here
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, errStale):
		return "REFUSED, " + err.Error()
	}
	return "failed, " + err.Error()
}
