//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

const (
	leaseTTL  = 30 * time.Second // the defaults
	heartbeat = 15 * time.Second

	namespace   = "scale"
	leaderKey   = namespace + ":leader"
	events      = namespace + ":events"
	changeLog   = namespace + ":log"
	beats       = namespace + ":beats"
	starters    = 64          // instances are started so many at a time
	deployShare = 10          // of which one is replaced
	deployFor   = time.Minute // over which they are
)

// one is all instances in one namespace of one Redis.
type one struct {
	*fleet
	*meter
	o      options
	server *redistest.Server
	crowd  *crowd
	page   *page
	rest   float64 // share of a core at rest
	alive  int
	asks   float64       // acquires a second at rest
	beats  float64       // heartbeats likewise
	each   time.Duration // what a request at rest costs Redis, all included
}

func measureInstances(tb redistest.TB, o options, p *page) {
	files, err := openFiles()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	server := redistest.Start(tb, redistest.Persist(), redistest.Args("--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0",
		"--maxclients", strconv.Itoa(files-100)))
	x := &one{meter: newMeter(tb, server), o: o, server: server, page: p, crowd: newCrowd(tb, server, o.instances)}
	x.calibrate(server, min(500, 10*o.instances))
	x.fleet = newFleet(tb, o)
	floor := x.bare()
	empty := x.now()
	heap := memory()
	x.startAll()
	x.atRest(empty, heap, floor)
	x.failOver()
	x.deploy()
	x.restart()
}

func (x *one) join() {
	client, tap := x.crowd.client(&x.sent)
	x.alive++
	x.start(client, tap, namespace)
}

// registered is how many have sent a heartbeat since a time of Redis's clock.
func (x *one) registered(since time.Duration) int {
	count, err := x.client.ZCount(context.Background(), beats, strconv.FormatInt(since.Milliseconds(), 10), "+inf").Result()
	if err != nil {
		return 0 // not loaded yet
	}
	return int(count)
}

func (x *one) listening() int {
	count, err := x.client.PubSubNumSub(context.Background(), events).Result()
	if err != nil {
		return 0
	}
	return int(count[events])
}

func (x *one) startAll() {
	progress("%d instances, as they are started", x.o.instances)
	for n := range x.o.instances {
		x.join()
		if n%starters == starters-1 {
			x.await("registered", func() bool { return x.registered(0) >= n+1-starters })
		}
	}
	x.await("all registered", func() bool { return x.registered(0) >= x.alive })
	x.crowd.gate.allow()
	x.await("all listen", func() bool { return x.listening() >= x.alive })
	x.leader()
	x.settle(0)
	if x.alive > 1000 { // those that came first have counted few, and check as few do until they count again
		progress("until all have counted each other again")
		time.Sleep(store.CountInterval(x.alive, store.CheckInterval(leaseTTL)))
	}
}

// settle waits until what the server was made to do is done: it does no more than at rest. Nobody
// asks for that to be exact.
func (x *one) settle(rest float64) {
	end, quiet, last := time.Now().Add(startBound), 0, x.now()
	for quiet < 3 && time.Now().Before(end) {
		time.Sleep(x.o.beat() / 10)
		now := x.now()
		share := (now.cpu - last.cpu).Seconds() / (now.at - last.at).Seconds()
		if last = now; share < max(1.3*rest, 0.2) {
			quiet++
		} else {
			quiet = 0
		}
	}
}

