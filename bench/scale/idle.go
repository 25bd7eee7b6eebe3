//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// They are counted for as long as a follower takes for so many questions on average, which is 39/40
// of RetryInterval each, and no longer than so many windows. All begin together: in a time that is
// no multiple of that each is counted once too often, or too seldom.
const (
	idleQuestions = 12
	idleWindows   = 9
)

// measureIdle counts what electors send that stand alone, each with a client of its own.
func measureIdle(tb redistest.TB, o options, p *page) {
	t := p.table("Idle elections", "One leads, the others follow, at the default lease of 30 s; electors that stand alone, each with a client of its own. *Most in a second* beside the mean shows whether they go in step.")
	tables, errs := make([]table, len(o.idle)), make([]error, len(o.idle))
	var group sync.WaitGroup
	for n, count := range o.idle { // each has a server of its own
		group.Go(func() { // ends with its measurement
			errs[n] = redistest.Do(func(tb redistest.TB) { idle(tb, o, &tables[n], count) })
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("%v", err)
	}
	for _, each := range tables {
		t.rows = append(t.rows, each.rows...)
	}
}

func idle(tb redistest.TB, o options, t *table, count int) {
	progress("%d idle electors", count)
	server := redistest.Start(tb)
	f := newFleet(tb, o)
	for range count {
		client, hook := redis.NewClient(server.Options()), &tap{sent: &f.sent}
		client.AddHook(hook)
		tb.Cleanup(func() { _ = client.Close() })
		f.startElector(client, hook)
	}
	f.leader()
	time.Sleep(o.aftermath() + o.window/2) // what the start has caused, the first count of who listens too
	question := cmp.Or(o.lease, leaseTTL) / 2 * 39 / 40
	seconds := max(1, int(min(idleQuestions*question, o.window*idleWindows)/time.Second))
	// sum counts the requests of the election, and the checks.
	sum := func() (requests, checked int64) {
		for k, n := range f.sent.read() {
			requests += n
			if k := kind(k); k == checks || k == polls {
				checked += n
			}
		}
		return requests - checked, checked
	}
	requests, checked := sum()
	firstRequests, firstChecked := requests, checked
	var mostRequests, mostChecked int64
	for range seconds {
		time.Sleep(time.Second)
		nowRequests, nowChecked := sum()
		mostRequests, mostChecked = max(mostRequests, nowRequests-requests), max(mostChecked, nowChecked-checked)
		requests, checked = nowRequests, nowChecked
	}
	ofElection := float64(requests-firstRequests) / float64(seconds)
	total := ofElection + float64(checked-firstChecked)/float64(seconds)
	aims := map[int][2]string{11: {"≤ 0.8", "≤ 2.5"}, 100: {"≤ 7.3", "≤ 22.7"}}[count] // of 100: in proportion
	t.add(fmt.Sprintf("%d processes: requests a second of the election", count), "%.2f", aims[0], ofElection)
	t.add("most in a second", "%d", "", mostRequests)
	t.add("with the checks of the subscription", "%.2f", aims[1], total)
	t.add("most checks in a second", "%d", "", mostChecked)
}

// startElector starts an elector that stands alone.
func (f *fleet) startElector(client redis.UniversalClient, t *tap) {
	f.started++
	e, err := tenure.NewElector(client, tenure.ElectorOptions{Namespace: namespace, InstanceID: fmt.Sprintf("instance-%d", f.started), Election: f.election()})
	if err != nil {
		f.Fatalf("%v", err)
	}
	f.add(t, e.Run)
}
