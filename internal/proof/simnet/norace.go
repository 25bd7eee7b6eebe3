//go:build !race

package simnet

// Race tells whether the race detector is on: it disturbs the order of goroutines, and a seed need
// not replay exactly.
const Race = false
