//go:build unix

package fleet

import (
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// Stage is a kind of Redis with the faults that go with it.
type Stage struct {
	Name, About string
	act         int // stages of one act are played side by side
	clusters    int
	election    election
	outside     string        // the condition of P1 that it leaves, "" none: overlaps are then measured
	replan      time.Duration // what a step of Redis's clock may add to the wait for a run
	asked       bool          // an operator asks for things meanwhile
	missing     func() string
	open        func(t redistest.TB, i int) servers
}

// Stages are all stages, in the order in which they are played.
var Stages = []Stage{
	{
		Name: "single", About: "one redis-server, with an append-only file in every other cluster", act: 1, clusters: 4,
		election: election{LeaseTTL: time.Second}, open: openPlain,
	},
	{
		Name: "operator", About: "the same with an append-only file, and an operator who triggers, pauses, resumes, cancels, drains, transfers and has leaders resign meanwhile",
		act: 4, clusters: 2, election: election{LeaseTTL: time.Second}, open: openAsked, asked: true,
	},
	{
		Name: "deploys", About: "one redis-server; every process is replaced by one of a new version, one after the other, again and again, with drains in between",
		act: 4, clusters: 2, election: election{LeaseTTL: 3 * time.Second}, open: openDeploys,
	},
	{Name: "tls", About: "one redis-server over TLS", act: 2, clusters: 1, election: election{LeaseTTL: time.Second}, open: openTLS},
	{
		Name: "acl", About: "a user with exactly the rights of ACLRules, each of which is taken away", act: 2, clusters: 2,
		election: election{LeaseTTL: time.Second}, open: openRights,
	},
	{
		Name: "memory", About: "a Redis that is full, or evicts", act: 2, clusters: 1,
		election: election{LeaseTTL: time.Second}, open: openMemory,
	},
	{
		Name: "clock", About: "a Redis whose clock is stepped", act: 2, clusters: 1,
		election: election{LeaseTTL: time.Second}, open: openClock, missing: noClocks, replan: time.Minute,
	},
	{
		Name: "sentinel", About: "a master, two replicas and three Sentinels, with min-replicas-to-write 1 and FailoverMargin", act: 3, clusters: 2,
		election: election{LeaseTTL: 6 * time.Second, RenewInterval: time.Second, FailoverMargin: 2900 * time.Millisecond}, open: openSentinel,
	},
	{
		Name: "sentinel-bare", About: "the same with neither", act: 3, clusters: 1, election: election{LeaseTTL: 2 * time.Second}, open: openBareSentinel,
		outside: "a second master takes writes for longer than FailoverMargin",
	},
	{
		Name: "cluster", About: "a Redis Cluster of three masters and three replicas", act: 3, clusters: 2,
		election: election{LeaseTTL: 2 * time.Second}, open: openSharded,
	},
}

// acts are the parts of a run and their shares of the time.
var acts = map[int]int{1: 30, 4: 15, 2: 20, 3: 35}

func noClocks() string {
	if redistest.HasClocks() {
		return ""
	}
	return "libfaketime is not installed"
}
