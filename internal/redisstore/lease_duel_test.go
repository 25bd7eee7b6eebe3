//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/store"
)

// duel asks the scripts and the oracle the same random questions, through random faults, and
// compares every reply and every key.
type duel struct {
	w      *leaseCluster
	rand   *rand.Rand
	model  oracle.Redis
	now    int64 // Redis's time, on a real one the last that is known
	rivals []*rival
	past   []oracle.Data
	log    []string
	nonces int
	asked  int
	calm   bool           // rivals are alike and mostly take the lease and give it back, which has shortcuts
	seen   map[string]int // replies by verdict and reason
}

// rival is a candidate as far as its questions go.
type rival struct {
	leaseAsker
	nonce, before string
	token, floor  int64
	longest       int64
	origin        string
}

func newDuel(ctx context.Context, w *leaseCluster, seed uint64, rules oracle.Rules) (*duel, error) {
	d := &duel{w: w, rand: rand.New(rand.NewPCG(seed, 11)), model: oracle.Redis{Rules: rules}, seen: map[string]int{}, calm: seed%3 == 0}
	d.model.Facts = oracle.Facts{Origin: d.hex(), Uptime: pick(d, 0, 1000, 5000, 100_000)}
	guards := []int64{0, 0, -1, 5000}
	if w.mini == nil {
		d.model.Facts = oracle.Facts{Origin: w.history}
		guards = []int64{-1} // its age grows by itself
	}
	for i, id := range []string{"a", "b", "c"} {
		d.rivals = append(d.rivals, &rival{leaseAsker: w.asker(oracle.Asker{
			ID: id, TTL: pick(d, 1000, 1000, 400), EmptyWait: pick(d, 250, 250, 0, 1000), Margin: pick(d, 0, 0, 200),
			HoldOff: pick(d, 0, 0, 3000), RestartGuard: pick(d, guards...), NoInfo: w.mini != nil && i == 2 && d.chance(0.3),
		})})
		if d.calm {
			d.rivals[i].leaseAsker = w.asker(oracle.Asker{ID: id, TTL: 1000, EmptyWait: 250, Margin: 200 * int64(seed/3%2), RestartGuard: -1})
		}
		d.fresh(d.rivals[i])
	}
	var err error
	if d.now, err = w.clock(ctx); err != nil {
		return nil, err
	}
	return d, w.load(ctx, oracle.Data{})
}

func pick(d *duel, from ...int64) int64 { return from[d.rand.IntN(len(from))] }

func either(d *duel, from ...string) string { return from[d.rand.IntN(len(from))] }

func (d *duel) chance(p float64) bool { return d.rand.Float64() < p }

func (d *duel) hex() string { return fmt.Sprintf("%016x", d.rand.Uint64()) }

func (d *duel) fresh(r *rival) {
	d.nonces++
	r.before, r.nonce = r.nonce, fmt.Sprint("n", d.nonces)
}

// run asks so many questions and returns the first difference.
func (d *duel) run(ctx context.Context, questions int) error {
	for range questions {
		if d.chance(0.5) {
			d.pass()
		}
		faults := 0.15
		if d.calm {
			faults = 0.03
		}
		if d.chance(faults) {
			if err := d.fault(ctx); err != nil {
				return err
			}
		}
		if err := d.question(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(d.log[max(0, len(d.log)-12):], "\n"))
		}
	}
	return nil
}

// pass lets time pass, often to the very end of something.
func (d *duel) pass() {
	m := d.model
	by := pick(d, 1, 10, d.rand.Int64N(300), d.rand.Int64N(2000), m.Term.Hold-d.now, m.Term.Until-d.now, m.Lease.Expires-d.now, m.Term.Ready-d.now,
		m.Term.Reserved-d.now, m.Term.Best.Until-d.now, m.Term.Until+100-d.now)
	by += pick(d, 0, 0, 0, -1, 1)
	if by <= 0 || by > 20_000 {
		by = d.rand.Int64N(100)
	}
	d.move(by)
}

