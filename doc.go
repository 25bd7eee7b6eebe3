// Package tenure elects a leader among the instances of a service that share a Redis, keeps a
// registry of them, and runs tasks on the leader only.
//
// # Model
//
// A role is what one leader is elected for: a service has one, and may add more. The leader of a
// role holds a lease: a key in Redis that expires. A candidate that finds the lease free gets it,
// with a fencing token greater than that of every leader before, and its term begins: IsLeader is
// true, leader work runs under a context, tasks run when they are due. The leader renews the lease;
// a follower sleeps until the lease that it knows of would end, at most RetryInterval (LeaseTTL/2),
// or until a hint, a message over pub/sub, wakes it. When the term ends, for whatever reason,
// IsLeader turns false first, then the context is cancelled, then the work is awaited, and only
// then is the lease released. Then the process campaigns again, until Run is told to stop.
//
//	           lease is free, or ends            context cancelled, work drained
//	following ────────────────────────▶ leading ─────────────────────────────▶ draining
//	    ▲                                                                         │
//	    └──────────── lease released, or left to lapse; stand-back ◀──────────────┘
//
// A term ends if the lease was not renewed in time (ErrExpired), if Redis refuses a renewal
// (ErrLost), if leader work or the health check fails (ErrWorkFailed), by Resign or Transfer
// (ErrResigned), or when Run is told to stop (ErrStopped).
//
// A deploy lets running tasks finish. After Resign, Transfer, or the stop of Run, no task starts. A
// task that runs keeps its context, its term and the lease for up to 3/4 of ShutdownTimeout. Then
// its context is cancelled. If the task returns an error, its run is recorded as interrupted, and
// the next leader runs it again, unless Task.Abandoned says otherwise. Nil means that the work is
// complete. If the lease is lost, or work or health fails, tasks are cancelled at once.
//
// Most programs need New, Coordinator.Run, Coordinator.IsLeader and TaskScheduler.Register, and
// nothing else.
//
// # Promises
//
// At no instant do two electors of one role answer IsLeader with true, as long as: the clocks'
// rates differ by less than the drift margin; Redis's clock does not jump ahead within a lease;
// Redis keeps its data, or loses it in a way that a witness sees (a new replication id, a young
// server, a token below one that a living candidate remembers, a lease that vanished before its
// end); and, while TTLs differ, Redis keeps the longest that was named, or it is named again
// before the next grant. This is a conditional promise, and no lock in Redis can make it
// unconditional.
//
// A resource that refuses tokens below the highest it has seen never accepts a write of an older
// leader after one of a newer. This holds however late anything comes, as long as tokens increase,
// which they do unless three things happen at once: Redis loses the last token, no living candidate
// remembers it, and Redis's clock is behind it. If a second writer would do harm, hand Term.Token
// to what the leader writes to.
//
// With t0 read before a request is handed to the client:
//
//	L     = LeaseTTL − DriftMargin − 2 ms   how long a granted lease is believed in
//	D     = t0 + L                          the deadline: IsLeader is false from here on
//	D − g, g = max(50 ms, LeaseTTL/50)      the context of the term is cancelled
//
// Redis counts from when the request arrives, which is after t0, so its lease ends later than D
// unless its clock runs ahead of ours by more than DriftMargin within a lease. Two renewals fit
// before D − g, so that one lost reply ends no term: 1.1 · RenewInterval ≤ (L − g)/2.
//
// A deadline is counted from before the request was sent. An independent timer cancels the term's
// context before the lease can have expired, and IsLeader looks at both clocks of the machine, so
// that after a pause past the deadline its first answer is already false. Once false it stays false
// for that term.
//
// An error or silence of Redis means that nothing is known: before the deadline only an explicit
// refusal or our own decision ends a term.
//
// # Limits
//
// A callback that ignores its context goes on running when the term is over: its token fences it,
// nothing else does. Give tenure a Redis client of its own.
//
// Some waits keep a second leader away. On an empty Redis no lease is granted for EmptyHistoryWait
// (250 ms). On a Redis that is younger than the longest TTL known, none is granted until it is that
// old. After the promotion of a replica, none is granted for that TTL.
//
// Across a FLUSHALL the promise about IsLeader needs a leader that can be reached, or
// EmptyHistoryWait set to LeaseTTL. With Redis replication it needs min-replicas-to-write or a
// FailoverMargin (SafetyOptions).
//
// # Where things are
//
// docs/design.md, "Shape of the code", is the map of files and packages.
//
// # Compatibility
//
// The exported names, the Redis keys and their types, the JSON of instance records and the lease's
// plain value follow semantic versioning. The arguments and replies of the scripts, and the fields
// of the term hash beyond token, do not. Redis 6.2 or later is needed.
package tenure
