//go:build unix

// Package campaign plagues real processes on a real Redis: fleets of children that embed tenure as a user does, a fenced resource, and
// a nemesis that draws faults from a seed. It holds the promises against everything that the children and the resource saw, on one
// host's monotonic clock, and counts.
//
// A Stage is one kind of Redis with the faults that belong to it: a single server behind a fault proxy for each child, the same with
// TLS, with an ACL user, with too little memory, with a clock of its own, Sentinel, Cluster. Where a stage leaves the conditions of P1,
// overlaps are measured instead of failing.
package campaign
