package main

// liveness breaks what should happen after the last fault: a leader, a run, a beat, a subscription that hears.
var liveness = []bug{
	{name: "lost answer waited for", test: "TestCalmIsNoticedWhereItIsWrong", in: "internal/sim", breaks: "a candidate whose question had no answer never asks again", file: candidate,
		old: "if c.flying && now.Mono-c.flight.Sent.Mono >= c.flight.Bound {", new: "if c.flying && c.state != Following && now.Mono-c.flight.Sent.Mono >= c.flight.Bound {"},
	{name: "stands back for ever", test: "TestEveryRunEndsCalm", in: "internal/sim", breaks: "an instance whose work failed never campaigns again", file: candidate,
		old: "pause = c.timing.Penalty + c.part(c.timing.Penalty/10)", new: "pause = MaxTTL"},
	{name: "calm without a leader not noticed", test: "TestCalmIsNoticedWhereItIsWrong", in: "internal/sim", breaks: "the simulator is content with nothing happening", file: "internal/sim/calm.go",
		old: "	if leader == nil {\n", new: "	if false {\n"},
	{name: "deaf subscription not noticed", test: "TestCalmIsNoticedWhereItIsWrong", in: "internal/sim", breaks: "the simulator does not ask whether subscriptions hear", file: "internal/sim/calm.go",
		old: "if p.listening() && (p.ear.dead || p.ear.at != w.master) {", new: "if false {"},
	{name: "change in the calm not noticed", test: "TestCalmIsNoticedWhereItIsWrong", in: "internal/sim", breaks: "the simulator is content with a leader that changes for no reason", file: "internal/sim/calm.go",
		old: "c.token != 0 && c.token != token", new: "false && c.token != token"},
	{name: "named token not noticed", test: "TestP2_DrawnProfilesFindWhatNoListHad", in: "internal/sim", breaks: "the simulator takes every lost token for the exception of P2", file: "internal/sim/checks.go",
		old: "if a.Token <= known {", new: "if false {"},
	{name: "machines not cut off", test: "TestP1P2P3P7_PartitionedMachinesUnderSentinel", in: "internal/realtest", breaks: "a partition of machines that cuts nobody off would show nothing", file: "internal/redistest/lan_linux.go",
		old: "				if to == \"\" {\n", new: "				if true {\n"},
	{name: "promoted replica of a Cluster trusted", test: "TestP1P2P3P7_PartitionedMachinesUnderCluster", in: "internal/realtest", breaks: "the majority of a partitioned Cluster elects while the minority renews", file: lua,
		old: "local elsewhere = origin ~= '' and origin ~= term.origin -- rule unknown-origin", new: "local elsewhere = term.origin == '' -- rule unknown-origin"},
	{name: "virtual time, no leader not noticed", test: "TestVirtualNoticesBrokenScripts", breaks: "the full stack in virtual time is content when nobody leads", file: "virtual_calm_test.go",
		old: "leader == nil && (foreign == nil || ", new: "foreign != nil && (foreign == nil || "},
	{name: "virtual time, no run not noticed", test: "TestVirtualNoticesBrokenScripts", breaks: "the full stack in virtual time is content when no task runs", file: "virtual_calm_test.go",
		old: "t.began.IsZero() || late > patience", new: "false && late > patience"},
	{name: "virtual time, deaf not noticed", test: "TestVirtualNoticesDeafSubscriptions", breaks: "the full stack in virtual time is content with subscriptions that hear nothing", file: "virtual_calm_test.go",
		old: "instance.life.Load() != nil && !w.net.Hears(instance.name)", new: "false"},
}
