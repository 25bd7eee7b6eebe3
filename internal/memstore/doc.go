// Package memstore is the store of a coordinator without Redis: the contract of package store, kept
// by one process for itself. Its leases are those of NewStandalone and, granted only on demand, of
// package tenuretest.
package memstore
