package main

// hearing breaks the subscription to hints, the roll-call, and what a hostile publisher or server may send.
var hearing = []bug{
	{name: "a panic of the client not recovered", test: "TestFramesOfAServer", breaks: "a server that answers nonsense ends the process", file: "redisclient.go",
		old: "if value := recover(); value != nil {", new: "if value := any(nil); value != nil {"},
	{name: "subscription goes on after an error", test: "TestAnyErrorEndsTheSubscription", breaks: "the rest of a torn message, which anybody may publish, is read as protocol", file: "wire.go",
		old: "\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tw.received(message, tell)", new: "\t\tif redis.HasErrorPrefix(err, \"torn\") {\n\t\t\tcontinue\n\t\t}\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tw.received(message, tell)"},
	{name: "holder of any size", test: "TestHugeHolderIsCut", breaks: "a foreign client fills the memory of every process", file: lua,
		old: "if #text > MAX_ID then", new: "if false then"},
	{name: "silent subscription believed", test: "TestVirtualP7_SubscriptionThatDiesSilently", breaks: "a connection that a middlebox has dropped costs every hand-over its milliseconds, for good", file: "subscription.go",
		old: "case !h.stands, h.asking && (h.sent || h.pinged):", new: "case !h.stands:"},
	{name: "no renewal when the subscription stands again", test: "TestVirtualP1_ColdStandby", breaks: "a leader that missed the roll-call leads beside a newcomer", file: "election.go",
		old: "m.rollCall, m.connected = true, true", new: "m.connected = true"},
	{name: "hints named by the namespace", test: "TestSubscriptionOfRoles", breaks: "two deployments that share a lease do not hear each other: two lead after a FLUSHALL", file: "scripts.go",
		old: "return k.leaseKey(o) + \":events\"", new: "return k.lease(o.Role) + \":events\""},
	{name: "added roles not listened for", test: "TestSubscriptionOfRoles", breaks: "a role that is added while Run goes on hears nothing", file: "subscription.go",
		old: "if fresh := h.fresh(); len(fresh) > 0 {", new: "if fresh := h.fresh(); len(fresh) > 1000 {"},
	{name: "renewals travel alone", test: "TestRenewalsTravelTogether", breaks: "a roll-call of many roles takes longer than is waited for it: two lead", file: "renewals.go",
		old: "maxPipelined     = 200 ", new: "maxPipelined     = 1 "},
	{name: "refused publishing not reported", test: "TestChecksOfTheSubscription", breaks: "nobody hears that a right is missing", file: "subscription.go",
		old: "\tl.refused = err\n", new: ""},
	{name: "subscription at a replica", test: "TestSubscriptionGoesToTheMaster", breaks: "while replication lags no hint arrives, though the subscription stands: a FLUSHALL makes a second leader", file: "wire.go",
		old: "master, err := s.masterFor(ctx, key)\n\t\tif err == nil {\n\t\t\tpubsub", new: "master, err := s.rdb, error(nil)\n\t\tif err == nil {\n\t\t\tpubsub"},
	{name: "slow roll-call not reported", test: "TestRollCallThatIsTooSlowIsReported", breaks: "nobody hears that EmptyHistoryWait is too short for the roles of a process", file: "rollcalltimer.go",
		old: "slow := need > wait/2", new: "slow := need > 100*wait"},
	{name: "own channel is indispensable", test: "TestChecksOfTheSubscription", breaks: "an ACL from before the check takes all hints away", file: "subscription.go",
		old: "h.pending[h.own] && isRefusal(r.err) {", new: "h.pending[h.own] && false {"},
}
