package main

// rules break what the lease scripts and the candidate remember across failovers, clock steps and mixed options.
var rules = []bug{
	{name: "foreign holder reported under our own token", test: "TestLeaseScripts", breaks: "a foreign program that took the lease over is reported with the token of the old leader", file: lua,
		old: "tenured_by(term, holder) and 'taken' or 'foreign', holder)", new: "'taken', holder)"},
	{name: "since key lost at the adoption", test: "TestAdoptionWithoutASinceKey", breaks: "a term says that it began in 1970", file: lua,
		old: "  if since == 0 then since = math.floor(now / 1000) end\n", new: ""},
	{name: "since key of another type stops the election", test: "TestSinceKeyOfAnotherTypeStopsNothing", breaks: "a key that no decision rests on leaves the role without a leader", file: lua,
		old: "if not string.find(text.err, 'WRONGTYPE', 1, true) then refuse(", new: "if true then refuse("},
	{name: "empty holder taken for none", test: "TestHolderOfAnyName", breaks: "a foreign client with an empty value holds the lease, and nobody is said to", file: "election.go",
		old: "case reply.Verdict != lease.Held:", new: "case reply.holder == \"\":"},
}