// atRest measures what the instances cost while nothing happens.
func (x *one) atRest(empty reading, heap float64, floor bareShares) {
	progress("%d instances at rest", x.alive)
	stop := x.everySecond()
	before, sent := x.now(), x.sent.read()
	time.Sleep(x.o.window * 3 / 2) // two heartbeats of each
	after, now := x.now(), x.sent.read()
	seconds := (after.at - before.at).Seconds()
	peak := worst(stop(), x.connect)
	x.rest = (after.cpu - before.cpu).Seconds() / seconds
	n := float64(x.alive)
	total := 0.0
	for k := range kinds {
		total += float64(now[k]-sent[k]) / seconds
	}
	x.asks = float64(now.asks()-sent.asks()) / seconds
	x.beats = float64(now.beats()-sent.beats()) / seconds
	x.each = time.Duration(float64(time.Second) * x.rest / max(1, total))
	own := x.crowd.owned
	t := x.page.table(fmt.Sprintf("%s instances at rest", thousands(x.alive)),
		fmt.Sprintf("All in one namespace of one Redis that writes an append-only file, in one process, at the default intervals. %s have a client of their own with the default pool; "+
			"the other %s share %d pools of 10, %d instances each. Each has its own subscription.", thousands(own), thousands(x.alive-own), x.crowd.pools, sharing))
	t.add("connections", "%s", "", thousands(int(after.clients)))
	t.add("Redis, % of a core", "%.1f", "≤ 5", 100*x.rest)
	t.add("of it in scripts", "%.1f", "", 100*(after.evalMicros-before.evalMicros)/1e6/seconds)
	t.add("the floor: as many connections that say nothing, % of a core", "%.1f", "", 100*floor.silent)
	t.add("the same with a bare SET and a bare GET of each instance in a heartbeat, % of a core", "%.1f", "", 100*floor.asked)
	t.add("a script, µs of Redis", "%.0f", "", (after.evalMicros-before.evalMicros)/max(1, after.evals-before.evals))
	t.add("the worst second, % of a core", "%.1f", "", 100*peak)
	t.add("requests a second", "%.0f", "", total)
	for k := range kinds {
		if rate := float64(now[k]-sent[k]) / seconds; rate > 0 {
			t.add("of them "+kindNames[k], "%.1f", "", rate)
		}
	}
	t.add("received, KB/s", "%.0f", "", (after.in-before.in)/1000/seconds)
	t.add("sent, KB/s", "%.0f", "", (after.out-before.out)/1000/seconds)
	data := (after.memory - after.ofClients - empty.memory + empty.ofClients) / n
	t.add("memory of Redis, MB", "%.1f", "", after.memory/1e6)
	t.add("of it an instance, bytes", "%.0f", "", data)
	t.add("of it a connection, bytes", "%.0f", "", after.ofClients/after.clients)
	t.add("a connection that is opened, with its greeting, µs of Redis", "%.0f", "", micro(x.connect))
	t.add("memory of the process an instance, its connections included, KB", "%.0f", "", (memory()-heap)/n/1000)
	c := &x.page.constants
	c.set(requestsRest, total/n)
	c.set(cpuRest, 1e6*x.rest/n)
	c.set(bytesIn, (after.in-before.in)/seconds/n)
	c.set(bytesOut, (after.out-before.out)/seconds/n)
	c.set(memoryInstance, data)
	c.set(memoryConnection, after.ofClients/after.clients)
	c.set(cpuConnect, micro(x.connect))
}

// beyondRest is the processor time of Redis between two readings beyond that at rest.
func (x *one) beyondRest(before, after reading) time.Duration {
	return max(0, after.cpu-before.cpu-time.Duration(x.rest*float64(after.at-before.at)))
}

// failOver kills the leader, again and again.
func (x *one) failOver() {
	var after, asked, spent []float64
	leader := x.leading()
	for round := range x.o.rounds {
		progress("fail-over %d", round+1)
		left, err := x.client.PTTL(context.Background(), leaderKey).Result()
		if err != nil {
			x.Fatalf("%v", err)
		}
		ends := time.Now().Add(left)
		x.forget()
		leader.kill()
		x.alive--
		time.Sleep(time.Until(ends) - 500*time.Millisecond)
		before, sent, early := x.now(), x.sent.read(), x.sent.early.Load()
		next := x.leader()
		leader = next.who
		time.Sleep(x.o.aftermath())
		now, total := x.now(), x.sent.read()
		after = append(after, milli(next.at.Sub(ends)))
		more := x.sent.early.Load() - early
		asked = append(asked, float64(more))
		// Who was started together asks together: what is regular is more, or less, than the mean.
		inStep := float64(total.asks()-sent.asks()-more) - x.asks*(now.at-before.at).Seconds()
		spent = append(spent, max(0, milli(x.beyondRest(before, now))-inStep*milli(x.each)))
	}
	t := x.page.table("A fail-over", fmt.Sprintf("The leader is cut off: nothing of it arrives any more. Counted from the end of its lease to %v after the next one leads; medians of %d. An acquire counts if its instance had asked less than 4/5 of a RetryInterval before.",
		x.o.aftermath(), x.o.rounds))
	t.add("the next one leads after the end of the lease, ms", "%.1f", "≤ 50", median(after))
	t.add("acquires", "%.0f", "≤ 100", median(asked))
	t.add("Redis, hints included, ms", "%.0f", "≤ 200", median(spent))
	x.page.constants.set(acquiresFailover, median(asked)/float64(x.alive))
}

// leading returns who leads now.
func (x *one) leading() *instance {
	var leader *instance
	x.await("a leader", func() bool {
		for _, i := range x.instances {
			if i.IsLeader() {
				leader = i
			}
		}
		return leader != nil
	})
	return leader
}

