//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// measureRoles has one process lead many roles, and another one follow.
func measureRoles(tb redistest.TB, o options, p *page) {
	server := redistest.Start(tb)
	m := newMeter(tb, server)
	empty := m.now()
	base := m.share(o.window / 3)
	f := newFleet(tb, o)
	var names []string
	for n := range o.rolesEach - 1 {
		names = append(names, fmt.Sprintf("role-%d", n))
	}
	join := func() *instance {
		client, t := redis.NewClient(server.Options()), &tap{sent: &f.sent}
		client.AddHook(t)
		tb.Cleanup(func() { _ = client.Close() })
		return f.start(client, t, namespace, names...)
	}
	progress("%d roles that are led", o.rolesEach)
	leader := join()
	f.await("all roles are led", func() bool { return leads(leader) == o.rolesEach })
	pause := o.aftermath()
	time.Sleep(pause + o.renewInterval()) // until all are renewed together
	sent, trips, before := f.sent.read(), f.sent.trips.Load(), m.now()
	leading := m.share(o.window) - base
	seconds := o.window.Seconds()
	now := f.sent.read()
	travelled := float64(now[renewals]-sent[renewals]) / max(1, float64(f.sent.trips.Load()-trips))

	progress("%d roles that are followed", o.rolesEach)
	join()
	time.Sleep(pause)
	asked := f.sent.read()
	following := m.share(o.window*3/2) - base - leading
	more := f.sent.read()
	n := float64(o.rolesEach)
	t := p.table(fmt.Sprintf("%s roles in one process", thousands(o.rolesEach)), "One process leads them at the default intervals, then another one follows all of them. Redis without what it does when idle.")
	t.add("led: renewals a second", "%.0f", "", float64(now[renewals]-sent[renewals])/seconds)
	t.add("renewals a round trip", "%.0f", "", travelled)
	t.add("led: Redis, % of a core", "%.2f", "", 100*leading)
	t.add("followed: acquires a second", "%.0f", "", float64(more[acquires]-asked[acquires])/(seconds*3/2))
	t.add("followed: Redis, % of a core more", "%.2f", "", 100*following)
	c := &p.constants
	c.set(requestsRole, float64(now[renewals]-sent[renewals])/seconds/n)
	c.set(cpuRoleLeading, max(0, 1e6*leading/n))
	c.set(cpuRoleFollowing, max(0, 1e6*following/n))
	c.set(memoryRole, max(0, (before.memory-before.ofClients-empty.memory+empty.ofClients)/n))
}

func leads(i *instance) (count int) {
	for _, e := range i.Roles() {
		if e.IsLeader() {
			count++
		}
	}
	return count
}
