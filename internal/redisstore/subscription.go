package redisstore

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// The times of a subscription. A check publishes a message, by the client that runs the scripts, to
// a channel that only this process listens on: it must come back. If it cannot be published the
// subscription itself is asked (PING).
//
//	every    = max(2.5 s, T/4)   between two checks, at most
//	patience = 2/5 · every       for the message, and as long again for the answer to PING
//
// So a dead subscription is noticed within every + 2 · patience = 1.8 · every. One of a crowd that
// leads nothing lets some of these times pass without a check, so that it checks about each
// store.CheckIntervalOfMany, at most every/2 later: enough others hear a hint.
const (
	firstCheck   = 50 * time.Millisecond // after the subscription stands
	leastPause   = 50 * time.Millisecond // between two subscriptions, doubled up to
	mostPause    = 2 * time.Second
	quietTime    = time.Minute // a subscription that broke over nonsense is reported as restored after so long without any
	countedFirst = 2           // with that check Redis is asked how many listen: by then those that started together do
	mostHanging  = 4           // subscriptions that hang in the client, and as many checks

	looksWhetherLeads = 250 * time.Millisecond // one of a crowd that waits to subscribe again
)

// listener keeps a subscription up. Its fields belong to the goroutine of run.
type listener struct {
	store *Store
	store.Audience
	tag string // our messages begin with it

	opening, checking chan struct{}  // slots of what may hang in the client
	calls             sync.WaitGroup // what hangs there
	deaf              bool           // the channel of our own messages is refused: PING serves
	reported          bool           // a loss was reported, and not yet the restoration
	nonsense          time.Time      // when a subscription last broke over what is no frame of Redis
	refused           error          // Redis does not publish for us
	rollCall          rollCallTimer
	phase             float64   // in [0, 1): by it the checks of many processes lie apart
	checks            int       // whose message was published
	counted           time.Time // when Redis was asked last how many listen; zero: it was not
	spread            bool      // its counts lie apart from those of others
	crowd             int       // the most that listen to one lease, as Redis counted them last
	stood             bool      // the last subscription did
}

// Listen keeps a subscription up for an audience until ctx is done, and returns when nothing of it
// hangs in the client any more.
func (s *Store) Listen(ctx context.Context, a store.Audience) { newListener(s, a).run(ctx) }

func newListener(s *Store, a store.Audience) *listener {
	tag := s.secret()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(tag))
	return &listener{
		store: s, Audience: a, tag: tag, phase: float64(hash.Sum32()) / (1 << 32),
		opening: make(chan struct{}, mostHanging), checking: make(chan struct{}, mostHanging),
	}
}

func (l *listener) every() time.Duration    { return store.CheckInterval(l.TTL()) }
func (l *listener) patience() time.Duration { return l.every() * 2 / 5 }
func (l *listener) rest() time.Duration     { return store.CheckIntervalOfMany(l.crowd, l.every()) }

// part is a part of d that is always the same.
func (l *listener) part(d time.Duration) time.Duration { return time.Duration(l.phase * float64(d)) }

// run listens until ctx is done, and returns when nothing of it hangs in the client any more.
func (l *listener) run(ctx context.Context) {
	defer l.calls.Wait()
	pause := leastPause
	for {
		select {
		case l.opening <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		l.stood = false
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errOwnChannel) {
			l.deaf = true
			continue
		}
		l.down(err)
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		if !wait(ctx, pause) || !l.waitApart(ctx, l.stood) {
			return
		}
		pause = min(2*pause, mostPause)
	}
}

// waitApart waits for as much longer than the pause as lets a crowd, whose subscriptions broke at
// one moment, subscribe at about one a millisecond: at the first attempt for a part of the time in
// which all do, and for all of it between two attempts, so that they stay apart for as long as
// Redis is away. Whoever leads waits no longer: it must hear a roll-call. It reports whether ctx
// goes on.
func (l *listener) waitApart(ctx context.Context, first bool) bool {
	left := l.crowdSpread(l.every())
	if first {
		left = l.part(left)
	}
	for ; left > 0 && !l.Leads(); left -= looksWhetherLeads {
		if !wait(ctx, min(left, looksWhetherLeads)) {
			return false
		}
	}
	return true
}

// crowdSpread is over how long a crowd does what it began at one moment: 1 ms for each of those
// that listen, at most so long.
func (l *listener) crowdSpread(most time.Duration) time.Duration {
	return min(time.Duration(l.crowd)*time.Millisecond, most)
}

// wait waits, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// down takes note that hints do not arrive.
func (l *listener) down(err error) {
	l.deaf = false // the next subscription tries again
	if isNonsense(err) {
		l.nonsense = time.Now()
	}
	err = explainHearing(err, l.Channels())
	before := l.State.Load()
	now := store.Subscription{Since: before.Since, Err: err}
	if before.Active {
		now.Since = time.Now()
	}
	l.State.Store(&now)
	if !l.reported {
		l.reported = true
		l.Report(store.Notice{Kind: store.SubscriptionLost, Err: err})
	}
}

