// Package simnet runs real go-redis clients against a real miniredis in virtual time: inside a
// testing/synctest bubble, over an in-memory network whose faults come from one seed.
//
//	synctest.Test(t, func(t *testing.T) {
//		n := simnet.New(simnet.Options{Seed: seed})
//		defer n.Close()
//		redis := n.NewServer(simnet.Addr, simnet.ServerOptions{})
//		n.SetFaults("", simnet.Faults{DelayRequest: 0.1, DelayMax: 20 * time.Second})
//		a := n.Client("a", nil)
//		n.Partition("a", simnet.Both, 30*time.Second)
//		redis.Restart(false, 2*time.Second)
//		…
//	})
//
// # The model
//
// A connection is TCP: bytes of one direction stay in order, so a delayed request delays what is
// behind it; a lost one silences its direction until somebody gives the connection up; what a
// client wrote before it closed, or crashed, still arrives. A write never blocks. The server is one
// event loop: it executes a request at the instant at which it arrives, in the goroutine of that
// delivery, one command at a time. Blocking commands are refused.
//
// # Replay
//
// A seed replays exactly at GOMAXPROCS=1 without the race detector, as far as this package goes.
// Each direction of each connection draws from a generator of its own, and every delivery falls on
// a nanosecond that no other connection uses (its time modulo 10 µs is the connection's), because a
// bubble runs timers of one instant in random order. Timers that a host derives from a delivery,
// with durations in multiples of 10 µs, inherit its residue; a reset of all connections, and the
// deadline of a read, come at instants of the connection, too. Stagger gives each host a first
// instant of its own. What the code under test draws itself (math/rand/v2, a select with two ready
// cases, two equal timers of one host, a context with several children, which hear of its end in
// the order of a map) is its own to keep in order; testing/cryptotest makes crypto/rand repeat.
// What a crashed host still dials draws nothing, and the connections of its next life are numbered
// anew. The digest of a Trace does not depend on the order of events within one instant.
//
// # Traps
//
//   - Everything must be made inside the bubble, and Close called before its function returns.
//   - go-redis waits at an exhausted connection pool with timers that it shares across the process. Pools that run dry in two
//     bubbles end the test binary ("select on synctest channel from outside bubble"), hence the large PoolSize of Client:
//     connections are made on demand.
//   - A bubble has one clock: Redis's may have a rate of its own, two clients' can not.
//   - Replicas, a restart from an RDB file (it makes the old replication ID the second one) and databases other than 0 are
//     not modelled.
//   - By default go-redis ignores context deadlines on a call in flight: it returns after ReadTimeout (5 s), retries.
//   - PubSub.Channel starts a health check that can block a bubble: receive in one goroutine with ReceiveTimeout.
//   - New silences go-redis's own log in the whole test binary.
package simnet