// move moves Redis's clock; on a real one all that it has stored is moved the other way.
func (d *duel) move(by int64) {
	if d.w.mini != nil {
		d.now += by
		if by > 0 {
			d.model.Uptime += by / 1000 * 1000
		}
		return
	}
	for _, at := range []*int64{&d.model.Lease.Expires, &d.model.Since.Expires, &d.model.Term.Until, &d.model.Term.Hold, &d.model.Term.Asked,
		&d.model.Term.Longest.At, &d.model.Term.Margin.At, &d.model.Term.Ready, &d.model.Term.Reserved, &d.model.Term.Best.Until} {
		if *at != 0 {
			*at = max(*at-by, 1)
		}
	}
}

// fault changes the keys, the history or the clock.
func (d *duel) fault(ctx context.Context) error {
	m := &d.model
	kind := d.rand.IntN(19)
	d.log = append(d.log, fmt.Sprint("fault ", kind))
	switch kind {
	case 0:
		m.Lease = oracle.Lease{}
	case 1:
		m.Term = oracle.Term{}
	case 2:
		m.Since = oracle.Since{}
	case 3:
		m.Data = oracle.Data{}
	case 4, 5:
		m.Lease = oracle.Lease{Holder: "foreign", Expires: pick(d, 0, d.now+500, d.now+5000)}
	case 6:
		m.Lease.Expires = 0
	case 7:
		m.Term.Nonce = ""
	case 8:
		m.Term.Holder = ""
	case 9:
		m.Term.Until, m.Term.Hold = pick(d, 0, d.now+100_000), pick(d, 0, d.now+100_000)
	case 10:
		m.Term.TTL = pick(d, 0, 3000)
		m.Term.Longest.Length, m.Term.Margin.Length = pick(d, 0, 1000, 5000), pick(d, 0, 100, 800)
	case 11:
		m.Term.Origin = either(d, "", d.hex())
	case 12:
		m.Term.Token = pick(d, 0, max(m.Term.Token-1, 0), m.Term.Token+1, 1, d.now+century-1000, d.now+2*century)
	case 13, 14:
		if len(d.past) > 0 {
			m.Data = d.past[d.rand.IntN(len(d.past))]
		}
		d.otherHistory()
	case 15:
		d.otherHistory()
	case 18:
		m.Term.Best = oracle.Best{ID: either(d, "a", "b", "c"), Rank: lease.Rank(pick(d, -1, 0, 1, 2)), Until: pick(d, d.now+400, d.now+100_000)}
	case 17:
		m.Term.Heir = either(d, "", "a", "b", "c")
		m.Term.Reserved, m.Term.Ready = pick(d, 0, d.now+400, d.now+100_000), pick(d, 0, d.now+400)
	case 16:
		d.move(-pick(d, 10, 500, 50_000))
	}
	if d.w.mini != nil {
		d.w.set(d.now, m.Facts, false)
		return d.w.load(ctx, m.Data)
	}
	return nil
}

const century = 100 * 365 * 24 * 3600 * 1000

func (d *duel) otherHistory() {
	if d.w.mini == nil {
		return
	}
	d.model.Facts = oracle.Facts{Origin: either(d, d.hex(), d.hex(), ""), Promoted: d.chance(0.5), Uptime: pick(d, 0, 1000, 100_000)}
}

