package store

import (
	"sync/atomic"
	"time"
)

// Audience is whom a subscription to hints serves. Its functions do not block and may be called
// from several goroutines.
type Audience struct {
	Channels func() []string      // to listen on; the first one names the slot in a cluster
	More     <-chan struct{}      // Channels returns more than before; nil: never
	TTL      func() time.Duration // shortest lease
	Wait     func() time.Duration // shortest EmptyHistoryWait
	Leads    func() bool          // this process leads anything: a roll-call must be heard
	Take     func(Hint)
	Report   func(Notice)
	State    *atomic.Pointer[Subscription]
}

// Subscription is the state of a subscription.
type Subscription struct {
	Active bool      // hints arrive, by the last check
	Since  time.Time // when Active last changed; zero: it was never true
	Err    error     // why it is not active, or why Redis refuses to publish the hints of this process
}

// NewSubscription is the state before the first attempt.
func NewSubscription() *atomic.Pointer[Subscription] {
	var state atomic.Pointer[Subscription]
	state.Store(&Subscription{})
	return &state
}

// Notice is a change that a subscription reports.
type Notice struct {
	Kind  NoticeKind
	Roles int           // RollCallSlow: how many roles this process has
	Need  time.Duration // RollCallSlow: what they need to answer a roll-call
	Err   error
}

// NoticeKind is what has changed.
type NoticeKind int

// What a subscription reports.
const (
	SubscriptionLost     NoticeKind = iota // no hints arrive
	SubscriptionRestored                   // they arrive again
	HintsRefused                           // Redis does not publish the hints of this process
	RollCallSlow                           // its roles cannot all answer a roll-call in time
)

// ChecksPerCount: Redis is asked how many listen as often as with one check in so many, and of a
// crowd that checks seldom with one in fewer.
const (
	ChecksPerCount        = 16
	ChecksPerCountOfCrowd = 4
)

// CheckInterval is how often a subscription is checked while the shortest lease is ttl.
func CheckInterval(ttl time.Duration) time.Duration { return max(2500*time.Millisecond, ttl/4) }

// Of a crowd, those that do not lead check as often as makes one check in 6 ms for all of them, but
// each of them once a minute.
const (
	checksApart = 6 * time.Millisecond
	rarestCheck = time.Minute
)

// CheckIntervalOfMany is how often the subscription of a process that leads nothing is checked, if
// so many listen. Up to a thousand or so that is every.
func CheckIntervalOfMany(listeners int, every time.Duration) time.Duration {
	return max(every, min(time.Duration(listeners)*checksApart, rarestCheck))
}

// CountInterval is how often a process asks how many listen, if so many did, while its
// subscription is checked each every.
func CountInterval(listeners int, every time.Duration) time.Duration {
	return max(ChecksPerCount*every, ChecksPerCountOfCrowd*CheckIntervalOfMany(listeners, every))
}
