package main

// mutants are changes by hand that once survived every test.
var mutants = []bug{
	{name: "old work resigns the next term", test: "TestResignByTheWorkOfATermThatIsOver", breaks: "work that outlived its term ends the term that this process has won since", file: "election.go",
		old: "(!t.leading() || own != t && ", new: "(!t.leading() || false && "},
	{name: "first timer at the deadline", test: "TestP4_FirstTimerIsAtTheCancelPoint", breaks: "the first term of a process is cancelled when another may lead already", file: "term.go",
		old: "t.start(parent, term, first, first.CancelIn(readClock()))", new: "t.start(parent, term, first, first.EndsIn(readClock()))"},
	{name: "end by a reader not noticed", test: "TestP4_LoopEndsATermThatAReaderHasEnded", breaks: "a term that IsLeader has ended is not given back before the next renewal", file: "election_loop.go",
		old: "if t := l.term; t != nil && t.lease.Load() == nil {", new: "if false {"},
	{name: "unanswered acquire forgotten at a refusal", in: "internal/lease", test: "TestStop", breaks: "a process that stops leaves a lease behind that an earlier request of it is granted later", file: candidate,
		old: "\tcase Held, RollCall:\n\t\twait", new: "\tcase Held, RollCall:\n\t\tc.uncertain = false\n\t\twait"},
	{name: "estimate from an older request", in: "internal/lease", test: "TestEstimateIsFromTheYoungestRequest", breaks: "an answer out of order lets a late request take effect for longer", file: candidate,
		old: "trip <= c.timing.Attempt() && r.Sent.Mono >= c.clock.at.Mono {", new: "trip <= c.timing.Attempt() {"},
	{name: "late health is health", test: "TestLateAnswerOfAHealthCheckIsAFailure", breaks: "a process whose health check takes too long campaigns", file: "election_work.go",
		old: "\t\tif err == nil {\n\t\t\terr = errHealth\n\t\t}\n", new: ""},
	{name: "health check not stopped", test: "TestP11_StopEndsTheHealthCheck", breaks: "Run waits out ShutdownTimeout and says ErrDrainTimeout wherever there is a health check", file: "election_loop.go",
		old: "	l.apply(now, l.cand.Stop(now), cause)\n	l.unwatch()\n", new: "	l.apply(now, l.cand.Stop(now), cause)\n"},
	{name: "subscription tried without a pause", test: "TestSubscriptionPausesGrowAndAreBounded", in: redisstore, breaks: "a Redis that is down is asked for a subscription twenty times a second by every process", file: "internal/redisstore/subscription.go",
		old: "pause = min(2*pause, mostPause)", new: "pause = min(pause, mostPause)"},
	{name: "subscription tried ever more rarely", test: "TestSubscriptionPausesGrowAndAreBounded", in: redisstore, breaks: "after an outage of Redis the hints stay away for as long again", file: "internal/redisstore/subscription.go",
		old: "pause = min(2*pause, mostPause)", new: "pause = 2 * pause"},
}
