package main

// preferences breaks how the one is found that should lead.
var preferences = []bug{
	{name: "rule open-offer", in: redisstore, test: "TestLeaseScripts", breaks: "a transfer to the best candidate finds nobody if all priorities are 0", file: lua,
		old: "(priority ~= 0 or term.heir == ANYONE) -- rule open-offer", new: "priority ~= 0 -- rule open-offer"},
	{name: "open offer to those of before", test: "TestTransferToTheBest", breaks: "a transfer to the best candidate is to one that has died", file: lua,
		old: "    term.best = nil\n    call('HDEL', term_key, 'best', 'best_priority', 'best_until')\n  end\n  if heir then", new: "  end\n  if heir then"},
	{name: "open offer that nobody hears", test: "TestTransferToTheBest", breaks: "a transfer to the best candidate waits for the longest sleep of a follower", file: "election.go",
		old: "			in.vacant = in.vacant || h.Subject == lease.Anyone // whoever may lead is to ask\n", new: ""},
	{name: "open offer to the first", in: "internal/lease", test: "TestOpenOffer", breaks: "a transfer is not to the best candidate, but to the fastest", file: candidate,
		old: "	case now.Mono-c.opened < moment:\n", new: "	case false:\n"},
	{name: "open offer taken up by nobody", in: "internal/lease", test: "TestOpenOffer", breaks: "a term ends though nobody has asked for the lease", file: candidate,
		old: "		c.choose(now, r, a)\n	} else if a.Ready", new: "		c.choose(now, r, a)\n	}\n	if a.Ready"},
}