// deploy replaces some of the instances, in order, one after the other.
func (x *one) deploy() {
	planned := max(1, x.alive/deployShare)
	progress("a deploy of %d", planned)
	leader := x.leading()
	var old []*instance
	for _, i := range x.instances {
		if len(old) < planned && i != leader && !i.tap.cut.Load() {
			old = append(old, i)
		}
	}
	told := x.client.Subscribe(context.Background(), events)
	defer told.Close() // it has nothing to say
	if _, err := told.Receive(context.Background()); err != nil {
		x.Fatalf("%v", err)
	}
	messages := told.Channel(redis.WithChannelSize(100_000))
	span := deployFor
	if x.o.lease > 0 { // small
		span = time.Second
	}
	stop := x.everySecond()
	before, changed := x.now(), x.changes()
	began := time.Now()
	replaced := 0
	var waiting sync.WaitGroup
	slots := make(chan struct{}, 8)
	for n, i := range old {
		time.Sleep(time.Until(began.Add(span * time.Duration(n) / time.Duration(planned))))
		slots <- struct{}{}
		waiting.Go(func() { // ends with the instance
			defer func() { <-slots }()
			i.cancel()
			<-i.ended
		})
		x.alive--
		x.join()
		replaced++
	}
	waiting.Wait()
	x.await("those that have joined", func() bool { return x.registered(0) >= x.alive })
	x.settle(x.rest)
	took, after, watched := time.Since(began), x.now(), stop()
	hints, changes := len(messages), x.changes()-changed
	peak := worst(watched, x.connect)
	spent := x.beyondRest(before, after) - time.Duration(after.connected-before.connected)*x.connect
	t := x.page.table("A deploy", fmt.Sprintf("One instance in %d is replaced, evenly over %v: the old one leaves in order, a new one joins. The leader stays. TCP and greetings are counted apart.", deployShare, span))
	t.add("replaced", "%s", "", thousands(replaced))
	t.add("until all is quiet again, s", "%.0f", "", took.Seconds())
	t.add("changes of the registry", "%.1f a replacement", "", float64(changes)/float64(replaced))
	t.add("hints that told of them", "%s", "", thousands(hints))
	t.add("Redis, ms a replacement", "%.1f", "", milli(spent)/float64(replaced))
	heard := float64(hints) * float64(x.alive) // times that an instance heard a hint
	t.add("for each that hears a hint of it, µs", "%.1f", "", micro(spent)/max(1, heard))
	t.add("Redis beyond that at rest, % of a core", "%.0f", "≤ 20", 100*spent.Seconds()/took.Seconds())
	t.add("Redis in the worst second, % of a core", "%.0f", "≤ 20", 100*peak)
	x.page.constants.set(cpuHint, micro(spent)/max(1, heard))
	x.page.constants.set(changesReplaced, float64(changes)/float64(replaced))
}

// age is for how long Redis has run, and up to a second more.
func (x *one) age() time.Duration {
	seconds, err := strconv.Atoi(x.server.Info(x, "server")["uptime_in_seconds"])
	if err != nil {
		x.Fatalf("%v", err)
	}
	return time.Duration(seconds+1) * time.Second
}

// changes is how many entries the log has ever had.
func (x *one) changes() int {
	info, err := x.client.XInfoStream(context.Background(), changeLog).Result()
	if err != nil {
		x.Fatalf("%v", err)
	}
	return int(info.EntriesAdded)
}

// restart restarts Redis under all.
func (x *one) restart() {
	progress("a restart of Redis")
	before := x.sent.read()
	stop := x.everySecond()
	stopped, down := x.now().at, time.Now()
	x.server.Stop(x)
	x.server.Start(x)
	up := time.Now()
	back := max(stopped, x.now().at-x.age()) // who was quick has sent its heartbeat by now
	beaten, heard := time.Duration(0), time.Duration(0)
	for beaten == 0 || heard == 0 { // that some are not back is a figure too
		if time.Since(up) > startBound {
			break
		}
		time.Sleep(50 * time.Millisecond)
		if beaten == 0 && x.registered(back) >= x.alive {
			beaten = time.Since(up)
		}
		if heard == 0 && x.listening() >= x.alive {
			heard = time.Since(up)
		}
	}
	leads := x.leading()
	x.settle(x.rest)
	all := stop()
	after, took := x.sent.read(), time.Since(up).Seconds()
	total, bare, connected := 0.0, 0.0, 0.0
	for n, s := range all {
		progress("second %d: %.0f %% of a core in %v, %.0f connections", n, 100*s.share, s.took.Round(time.Millisecond), s.connected)
		total = max(total, s.share)
		bare = max(bare, s.without(x.connect))
		connected += s.connected
	}
	t := x.page.table("A restart of Redis", fmt.Sprintf("Redis is stopped and started with its data: it was away for %.1f s. Counted from when it answers again.", up.Sub(down).Seconds()))
	t.add("all have sent a heartbeat, s", "%s", "≤ 15", within(beaten))
	t.add("all listen again, s", "%s", "≤ 15", within(heard))
	t.add("connections that were opened", "%s", "", thousands(int(connected)))
	t.add("Redis in the worst second, % of a core", "%.0f", "", 100*total)
	t.add("the same, TCP and greetings counted apart", "%.0f", "≤ 20", 100*bare)
	t.add("acquires beyond those at rest", "%s", "", thousands(max(0, int(float64(after.asks()-before.asks())-x.asks*took))))
	t.add("heartbeats beyond those at rest", "%s", "", thousands(max(0, int(float64(after.beats()-before.beats())-x.beats*took))))
	kept := "another one leads"
	if term, ok := leads.Elector().Term(); ok && time.Since(term.Since) > time.Since(down) {
		kept = "the same term goes on"
	}
	t.add("the leader", "%s", "the same term goes on", kept)
}

// within says after how long something was so; 0: it was not.
func within(d time.Duration) string {
	if d == 0 {
		return fmt.Sprintf("not within %.0f", startBound.Seconds())
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
