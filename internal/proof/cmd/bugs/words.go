package main

// words breaks what the public words of elections, instances and options say.
var words = []bug{
	{name: "a namespace of nobody", test: "TestNamespaceIsRequired", breaks: "two services that forgot their namespace elect one leader between them", file: "options.go",
		old: "	if name == \"\" && field == \"Namespace\" {", new: "	if name == \"\" {\n		return\n	}\n	if name == \"\" && field == \"Namespace\" {"},
	{name: "work that is done ends the term", test: "TestWorkThatIsDone", breaks: "Run(ctx, warmCache, loop) loses its term again and again", file: "election_loop.go",
		old: "	case e.err == nil: // it is done: the term goes on, even without any work\n",
		new: "	case cause == nil && e.err == nil:\n		l.apply(now, l.cand.End(now, lease.Resigned), ErrResigned)\n	case e.err == nil:\n"},
	{name: "work that resigns has failed", test: "TestP8_OrderOfTheEnd", breaks: "leader work cannot resign without being taken for broken", file: "election_work.go",
		old: "			e.resigns = matches(err, ErrResigned)\n", new: ""},
	{name: "a late resignation is a failure", test: "TestWorkThatResignsAsItIsTold", breaks: "a deploy logs an error of leader work that resigns right then", file: "election_loop.go",
		old: "(e.heeded || e.resigns):", new: "e.heeded:"},
	{name: "a penalty that stays a second", test: "TestPenaltyGrows", in: "internal/lease", breaks: "work that is broken takes the lead once a second, for ever", file: candidate,
		old: "	if why == Failed {\n		c.failures++\n	}\n", new: "	c.failures = 1\n"},
	{name: "a penalty for life", test: "TestPenaltyGrows", in: "internal/lease", breaks: "one bad hour makes each later failure cost half a minute", file: candidate,
		old: "		c.failures = 0\n", new: ""},
	{name: "half a minute for one failure", test: "TestFailedWorkMovesOn", breaks: "a service of one process does nothing for half a minute after one error", file: candidate,
		old: "		pause = Backoff(leastBack, c.failures, c.timing.Penalty)\n", new: "		pause = c.timing.Penalty\n"},
	{name: "a hold-off that is off", test: "TestSafetyOff", breaks: "HoldOff that is switched off names a negative time to Redis", file: "options.go",
		old: "HoldOff: max(o.Safety.HoldOff, 0), Margin", new: "HoldOff: o.Safety.HoldOff, Margin"},
	{name: "a failover margin that is off", test: "TestSafetyOff", breaks: "FailoverMargin that is switched off believes in a lease after it has ended at an old master", file: "options.go",
		old: "		Margin:  max(o.Safety.FailoverMargin, 0),", new: "		Margin:  o.Safety.FailoverMargin,"},
}
