package main

// memory breaks what a cluster remembers of itself.
var memory = []bug{
	{name: "rule told-once", in: redisstore, test: "TestLeaseScripts", breaks: "a release that is sent again ends its term twice in the history", file: lua,
		old: "if not term.released then -- rule told-once", new: "if true then"},
	{name: "beginning of a term not told", in: redisstore, test: "TestHistoryOfTerms", breaks: "the history does not say who led", file: lua,
		old: "tell_terms(terms_key, 'began', token, id, now)\n", new: ""},
	{name: "lapsed term not ended", in: redisstore, test: "TestHistoryOfTerms", breaks: "nobody learns when a leader died", file: lua,
		old: "if term.token > 0 and not term.released then\n  last", new: "if false then\n  last"},
	{name: "history that stops an election", in: redisstore, test: "TestHistoryOfTermsStopsNothing", breaks: "a key of another type where the history should be leaves a role without a leader", file: lua,
		old: "  redis.pcall('XADD', key, 'MAXLEN', TERMS,", new: "  call('XADD', key, 'MAXLEN', TERMS,"},
	{name: "history without an end", in: redisstore, test: "TestHistoryOfTermsIsCapped", breaks: "the history of a role grows for ever", file: lua,
		old: "local TERMS = 1000", new: "local TERMS = 1000000"},
	{name: "why a term ended not told", test: "TestReleaseSaysWhy", in: "internal/lease", breaks: "every term in the history ended unheard", file: candidate,
		old: "\tif c.state == Draining && nonce == c.nonce {\n\t\trequest.Why", new: "\tif false {\n\t\trequest.Why"},
	{name: "drain counted as leadership", test: "TestReleaseSaysWhy", in: "internal/lease", breaks: "the history shows no gap while the old leader drained", file: candidate,
		old: "c.reason.String(), now.Mono-c.ended", new: "c.reason.String(), 0"},
	{name: "former leader not named", test: "TestTerms", breaks: "nobody learns from the event whose place was taken", file: "election_status.go",
		old: "Token: r.leaderToken, Former: r.lastLeader}", new: "Token: r.leaderToken}"},
	{name: "gap of a term not known", test: "TestTermRecords", breaks: "nobody learns for how long a role had no leader", file: "terms.go",
		old: "\t\t\t\tlater.Gap = later.Began.Sub(at)\n", new: ""},
}
