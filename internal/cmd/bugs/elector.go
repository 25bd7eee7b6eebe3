package main

// elector breaks what an elector reports, which clients and options it takes, and how it stands back.
var elector = []bug{
	{name: "error of Process alone", test: "TestAsynchronousClient", breaks: "with an asynchronous AutoPipeliner nobody ever leads", file: "scripts.go",
		old: "	return cmd.Err()\n", new: "	return nil\n"},
	{name: "unknown client trusted with any key", test: "TestClients", breaks: "a cluster behind an AutoPipeliner refuses every call", file: "scripts.go",
		old: "	default: // an AutoPipeliner, or a wrapper of the application's own: either may stand before a cluster\n		s.spread = true\n", new: ""},
	{name: "question past its context", test: "TestQuestionsHeedTheirContext", breaks: "a handler that asks who leads hangs for as long as the client does", file: "questions.go",
		old: "	case <-ctx.Done():\n	}\n	q.left", new: "	}\n	q.left"},
	{name: "questions without a bound", test: "TestQuestionsThatHangAreBounded", breaks: "each request to a service behind a black hole leaves a goroutine", file: "questions.go",
		old: "left >= maxQuestions", new: "false"},
	{name: "lease key of a neighbour", test: "TestLeaderKeysShareNothing", breaks: "two roles overwrite each other's keys", file: "scripts.go",
		old: "		if slices.Contains(k.parts(other), part) {", new: "		if slices.Contains([]string{other}, part) {"},
	{name: "lease key of the registry", test: "TestLeaderKeysShareNothing", breaks: "an election deletes the instances", file: "options.go",
		old: "	if part := (keys{namespace}).taken(key); part != \"\" {", new: "	if part := \"\"; part != \"\" {"},
	{name: "TLS not guessed", test: "TestLikelyCause", breaks: "a client without TLS on a port that expects it says EOF, and nothing else", file: "scripts.go",
		old: "	case !s.tls && errors.Is(err, io.EOF):", new: "	case !s.tls && err == io.EOF:"},
	{name: "zone database not named", test: "TestParseRefuses", in: "internal/cron", breaks: "a zone that exists is unknown in a small image, and nobody knows why", file: "internal/cron/cron.go",
		old: `fmt.Errorf("%w (if there is`, new: `fmt.Errorf("%w (where there is`},
}