// question asks one question of both.
func (d *duel) question(ctx context.Context) error {
	r := d.rivals[d.rand.IntN(len(d.rivals))]
	q := d.compose(r)
	switch t := d.model.Term; {
	case t.Reserved > d.now && t.Released && d.chance(0.3): // the heir comes
		for _, heir := range d.rivals {
			if heir.ID == t.Heir {
				r, q = heir, lease.Request{Kind: lease.Acquire, Nonce: heir.nonce, Floor: heir.floor, HoldOff: store.Milliseconds(heir.TTL)}
			}
		}
	case t.Ready > d.now && t.Nonce != "" && d.chance(0.2): // the end of a transfer
		q = lease.Request{Kind: lease.Release, Nonce: t.Nonce, Token: t.Token, Heir: d.heir(), Reserve: store.Milliseconds(pick(d, r.TTL/3, 6000))}
	}
	// What leaders ask for most of their lives. None has token 0, which a fault may have left.
	if t := d.model.Term; t.Nonce != "" && t.Token > 0 && !t.Released && d.chance(0.2) {
		for _, leader := range d.rivals {
			if leader.nonce == t.Nonce {
				r, q = leader, lease.Request{Kind: lease.Renew, Nonce: t.Nonce, Token: t.Token, NotAfter: d.now + 5000, HoldOff: store.Milliseconds(leader.TTL), Origin: leader.origin, Since: 1_699_999_999}
			}
		}
	}
	if d.calm && d.chance(0.7) {
		if d.w.mini != nil && d.chance(0.2) {
			if t := &d.model.Term; d.chance(0.5) { // many terms in a millisecond, or a clock that was set back
				t.Token = max(t.Token, d.now+pick(d, -1, 0, 1, 5))
			} else if !t.Released && t.Token > 0 { // an offer, and the heir asks for it
				t.Heir, t.Ready = "b", d.now+400
			}
			if err := d.w.load(ctx, d.model.Data); err != nil {
				return err
			}
		}
		r, q = d.usual(r)
	}
	if d.w.mini != nil {
		d.w.set(d.now, d.model.Facts, r.NoInfo)
	} else if err := d.w.load(ctx, d.model.Data); err != nil {
		return err
	}
	before := d.model.Data
	r.joint = d.chance(0.5)
	got, err := r.ask(ctx, q)
	if err != nil {
		return err
	}
	if got.Now != 0 {
		d.now = got.Now
	}
	want := predict(&d.model, d.now, r.Asker, q)
	data, err := d.w.dump(ctx)
	if err != nil {
		return err
	}
	told, err := d.w.told(ctx)
	if err != nil {
		return err
	}
	d.asked++
	d.log = append(d.log, fmt.Sprintf("at %d %s asks (joint %v) %+v: %+v\n  → %+v", d.now, r.ID, r.joint, q, d.model.Facts, got))
	if d.onTheEdge(before) || d.onTheEdge(d.model.Data) {
		d.model.Data = data
	} else if err := d.w.same(got, want, data, d.model.Data); err != nil {
		return fmt.Errorf("%w\nbefore\n\t%+v", err, before)
	} else if told != d.model.Told {
		return fmt.Errorf("the history of terms gets\n\t%+v, want\n\t%+v\nbefore\n\t%+v", told, d.model.Told, before)
	}
	d.seen[fmt.Sprint(got.Verdict, " ", got.Reason)]++
	d.learn(r, q, got)
	d.past = append(d.past, d.model.Data)
	return nil
}

// onTheEdge reports whether a key of a real Redis ends so near to the question that its clock alone
// knows whether before or after.
func (d *duel) onTheEdge(data oracle.Data) bool {
	near := func(at int64) bool { return at != 0 && at-d.now < 20 && d.now-at < realSlack }
	return d.w.mini == nil && (near(data.Lease.Expires) || near(data.Since.Expires))
}

