package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

// account is a row that takes no write of an older leader after one of a newer.
type account struct {
	db *sql.DB
	id int
}

var errStale = errors.New("stale token")

// openAccount makes the row. It is there before anybody writes, so that a guarded write which finds
// none was refused.
func openAccount(ctx context.Context, db *sql.DB, id int) (*account, error) {
	const table = `CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, value TEXT NOT NULL, token BIGINT NOT NULL)`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return nil, err
	}
	const row = `INSERT INTO account (id, value, token) VALUES (?, '', 0) ON CONFLICT DO NOTHING`
	if _, err := db.ExecContext(ctx, row, id); err != nil {
		return nil, err
	}
	return &account{db: db, id: id}, nil
}

// write stores the value, or returns errStale if a newer leader has written before. Compare and
// write are one statement. An equal token is the same leader, which may write more than once.
//
// In a transaction this statement comes first: the lock on the row then keeps another leader out
// until the commit. MySQL counts rows that were changed, not found, unless its driver is told
// otherwise (clientFoundRows=true).
func (a *account) write(ctx context.Context, token int64, value string) error {
	const guarded = `UPDATE account SET value = ?, token = ? WHERE id = ? AND token <= ?`
	result, err := a.db.ExecContext(ctx, guarded, value, token, a.id, token)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("%w: a newer leader has written before", errStale)
	}
	return nil
}

func (a *account) read(ctx context.Context) (value string, err error) {
	err = a.db.QueryRowContext(ctx, `SELECT value FROM account WHERE id = ?`, a.id).Scan(&value)
	return value, err
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
