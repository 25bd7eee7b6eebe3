package tenure

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// TermRecord is a term of a role, as the history in Redis has it. Whoever may write to the keys of
// the role may have written it. All times are by Redis's clock.
type TermRecord struct {
	Role       string    `json:"role"`
	Token      int64     `json:"token"`
	InstanceID string    `json:"instance_id,omitempty"` // that led; "" if Redis has lost it
	Began      time.Time `json:"began,omitzero"`        // zero: not known
	// Ended is when the term ended: for one that was given back, before its work drained, and for
	// one that lapsed, the end of its lease. Zero: it goes on, or its end is not known; see Reason.
	Ended time.Time `json:"ended,omitzero"`
	// Reason is why the term ended. As in EventTermEnded: expired, lost, resigned, failed, stopped,
	// transferred. lapsed: its leader has not given the lease back, since it has died or was cut
	// off. unheard: the lease was granted to a candidate that had no answer. forgotten: Redis has
	// lost what it knew of the term. "": it goes on, or nobody has led since.
	Reason string `json:"reason,omitempty"`
	// Gap is for how long nobody led before this term: since the term before ended, its drain
	// included. 0: not known, or the first term.
	Gap time.Duration `json:"-"`
}

// Terms returns the terms of this role, newest first, at most limit of them. It asks Redis, once,
// and works without Run. The last 500 terms or so are kept. A term that has gone on through a loss
// of data of Redis is there only once it has ended.
//
// Terms returns ErrUnreachable or ErrMisconfigured if Redis gives no answer. It returns as soon as
// ctx is done, with its cause.
func (e *Elector) Terms(ctx context.Context, limit int) ([]TermRecord, error) {
	return readTerms(ctx, &e.asked, e.loop.store, e.Role(), limit)
}

// readTerms reads the newest terms of a role.
func readTerms(ctx context.Context, asked *callGate, leases store.Lease, role string, limit int) ([]TermRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	entries := store.MaxTermEntries
	if limit < entries/2 {
		entries = 2*limit + 1 // the end of the term before says how long the gap was
	}
	newest, err := ask(ctx, asked, func(ctx context.Context) ([]store.TermEntry, error) { return leases.Terms(ctx, entries) })
	if err != nil {
		return nil, err
	}
	return termRecords(role, newest, limit), nil
}

// termRecords joins the entries of the history, newest first, to terms.
func termRecords(role string, newest []store.TermEntry, limit int) []TermRecord {
	var records []TermRecord
	for _, e := range newest {
		at := store.Time(e.At)
		var later *TermRecord
		if len(records) > 0 {
			later = &records[len(records)-1]
		}
		switch {
		case e.Event == store.TermBegan && later != nil && later.Token == e.Token:
			later.Began, later.InstanceID = at, e.Holder
			continue
		case e.Event == store.TermBegan:
			record := TermRecord{Role: role, Token: e.Token, InstanceID: e.Holder, Began: at}
			if later != nil { // another term has begun, and nothing says how this one ended
				record.Reason = store.TermForgotten
			}
			records = append(records, record)
		case e.Event == store.TermEnded:
			if later != nil && !at.IsZero() && later.Began.After(at) {
				later.Gap = later.Began.Sub(at)
			}
			records = append(records, TermRecord{
				Role: role, Token: e.Token, InstanceID: e.Holder, Began: store.StartTime(e.Since).UTC(), Ended: at, Reason: e.Reason,
			})
		}
	}
	return records[:min(limit, len(records))]
}