// compose makes up a question: mostly an honest one, else late, of another campaign, or with a
// wrong token.
func (d *duel) compose(r *rival) lease.Request {
	m := d.model
	q := lease.Request{Nonce: r.nonce, Floor: r.floor, HoldOff: store.Milliseconds(pick(d, r.TTL, r.TTL, max(r.longest, r.TTL), 2000)), Since: 1_699_999_999}
	if d.chance(0.5) {
		q.NotAfter = max(pick(d, d.now, d.now-1, d.now-5000, d.now+1, d.now+5000), 1)
	}
	if d.chance(0.1) && r.before != "" {
		q.Nonce = r.before
	}
	switch k := d.rand.Float64(); {
	case k < 0.5:
		q.Kind = lease.Acquire
		q.Floor = pick(d, r.floor, r.floor, r.floor, 0, m.Term.Token, m.Term.Token+1, max(m.Term.Token-1, 0), d.now-1000)
		q.Rank, q.Mute = lease.Rank(pick(d, 0, int64(r.ID[0]-'b'), 3)), d.chance(0.1)
		q.Slice, q.Counts = store.Milliseconds(pick(d, 100, 100, 300)), store.Milliseconds(pick(d, 1200, 600))
	case k < 0.82:
		q.Kind, q.Token, q.Draining = lease.Renew, r.token, d.chance(0.2)
		q.Origin = either(d, r.origin, r.origin, m.Origin, "", "0d")
		if q.Token == 0 || d.chance(0.1) {
			q.Token = max(pick(d, m.Term.Token, m.Term.Token-1, m.Term.Token+1), 1)
		}
		if d.chance(0.1) && m.Term.Nonce != "" {
			q.Nonce = m.Term.Nonce
		}
		q.Heir = d.heir()
	case k < 0.95:
		q.Why, q.Ago = []string{"resigned", "failed", lease.Unheard}[d.asked%3], store.Milliseconds(int64(d.asked%4)*1000)
		q.Kind, q.Token = lease.Release, pick(d, r.token, r.token, 0, m.Term.Token, max(r.token-1, 0))
		q.Heir, q.Reserve = d.heir(), store.Milliseconds(pick(d, r.TTL/3, 100, 6000))
	default:
		q.Kind = askLeader
	}
	return q
}

// usual is a question as most are: the leader gives its lease back, or a rival takes one that is
// free.
func (d *duel) usual(r *rival) (*rival, lease.Request) {
	t := d.model.Term
	for _, leader := range d.rivals {
		if leader.nonce == t.Nonce && !t.Released && t.Token > 0 {
			return leader, lease.Request{
				Kind: lease.Release, Nonce: t.Nonce, Token: pick(d, t.Token, t.Token, t.Token, 0, t.Token-1), Floor: pick(d, leader.floor, leader.floor, leader.floor, t.Token+3),
				Why: "resigned", Heir: either(d, "", "", "", "b"), Reserve: store.Milliseconds(pick(d, 333, 6000)),
			}
		}
	}
	return r, lease.Request{
		Kind: lease.Acquire, Nonce: r.nonce, Floor: pick(d, r.floor, r.floor, r.floor, 0, t.Token, t.Token+1), HoldOff: store.Milliseconds(r.TTL),
		NotAfter: pick(d, 0, d.now+5000, d.now+5000, d.now, max(d.now-1, 1)),
	}
}

// heir is whom a leader offers its lease.
func (d *duel) heir() string {
	if d.chance(0.5) {
		return d.model.Term.Heir
	}
	return either(d, "", "a", "b", "c", lease.Anyone)
}

func (d *duel) learn(r *rival, q lease.Request, got oracle.Reply) {
	if lease.SaneToken(got.Token, d.now) {
		r.floor = max(r.floor, got.Token)
	}
	r.longest = max(r.longest, got.TTL.Milliseconds())
	switch got.Verdict {
	case lease.Won:
		r.token, r.origin = got.Token, got.Origin
	case lease.Kept:
		r.origin = got.Origin
	case lease.Done:
		if d.chance(0.6) { // otherwise its questions are late ones
			d.fresh(r)
		}
	}
	if d.chance(0.05) {
		d.fresh(r)
	}
	if d.chance(0.03) { // the process is restarted
		r.floor, r.token, r.longest, r.origin = 0, 0, 0, ""
	}
}
