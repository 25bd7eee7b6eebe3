package main

// claims break what a row of docs/guarantees.md says, for a test that the row names. A rule that
// stands in promises or guards stands here again if the row names another test: each of them
// must be able to fail.
var claims = []bug{
	{name: "P5 late acquire of a dead process", test: "TestVirtualP5_LateRequestsOfADeadProcessChangeNothing", in: virtual, breaks: "a request of a process that is gone takes the lease for nobody", file: lua,
		old: "if not_after > 0 and now > not_after then -- rule not-after\n  note_token(term_key, read_term(term_key, now), floor)",
		new: "if false then -- rule not-after\n  note_token(term_key, read_term(term_key, now), floor)"},
	{name: "P5 queued release of an old campaign", test: "TestVirtualP5_StaleRequestsOfAPausedRedisHarmNobody", in: virtual, breaks: "a Redis that was frozen takes the lease away from its new leader when it wakes", file: lua,
		old: "if term.nonce == nonce and (token == 0 or term.token == token) then\n  call('HDEL', term_key, '-')", new: "if true then\n  call('HDEL', term_key, '-')"},
	{name: "P1 roll-call never sent", test: "TestVirtualP1_RollCallMakesAReachableLeaderRenew", in: virtual, breaks: "FLUSHALL makes a second leader beside one that could be asked", file: lua,
		old: "  publish(ARGV[10], 'roll-call', ARGV[11])\n", new: ""},
	{name: "P1 reclaim after FLUSHALL", test: "TestVirtualP2_FlushAllWithAReachableLeaderKeepsItAndItsToken", in: virtual, breaks: "FLUSHALL deposes the leader", file: lua,
		old: "if lost_data and mine and ARGV[9] ~= '1' then -- rule reclaim", new: "if false then -- rule reclaim"},
	{name: "P1 EmptyHistoryWait not honoured", test: "TestVirtualP1_FlushAllWithAnUnreachableLeaderNeedsEmptyHistoryWait", in: virtual, breaks: "EmptyHistoryWait protects nobody", file: lua,
		old: "local hold = math.max(term.hold, term.asked + empty_wait)", new: "local hold = math.max(term.hold, term.asked + 1)"},
	{name: "P1 reclaim after a failover", test: "TestVirtualP1_FailoverWithoutTheLastWritesKeepsTheLeader", in: virtual, breaks: "a failover of Redis deposes the leader", file: lua,
		old: "if lost_data and mine and ARGV[9] ~= '1' then -- rule reclaim", new: "if false then -- rule reclaim"},
	{name: "P1 guard after a failover", test: "TestVirtualP1_FailoverWithoutTheLastWritesAndLeaderHoldsOff", in: virtual, breaks: "a failover of Redis makes a second leader", file: lua,
		old: "term.hold = math.max(term.hold, arm) -- rule guard", new: "-- rule guard"},
	{name: "P1 vacant after a DEL", test: "TestVirtualP1_DeletedLeaseDeposesWithoutAnOverlap", in: virtual, breaks: "after an operator's DEL nobody leads for the rest of the lease", file: lua,
		old: "  elseif term.ends > now and not holder then", new: "  elseif false then"},
	{name: "P1 TTL of another not heeded", test: "TestVirtualP1_HoldOffIsTheLongestTTLKnown", in: virtual, breaks: "the same, though the candidate says what it knows", file: lua,
		old: "math.max(tonumber(ARGV[6]), term.ttl) -- rule longest-ttl", new: "ttl -- rule longest-ttl"},
	{name: "P7 hold-off by a candidate without INFO", test: "TestVirtualP7_OneCandidateWithoutInfo", in: virtual, breaks: "a hand-over costs a lease wherever one candidate may not call INFO", file: lua,
		old: "local elsewhere = origin ~= '' and origin ~= term.origin -- rule unknown-origin", new: "local elsewhere = origin ~= term.origin -- rule unknown-origin"},
	{name: "P1 two processes with one ID", test: "TestVirtualP1_TwoProcessesWithOneIDOneLeads", in: virtual, breaks: "of two processes with one ID both lead", file: lua,
		old: "if holder == id and term.nonce == nonce and term.hold", new: "if holder == id and term.hold"},
	{name: "P1 foreign client overridden", test: "TestVirtualP1_ForeignClientOnTheSameKeyNeverBoth", in: virtual, breaks: "a client in another language and we lead at once", file: lua,
		old: "if holder then\n  note_token(", new: "if holder and tenured then\n  note_token("},
	{name: "P2 hold ahead of a clock set back", test: "TestVirtualP2_ClockStepBackHoldsUpNoLongerThanAHoldOff", in: virtual, breaks: "a clock of Redis that is set back stops the election", file: lua,
		old: "if term.hold > now + furthest then", new: "if false then"},
	{name: "P2 end ahead of a clock set back", test: "TestVirtualP2_ClockStepBackHoldsUpNoLongerThanAHoldOff", in: virtual, breaks: "the same through the end of a lease that vanished", file: lua,
		old: "if term.ends > now + hold_off then", new: "if false then"},
	{name: "P2 lease ahead of a clock set back", test: "TestVirtualP2_ClockStepBackHoldsUpNoLongerThanAHoldOff", in: virtual, breaks: "the same through the expiry of the lease", file: lua,
		old: "if tenured and (left < 0 or left > hold_off) then", new: "if false then"},
	{name: "P2 tokens across a clock step", test: "TestVirtualP2_ClockStepForwardKeepsTokensIncreasing", in: virtual, breaks: "a leader after a step of Redis's clock has the token of the one before", file: lua,
		old: "local token = math.max(term.token + 1, floor + 1, term.known + 1, now)", new: "local token = math.max(term.token, 1)"},
	{name: "P6 own lease not adopted", test: "TestVirtualP6_LostReplyOfAcquireIsAdopted", in: virtual, breaks: "a lost reply of an acquire costs a whole lease", file: lua,
		old: "if holder == id and term.nonce == nonce and term.hold <= now", new: "if false and term.hold <= now"},
	{name: "P7 release that deletes nothing", test: "TestVirtualP7_HandoverWithoutHintsTakesTheFollowersWakeUp", in: virtual, breaks: "a hand-over takes the rest of the lease", file: lua,
		old: "try('DEL', KEYS[1], KEYS[2])", new: "try('DEL', KEYS[2])"},
	{name: "P1 script apart from its rule", in: redisstore, test: "TestLeaseScriptsAgreeWithTheOracle", breaks: "the simulated years hold rules that the script does not", file: lua,
		old: "if term.token < floor then -- rule memory", new: "if false then -- rule memory"},
	{name: "P9 script apart from its rule", in: redisstore, test: "TestRegistryScriptsAgreeWithTheOracle", breaks: "the same of the registry", file: lua,
		old: "if silence >= down and removable > 0 then", new: "if removable > 0 then"},
	{name: "P10 script apart from its rule", in: redisstore, test: "TestTaskScriptsAgreeWithTheOracle", breaks: "the same of the tasks", file: lua,
		old: "if task.run == run then return task_answer('claimed', now, task) end -- rule same-claim", new: "-- rule same-claim"},
	{name: "beat on a full Redis", test: "TestRegistryOnAFullRedis", breaks: "a full Redis removes every instance from the registry", file: lua,
		old: "call('PEXPIRE', KEYS[1], ARGV[5] * 1000) -- a full Redis allows it, and then the writes after it\n", new: ""},
	{name: "refusal that names no command", in: redisstore, test: "TestNopermNamesCommandAndFix", breaks: "the operator of Redis does not learn which right is missing", file: lua,
		old: "  if type(reply) == 'table' and reply.err then refuse(reply.err .. ' [' .. command .. ' ' .. key .. ']') end\n  return reply", new: "  if type(reply) == 'table' and reply.err then refuse(reply.err) end\n  return reply"},
	{name: "wrong type that names no key", in: redisstore, test: "TestWrongTypeNamesKeyCommandAndFix", breaks: "no error says which key is in the way", file: lua,
		old: "  if type(reply) == 'table' and reply.err then refuse(reply.err .. ' [' .. command .. ' ' .. key .. ']') end\n  return reply", new: "  if type(reply) == 'table' and reply.err then refuse(reply.err) end\n  return reply"},

	{name: "P1 clock rates without a margin", test: "TestVirtualP1_ClockRates", in: virtual, breaks: "clocks that run apart within the margin make two leaders", file: leaseGo,
		old: "return t.TTL - t.Drift - Rounding", new: "return t.TTL + t.Guard()"},
	{name: "P4 partitioned leader without a guard", test: "TestVirtualP4_PartitionedLeaderIsCancelledBeforeItsLeaseEnds", in: virtual, breaks: "the work of a leader that is cut off hears of it when another may lead", file: leaseGo,
		old: "return l.EndsIn(now) - l.Guard", new: "return l.EndsIn(now)"},
	{name: "P7 follower sleeps without bound", test: "TestVirtualP7_HandoverWithoutHintsTakesTheFollowersWakeUp", in: virtual, breaks: "a lost hint costs a hand-over the rest of the lease", file: candidate,
		old: "c.wake = min(now.Mono+wait, c.regular)", new: "c.wake = now.Mono + wait"},
	{name: "P7 follower sleeps past the lease", test: "TestVirtualP7_PartitionedLeaderIsReplacedWithinTheLease", in: virtual, breaks: "a crash costs more than the lease", file: candidate,
		old: "wait := a.Wait + wakeLag +", new: "wait := a.Wait + 2*time.Second +"},
	{name: "late answer taken for the one awaited", test: "TestCandidateProperties", in: "internal/lease", breaks: "an answer to a request that was given up prolongs the term", file: candidate,
		old: "if !c.flying || c.flight.Seq != r.Seq {", new: "if !c.flying {"},
	{name: "P4 silence taken for a renewal", test: "TestVirtualP4_LostRepliesEndTheTermThoughRedisShowsTheLease", in: virtual, breaks: "a leader whose replies are lost leads on", file: candidate,
		old: silence, new: taken},
	{name: "P6 late answer of one's own campaign", test: "TestP6_AcquireReplySlowerThanTheLease", breaks: "a late answer gives the lease of the term away that is on", file: candidate,
		old: "over := r.Nonce != c.nonce || c.state == Stopped", new: "over := true"},
	{name: "P7 deaf candidate goes on", test: "TestVirtualP7_DeafCandidateDoesNotHoldTheElectionUp", in: virtual, breaks: "a candidate whose replies are slow keeps the lease from everybody", file: candidate,
		old: "if now.Mono-c.silent >= c.timing.TTL {", new: "if false {"},
	{name: "P6 silence counted from the last answer", test: "TestP6_OneLostReplyEndsNoCampaign", in: "internal/lease", breaks: "one lost reply ends a campaign that had nothing to ask for a while: what Redis has granted is given back", file: candidate,
		old: "c.unknown, c.silent, c.trip = 0, past, now", new: "c.unknown, c.silent, c.trip = 0, now.Mono, now"},
	{name: "P6 suspension taken for silence", test: "TestP6_OneLostReplyEndsNoCampaign", in: "internal/lease", breaks: "a process that was suspended while it asked gives its campaign up", file: candidate,
		old: "c.silent = max(r.Sent.Mono, now.Mono-r.Bound)", new: "c.silent = r.Sent.Mono"},
	{name: "P1 TTL of another not learned", test: "TestVirtualP1_HoldOffIsTheLongestTTLKnown", in: virtual, breaks: "after a loss of data a candidate with a short lease leads beside a leader with a long one", file: candidate,
		old: "if a.TTL > 0 && a.TTL <= MaxTTL {", new: "if false {"},
	{name: "hints not coalesced by an elector", test: "TestFloodOfHintsIsNoFloodOfRequests", breaks: "a flood of hints is a flood of requests", file: candidate,
		old: "if at := max(now.Mono, c.heeded+hintSpacing); at < c.wake {", new: "if at := now.Mono; at < c.wake {"},
	{name: "P11 stop forgets what it may hold", test: "TestP11_StopAtAnyMoment", breaks: "a process that is stopped while it asks leaves a lease behind", file: candidate,
		old: "\tif c.uncertain {\n\t\tc.giveBack(now, c.nonce, 0)\n\t}\n\tc.nonce, c.uncertain, c.state", new: "\tc.nonce, c.uncertain, c.state"},

	{name: "FailFast that says nothing", test: "TestFailFast", breaks: "Run ends at once, and its error does not say why", file: "election_loop.go",
		old: "		l.err = l.report.lastErr\n", new: "		defer func() { l.err = nil }()\n		l.err = l.report.lastErr\n"},
	{name: "P3 next leader with the same token", in: scenario, test: "TestP3P4_FrozenLeaderWakesDeposed", breaks: "a resource that is fenced takes the write of a deposed leader", file: lua,
		old: "local token = math.max(term.token + 1, floor + 1, term.known + 1, now)", new: "local token = math.max(term.token, 1)"},
	{name: "P4 exhausted pool ends no term", in: scenario, test: "TestP4_ExhaustedPool", breaks: "a leader that gets no connection leads on", file: "internal/lease/lease.go",
		old: "return t.TTL - t.Drift - Rounding }", new: "return 4 * t.TTL }"},
	{name: "P4 black hole taken for a renewal", in: scenario, test: "TestP4_BlackHoleBehindADefaultClient", breaks: "a leader behind a half-open connection leads on", file: "internal/lease/lease.go",
		old: "return t.TTL - t.Drift - Rounding }", new: "return 4 * t.TTL }"},
}

const (
	scenario   = "internal/proof/scenario"
	redisstore = "internal/redisstore"
	virtual    = "internal/proof/virtual"
)

// silence is where a candidate gives up a request that nobody has answered, taken what it becomes:
// as if it had been granted.
const (
	silence = "\t\tc.flying = false\n\t\tc.failed(now, c.flight)\n"
	taken   = "\t\tc.flying = false\n\t\tc.lease.Sent = c.flight.Sent\n\t\tif c.state == Leading {\n\t\t\treturn Renewed\n\t\t}\n\t\tc.failed(now, c.flight)\n"
)