// up takes note that a check has come back.
func (l *listener) up() {
	before := l.State.Load()
	now := store.Subscription{Active: true, Since: before.Since, Err: l.refused}
	if !before.Active {
		now.Since = time.Now()
	}
	l.State.Store(&now)
	if l.reported && (l.nonsense.IsZero() || time.Since(l.nonsense) >= quietTime) {
		l.reported = false
		l.Report(store.Notice{Kind: store.SubscriptionRestored})
	}
}

// answered takes note of how Redis answered to a message of our own.
func (l *listener) answered(trip time.Duration, err error) {
	if err == nil {
		l.refused = nil
		l.rollCall.measured(trip, l.leases(), l.store.spread, l.Wait(), l.Report)
		return
	}
	if !errors.Is(err, store.ErrMisconfigured) {
		return
	}
	if l.refused == nil {
		l.Report(store.Notice{Kind: store.HintsRefused, Err: err})
	}
	l.refused = err
}

// leases are the channels of leases.
func (l *listener) leases() []string {
	return slices.DeleteFunc(slices.Clone(l.Channels()), func(channel string) bool { return channel == l.store.keys.Events() })
}

// hearingReport is what the goroutines of one subscription have for the loop.
type hearingReport struct {
	kind    reportKind
	channel string
	trip    time.Duration
	count   []store.Hint
	err     error
}

type reportKind int

const (
	reportSubscribed reportKind = iota // channel is confirmed
	reportOwn                          // a message of our own
	reportPong                         // the subscription has answered
	reportPublished                    // our message was: err, else trip is the round trip
	reportCounted                      // Redis has said how many listen
	reportNotCounted                   // or it has not
	reportEnded                        // the subscription is over: err
)

// hearing is one subscription as the loop sees it. Its fields belong to that.
type hearing struct {
	*listener
	wire    *wire
	reports chan hearingReport
	timer   *time.Timer

	own     string          // channel of our own messages; "": PING serves
	final   string          // the channel that is asked for last: Redis confirms it last
	pending map[string]bool // channels that are not confirmed, own among them
	known   map[string]bool // channels that were asked for
	stands  bool
	checked bool      // a check has come back
	last    time.Time // when the last one did, or as if it had
	asking  bool      // a check is on
	sent    bool      // its message was published
	pinged  bool      // PING was sent for it
}

