// Package proof is the map of what holds tenure to its promises. Nothing of the product imports
// anything below it; the promises are numbered in docs/guarantees.md, and what the engines have
// found is in docs/proof.md.
//
// # Engines
//
// Each has one name: its package, its command in cmd, its target of make and its section of
// docs/proof.md. scenario alone has no command: make test and make matrix run it. They share four
// words: a cluster is a Redis, or several, with all who use it; an instance is one process that
// embeds tenure; a fault is what is done to either; a checker holds what happened against the
// promises.
//
//   - sim: years of the decisions alone (internal/lease, internal/membership, internal/schedule) against the rules of the
//     scripts in Go, by discrete events. P1, P2, P5, P7, P9, P10, P12, and that nothing stands
//     still. The only engine that breaks the conditions of P1 one by one and counts what comes of
//     it.
//   - virtual: days of the full stack, with go-redis and the scripts in a real Lua, in virtual
//     time. P1 to P4, P7 to P12 under drawn faults; the directed tests beside it hold one promise
//     each. A seed replays the very same history.
//   - scenario: one directed fault at a time on real servers, Sentinels and Clusters, some of them
//     between real processes. P1 to P8, P11 and P12.
//   - fleet: hours of processes that embed tenure as a service does, on real servers, under a
//     nemesis. P1 to P4, P7 to P11, and what they cost in time.
//
// Two more hold the engines: bugs breaks every rule of the product, and of the checkers, by hand,
// and mutate by machine; a named test, or any short one, must notice. matrix runs the suites on
// other servers, shake runs short tests while goroutines yield at random.
//
// # What they share
//
//   - oracle: the rules of the scripts in Go. The tests of the scripts hold the two together.
//   - simnet: a network and clocks in virtual time, and what can happen to messages.
//   - redistest: real servers, Sentinels, Clusters, machines, proxies, and child processes.
//   - hostclock: the one clock that all processes of a host share.
//   - overlay: test binaries of a product with files exchanged.
//   - house: tests of the order of files, of the public names, and of the documents.
//   - surface: what a package shows to its importers, for TestSurface and tools/release.
//   - figures: what engines write, with the commit and the machine that it is of.
//
// # Where a new test goes
//
// Into the cheapest room that can fail for it. What only decides is a row and a property in its
// pure package, what a loop does is a test of the root in a bubble. What the network can do is a
// fault of virtual, what only a real server can do is a scenario, what only processes show belongs
// to fleet. CONTRIBUTING.md has the table. With each rule comes an entry in cmd/bugs.
package proof
