package main

// words breaks what the public words of elections, instances and options say.
var words = []bug{
	{name: "a namespace of nobody", test: "TestNamespaceIsRequired", breaks: "two services that forgot their namespace elect one leader between them", file: "options.go",
		old: "	if name == \"\" && field == \"Namespace\" {", new: "	if name == \"\" {\n		return\n	}\n	if name == \"\" && field == \"Namespace\" {"},
	{name: "a hold-off that is off", test: "TestSafetyOff", breaks: "HoldOff that is switched off names a negative time to Redis", file: "options.go",
		old: "HoldOff: max(o.Safety.HoldOff, 0), Margin", new: "HoldOff: o.Safety.HoldOff, Margin"},
	{name: "a failover margin that is off", test: "TestSafetyOff", breaks: "FailoverMargin that is switched off believes in a lease after it has ended at an old master", file: "options.go",
		old: "		Margin:  max(o.Safety.FailoverMargin, 0),", new: "		Margin:  o.Safety.FailoverMargin,"},
}