// Listen serves one subscription until it is over.
func (l *listener) listen(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	h := &hearing{
		listener: l, reports: make(chan hearingReport), timer: time.NewTimer(l.every()),
		pending: make(map[string]bool), known: make(map[string]bool),
	}
	defer h.timer.Stop()
	if !l.deaf {
		h.own = l.store.keys.Own(l.store.id)
		h.pending[h.own] = true
	}
	channels := h.fresh()
	h.final = cmp.Or(h.own, channels[len(channels)-1])
	h.wire = &wire{store: l.store, own: h.own, tag: l.tag, take: l.Take}
	h.background(ctx, func() hearingReport {
		defer func() { <-l.opening }()
		err := h.wire.serve(ctx, channels, 3*store.CheckIntervalOfMany(math.MaxInt32, l.every()), func(r hearingReport) { h.tell(ctx, r) })
		return hearingReport{kind: reportEnded, err: err}
	})
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-l.More:
			h.subscribeMore()
		case r := <-h.reports:
			err = h.heard(ctx, r)
		case <-h.timer.C:
			err = h.due(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// background runs what may hang in the client, and hands its report to the loop if that still waits
// for it.
func (h *hearing) background(ctx context.Context, do func() hearingReport) {
	h.calls.Go(func() { // ends with ctx, or when the client returns; awaited by run
		r := hearingReport{kind: reportEnded, err: store.ErrCallEnded}
		defer func() { h.tell(ctx, r) }()
		r = do()
	})
}

func (h *hearing) tell(ctx context.Context, r hearingReport) {
	select {
	case h.reports <- r:
	case <-ctx.Done():
	}
}

// fresh returns the channels that were not asked for yet.
func (h *hearing) fresh() (fresh []string) {
	for _, channel := range h.Channels() {
		if !h.known[channel] {
			h.known[channel], h.pending[channel] = true, true
			fresh = append(fresh, channel)
		}
	}
	return fresh
}

// subscribeMore asks for the channels of roles that were added.
func (h *hearing) subscribeMore() {
	if !h.stands {
		return // it asks when it stands
	}
	if fresh := h.fresh(); len(fresh) > 0 {
		h.calls.Go(func() { h.wire.subscribe(fresh) }) // ends with the write, or with the subscription; awaited by run
	}
}

// subscribeAgain asks once more for the channels whose confirmation was not read. Before version
// 9.21 go-redis drops a frame of which only a part of the first bytes has arrived: of a thousand
// confirmations one in every few subscriptions.
func (h *hearing) subscribeAgain() {
	h.final = ""
	missing := slices.Sorted(maps.Keys(h.pending))
	h.calls.Go(func() { h.wire.subscribe(missing) }) // ends with the write, or with the subscription; awaited by run
}

// heard takes a report. An error ends the subscription, whatever it is: behind it the stream may
// not be aligned any more, and what somebody published would be read as protocol.
func (h *hearing) heard(ctx context.Context, r hearingReport) error {
	switch r.kind {
	case reportSubscribed:
		delete(h.pending, r.channel)
		if r.channel != h.own {
			h.Take(store.Hint{Type: store.HintConnected, Channel: r.channel})
		}
		switch {
		case h.stands:
		case len(h.pending) == 0:
			h.stands, h.stood = true, true
			h.timer.Reset(firstCheck + h.part(h.crowdSpread(h.every()/2)))
			h.subscribeMore()
		case r.channel == h.final:
			h.subscribeAgain()
		}
	case reportPublished:
		h.answered(r.trip, r.err)
		h.checks++
		if h.checks >= countedFirst && time.Since(h.counted) >= store.CountInterval(h.crowd, h.every())-h.every() {
			h.counted = time.Now()
			h.count(ctx) // not beside the message: that would open another connection
		}
		if h.sent = r.err == nil; h.asking && !h.sent {
			h.ping()
		}
	case reportOwn, reportPong:
		if h.asking && (r.kind == reportOwn || h.pinged) {
			h.asking = false
			h.up()
			next := h.every()
			h.last = time.Now()
			if !h.checked { // many may have subscribed at one moment: from now on their checks lie apart
				next -= h.part(next / 2)
				h.last = h.last.Add(-h.part(h.rest() - h.every()))
			}
			h.checked = true
			h.timer.Reset(next)
		}
	case reportCounted:
		before := h.rest()
		h.crowd = 0
		for _, hint := range r.count {
			h.crowd = max(h.crowd, hint.Count)
			h.Take(hint)
		}
		// All may have counted within moments: from now on their checks, and counts, lie apart.
		if h.rest() > 2*before {
			h.last = h.last.Add(-h.part(h.rest() - h.every()))
		}
		if !h.spread {
			h.spread = true
			h.counted = h.counted.Add(-h.part(store.CountInterval(h.crowd, h.every())))
		}
	case reportEnded:
		if r.err != nil && len(h.pending) == 1 && h.pending[h.own] && isRefusal(r.err) {
			return errOwnChannel
		}
		return r.err
	}
	return nil
}

// due takes the end of a wait.
func (h *hearing) due(ctx context.Context) error {
	switch {
	case !h.stands, h.asking && (h.sent || h.pinged):
		return errSilent
	case h.asking: // publishing hangs: that says nothing of the subscription
		h.ping()
	case h.checked && !h.Leads() && time.Since(h.last) < h.rest()-h.every()/2: // it looks again: by then it may lead
		h.timer.Reset(h.every())
	default:
		h.asking, h.sent, h.pinged = true, false, false
		h.timer.Reset(h.patience())
		h.publishOwn(ctx)
	}
	return nil
}

// count asks how many listen. Without an answer, or without the right to ask, it goes on with what
// was counted before: nothing, at first, and then they take themselves for few.
func (h *hearing) count(ctx context.Context) {
	channels := h.leases()
	if len(channels) == 0 {
		return
	}
	select {
	case h.checking <- struct{}{}:
	default: // too many hang
		return
	}
	h.background(ctx, func() hearingReport {
		defer func() { <-h.checking }()
		counted, err := h.store.listeners(ctx, channels)
		if err != nil {
			return hearingReport{kind: reportNotCounted}
		}
		var count []store.Hint
		for _, channel := range channels {
			count = append(count, store.Hint{Type: store.HintListeners, Channel: channel, Count: int(min(counted[channel], math.MaxInt32))})
		}
		return hearingReport{kind: reportCounted, count: count}
	})
}

// publishOwn sends the message that must come back.
func (h *hearing) publishOwn(ctx context.Context) {
	if h.own == "" {
		h.ping()
		return
	}
	select {
	case h.checking <- struct{}{}:
	default: // too many hang
		h.ping()
		return
	}
	h.background(ctx, func() hearingReport {
		defer func() { <-h.checking }()
		began := time.Now()
		err := h.store.publish(ctx, h.own, h.tag)
		return hearingReport{kind: reportPublished, trip: time.Since(began), err: err}
	})
}

// ping asks the subscription itself.
func (h *hearing) ping() {
	h.pinged = true
	h.timer.Reset(h.patience())
	h.calls.Go(h.wire.ping) // ends with the write, or with the subscription; awaited by run
}
