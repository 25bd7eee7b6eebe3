//go:build unix

package fleet

import (
	"slices"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// processFaults are what happens to the members of a fleet.
var processFaults = []fault{
	{faultKill, 6, func(a *arena) Strike {
		s := a.victim()
		s.kill()
		a.awaitOther(s, a.ttls(2, 2))
		return Strike{Targets: names(s)}
	}},
	{"kill a follower", 1, func(a *arena) Strike {
		s := a.follower()
		s.kill()
		a.rest(0, a.ttls(1, 1))
		return Strike{Targets: names(s)}
	}},
	{"freeze the leader past its lease", 4, func(a *arena) Strike {
		s := a.victim()
		s.freeze()
		a.wait(a.ttls(1.1, 2.5))
		s.thaw()
		a.rest(0, a.ttls(0.3, 0.3))
		return Strike{Stopped: true, Targets: names(s)}
	}},
	{"freeze the leader for a moment", 1, func(a *arena) Strike {
		s := a.victim()
		s.freeze()
		a.wait(a.ttls(0.05, 1))
		s.thaw()
		return Strike{Stopped: true, Targets: names(s)}
	}},
	{faultStop, 5, func(a *arena) Strike {
		s := a.victim()
		s.stop()
		a.awaitOther(s, a.ttls(2, 2))
		return Strike{Targets: names(s)}
	}},
	{faultResign, 4, func(a *arena) Strike {
		s := a.victim()
		s.resign()
		a.awaitOther(s, a.ttls(1, 1))
		return Strike{}
	}},
	{"roll out", 1, func(a *arena) Strike { // one after the other, as a deployment does
		for _, s := range a.seats {
			s.stop()
			a.rest(0, a.ttls(0.3, 0.3))
			s.start()
		}
		return Strike{Targets: names(a.seats...)}
	}},
	{"stop all, start all", 1, func(a *arena) Strike {
		for _, s := range a.seats {
			s.ask()
		}
		for _, s := range a.seats {
			s.awaitStop()
		}
		return Strike{Targets: names(a.seats...)}
	}},
	{"busy processors", 1, func(a *arena) Strike {
		err := redistest.Do(func(t redistest.TB) {
			redistest.StartChild(t, spinnerChild)
			a.wait(a.ttls(1, 3))
		})
		if err != nil {
			a.t.Errorf("fleet: %v", err)
		}
		return Strike{All: true}
	}},
}

// turnover is what has another member lead, and nothing else.
var turnover = pick(processFaults, faultKill, faultStop, faultResign)

// pick picks faults by name.
func pick(of []fault, names ...string) (picked []fault) {
	for _, f := range of {
		if slices.Contains(names, f.name) {
			picked = append(picked, f)
		}
	}
	return picked
}
