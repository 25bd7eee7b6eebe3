//go:build !race

package simnet

// Race reports whether the race detector is on: it disturbs the order of goroutines, and a seed
// need not replay exactly.
const Race = false
