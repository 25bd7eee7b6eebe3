package redisstore

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// rollCallTimer watches whether the leaders of this process can answer a roll-call in time. It
// belongs to one goroutine.
type rollCallTimer struct {
	trips    [3]time.Duration // round trips of late
	measures int
	slow     bool // it was reported
}

// rollCallTime is how long the leaders of roles that are heard of on these channels take, at most,
// to renew after a roll-call:
//
//	(3 + ⌈pipelines / 4⌉) · round trip
//
// One half is the way of the question, one half that of the renewals, two are for connections that
// are opened for it, one for each four pipelines, which travel at a time. A pipeline has 200
// renewals, on a Redis Cluster of one hash tag.
func rollCallTime(channels []string, spread bool, trip time.Duration) time.Duration {
	roles, pipelines := map[string]int{}, 0 // by hash tag
	for _, channel := range channels {
		tag := ""
		if spread {
			tag = store.TagPattern.FindString(channel)
		}
		if roles[tag]%maxPipelined == 0 {
			pipelines++
		}
		roles[tag]++
	}
	return time.Duration(3+(pipelines+maxPipelines-1)/maxPipelines) * trip
}

// measured takes a round trip. It reports once that a roll-call takes more than half of what is
// waited for it, by the shortest of three round trips: the other half is for scheduling.
func (r *rollCallTimer) measured(trip time.Duration, leases []string, spread bool, wait time.Duration, publish func(store.Notice)) {
	r.trips[r.measures%len(r.trips)] = trip
	if r.measures++; r.measures < len(r.trips) || wait <= 0 {
		return
	}
	need := rollCallTime(leases, spread, min(r.trips[0], r.trips[1], r.trips[2]))
	slow := need > wait/2
	if slow && !r.slow {
		publish(store.Notice{Kind: store.RollCallSlow, Roles: len(leases), Need: need, Err: fmt.Errorf(
			"%w: %d roles need %v to answer a roll-call, and EmptyHistoryWait is %v: set it to %v or more", store.ErrMisconfigured, len(leases), need, wait, 2*need)})
	}
	r.slow = slow
}
