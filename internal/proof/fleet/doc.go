// Package fleet runs fleets of real processes, each of which embeds tenure as a user would, on real
// Redis servers, and does to both whatever a seeded nemesis draws: kills, freezes, partitions, lost
// data, failovers, clocks that jump. What every process believed and did is written down by the one
// monotonic clock of the host, and a checker holds the promises against it.
//
// A [Stage] is a kind of Redis with the faults that go with it. It is played by one or more
// clusters at a time, each with servers, a fenced resource and a fleet of its own. A cluster goes
// from round to round: it waits until somebody leads, lets one fault strike, fixes what it broke
// and waits until somebody leads again.
//
// After the last fault, and every ten minutes, a cluster is left in peace for a time in which
// everything must come into order. The checker then asks for more than that nothing wrong has
// happened: somebody leads and every task runs within its bound, every living process is listed as
// active, and every subscription hears.
package fleet
