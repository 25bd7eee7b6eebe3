// Package membership holds the decisions of the registry as pure values: facts go in (an answer of
// Redis, its error, a wish to be heard at once), requests come out (what is to be asked next, how
// long may we sleep).
//
// Beat decides when an instance sends its heartbeats, and until when each of them may take effect.
// Sweep decides what the leader looks at, whom it marks, whom it removes, and what it adopts.
//
// Nothing here reads a clock, talks to Redis or starts a goroutine. The registry of package tenure
// drives it on a real clock, the simulators on a virtual one.
package membership
