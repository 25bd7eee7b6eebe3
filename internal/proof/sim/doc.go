// Package sim simulates clusters for years: the decisions that package tenure really makes
// (internal/lease, internal/membership, internal/schedule) driven by discrete events against the Go
// models of its scripts (internal/proof/oracle), through faults of processes, networks, clocks and
// Redis.
//
// A Cluster is a Redis, or two for a while, and a few instances, each with a candidate for the
// lease, a beat loop and, while it leads, a sweeper and a scheduler. A Profile says what goes wrong
// in it and how often. A seed replays exactly: faults of machines are drawn one by one from
// generators of their own, so that leaving one out changes nothing about the others, which is what
// Shrink needs. An operator pauses tasks, and two versions of a program with different schedules
// run side by side.
//
// What is held against every run: no two processes believe to lead at one instant (P1), tokens
// strictly increase (P2), a request changes nothing of another campaign (P5), in calm profiles a
// crash and a hand-over take no longer than promised (P7), nobody that has beaten is swept and
// every dead instance is (P9), a slot is claimed once, none is lost, none runs before its jitter,
// no two runs of a task overlap, attempts are numbered, repeated as often as they may be and not
// before their pause, and what a policy asks no run for has none (P10), only an explicit refusal
// ends a term as lost (P12). Whenever nothing has gone wrong for longer than its bound, which is
// computed from the options and the state, somebody leads and goes on leading (P7), everybody asks,
// each instance is active (P9), every subscription hears, what is due of a task is taken up, and
// what runs is run by who leads (P10): see calm.go and tasks_check.go. Each run has quiet times, in
// its middle and at its end, in which that shows.
//
// Besides the listed profiles there are random ones: the seed draws the faults, their rates and the
// options, and what was drawn says whether it is within the conditions of P1 (see random.go).
//
// What it leaves to the full stack in virtual time (internal/proof/virtual): go-redis,
// goroutines, the loops around the decisions.
package sim
