// Package hook is how tenuretest reaches into package tenure without a public name for it.
package hook

// Control switches what grants the leases of a coordinator without Redis, and says which of its
// roles lead. It is safe for concurrent use.
type Control interface {
	Grant(granting bool)
	Leading() (some, all bool)
}

// NewControlled makes a *tenure.Coordinator out of tenure.Options whose leases are granted only
// while its Control says so. Package tenure sets it when it is loaded.
var NewControlled func(opts any) (coordinator any, control Control, err error)
