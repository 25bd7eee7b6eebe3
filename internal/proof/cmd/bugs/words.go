package main

// words breaks what the public words of elections, instances and options say.
var words = []bug{
	{name: "a namespace of nobody", test: "TestNamespaceIsRequired", breaks: "two services that forgot their namespace elect one leader between them", file: "options.go",
		old: "	if name == \"\" && field == \"Namespace\" {", new: "	if name == \"\" {\n		return\n	}\n	if name == \"\" && field == \"Namespace\" {"},
}
