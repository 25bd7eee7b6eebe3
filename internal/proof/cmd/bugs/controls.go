package main

// controls breaks drains, and commands that come from elsewhere.
var controls = []bug{
	{name: "drain that the registry does not show", test: "TestDrain", breaks: "other instances go on counting on one that drains", file: "drain.go",
		old: "	c.registry.drain(draining)\n", new: ""},
	{name: "drain by the word of the application", test: "TestDrain", breaks: "an instance that is drained for maintenance leads again as soon as another resigns", file: "election_loop.go",
		old: "eligible := !l.barred.Load() && !l.report.draining;", new: "eligible := !l.barred.Load();"},
	{name: "drain makes eligible", test: "TestDrainOfTheIneligible", breaks: "an instance that may never lead does after a drain", file: "election_loop.go",
		old: "eligible := !l.barred.Load() && !l.report.draining;", new: "eligible := !l.report.draining;"},
	{name: "drain that does not wait", test: "TestDrain", breaks: "maintenance begins while leader work runs", file: "election_loop.go",
		old: "	case !l.cand.Resting():\n		return\n", new: ""},
	{name: "drain without an end", test: "TestDrainIsBounded", breaks: "a drain waits for ever for work that hangs", file: "election_loop.go",
		old: "	case l.abandoned && l.cand.State() == lease.Draining:\n		overrun =", new: "	case false:\n		overrun =", hangs: true},
	{name: "drain that waits though it was ended", test: "TestDrainEndedMeanwhile", breaks: "a call of Drain hangs for ever because somebody undrained", file: "election_loop.go",
		old: "	case l.report.eligible: // the drain was ended meanwhile\n", new: "	case l.report.eligible:\n		return\n", hangs: true},
	{name: "drain inside work waits for itself", test: "TestDrainInsideWork", breaks: "leader work that drains its process never returns", file: "election.go",
		old: "e.phase.Load() != phaseRunning || workOf(ctx, &e.loop.current) != nil {", new: "e.phase.Load() != phaseRunning {"},
	{name: "drain after the stop", test: "TestDrainIsBounded", breaks: "Undrain of a process that stops makes its record active", file: "drain.go",
		old: "	if c.phase.Load() == phaseStopped {\n		return ErrStopped\n	}\n	if c.draining", new: "	if c.draining"},
	{name: "undrained, but never active", test: "TestDrainOfTheIneligible", breaks: "after a drain an instance is shown as joining for ever", file: "heartbeat.go",
		old: "	r.taken.Store(true)\n", new: ""},
}
