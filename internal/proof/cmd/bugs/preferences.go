package main

// preferences breaks how the one is found that should lead.
var preferences = []bug{
	{name: "rule open-offer", in: redisstore, test: "TestLeaseScripts", breaks: "a transfer to the best candidate finds nobody if all priorities are 0", file: lua,
		old: "(rank ~= 0 or term.heir == ANYONE) -- rule open-offer", new: "rank ~= 0 -- rule open-offer"},
	{name: "open offer to those of before", test: "TestTransferToTheBest", breaks: "a transfer to the best candidate is to one that has died", file: lua,
		old: "    term.best = nil\n    call('HDEL', term_key, 'best', 'best_rank', 'best_until')\n  end\n  if heir then", new: "  end\n  if heir then"},
	{name: "open offer that nobody hears", test: "TestTransferToTheBest", breaks: "a transfer to the best candidate waits for the longest sleep of a follower", file: "election.go",
		old: "			in.vacant = in.vacant || h.Subject == lease.Anyone // whoever may lead is to ask\n", new: ""},
	{name: "open offer to the first", in: "internal/lease", test: "TestOpenOffer", breaks: "a transfer is not to the best candidate, but to the fastest", file: candidate,
		old: "	case now.Mono-c.opened < moment:\n", new: "	case false:\n"},
	{name: "open offer taken up by nobody", in: "internal/lease", test: "TestOpenOffer", breaks: "a term ends though nobody has asked for the lease", file: candidate,
		old: "		c.choose(now, r, a)\n	} else if a.Ready", new: "		c.choose(now, r, a)\n	}\n	if a.Ready"},
	{name: "newer version not preferred", test: "TestRollingDeploy", breaks: "a rolling deploy changes the leader again and again", file: "election_loop.go",
		old: "		l.preference.Newer = l.addresses.newer(id)\n", new: "		_ = id\n"},
	{name: "newer version known too late", test: "TestNewerAsksAtOnce", breaks: "a rolling deploy that is faster than RetryInterval changes the leader again and again", file: "election_loop.go",
		old: "	if was.Newer == 0 {\n		l.cand.Vacant(now)\n	}\n", new: ""},
	{name: "newer than its own version", test: "TestNewer", breaks: "whatever started last is preferred, such as an instance that crashes again and again", file: "registry_status.go",
		old: " || leader.version == r.opts.Version {", new: " {"},
	{name: "older version preferred", test: "TestNewer", breaks: "instances that are about to be replaced come to lead", file: "registry_status.go",
		old: "	return max(time.Unix(started, 0).Sub(leader.started), 0)\n", new: "	return time.Unix(started, 0).Sub(leader.started).Abs()\n"},
	{name: "newer, without news of it", test: "TestNewerIsKnownSoon", breaks: "a new instance learns from the next answer about the lease that it is newer than the leader", file: "registry_status.go",
		old: "		r.elections.compared()\n", new: ""},
	{name: "order above the version", in: "internal/lease", test: "TestRank", breaks: "what only decides between equals decides more", file: "internal/lease/rank.go",
		old: "(Rank(p.Priority)*newerSpan+newer)*(MaxOrder+1) + Rank(min(max(p.Order, 0), MaxOrder))", new: "(Rank(p.Priority)*newerSpan+newer)*(MaxOrder+1) + Rank(max(p.Order, 0))"},
	{name: "tie-break preempts", in: "internal/lease", test: "TestRank", breaks: "a leader gives way to one that is better only between equals", file: "internal/lease/rank.go",
		old: "	levelSpan = newerSpan * (MaxOrder + 1)\n", new: "	levelSpan = newerSpan\n"},
}
