package virtual

import "time"

// Catalog is what runs there are to ask for.
type Catalog struct {
	Profiles []Profile
	Quiet    []string // kinds of network faults
}

// Profile is a mix of faults.
type Profile struct {
	Name   string
	Class  string        // how fast its worlds live: steady (the default options) or hot
	Length time.Duration // of a run
}

// Steady is the class of worlds with the default options.
const Steady = "steady"

// EnvCatalog names the file that the test writes its Catalog to, instead of making a run.
const EnvCatalog = "TENURE_CATALOG"

// Named returns the profile of that name.
func (c *Catalog) Named(name string) (Profile, bool) {
	for _, p := range c.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}
