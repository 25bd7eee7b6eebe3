package main

// instances break what an instance says of itself, and what is made of it.
var instances = []bug{
	{name: "a load that wakes the heartbeat", test: "TestLoadWaitsForTheHeartbeat", breaks: "an application that reports its load each second sends each second", file: "registry.go",
		old: "now := time.Now(); u.changes() && now.Sub", new: "now := time.Now(); now.Sub"},
	{name: "a record without what is led", test: "TestRecordOfTheLeader", breaks: "nobody sees in the registry who leads", file: "heartbeat.go",
		old: " && slices.Equal(l.record.Leading, l.leads) {", new: " {"},
	{name: "a record of any length", test: "TestFullestRecordIsRead", breaks: "an instance that leads a thousand roles cannot be read", file: "heartbeat.go",
		old: "size += len(role); i == store.MaxNames || size > store.MaxNameBytes {", new: "size += len(role); size < 0 {"},
	{name: "an address with a line break", test: "TestLimitsOfWhatIsSaid", breaks: "what redirects by an address sends a header of somebody else", file: "internal/store/record.go",
		old: "AddressPattern = regexp.MustCompile(`^[A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=%-]{1,256}$`)", new: "AddressPattern = regexp.MustCompile(`^(?s:.{1,256})$`)"},
	{name: "an address as another program wrote it", test: "TestHostileProfiles", breaks: "the same, by whoever may write to Redis", file: "internal/store/record.go",
		old: "json.Unmarshal(raw, &word) != nil || !pattern.MatchString(word)", new: "json.Unmarshal(raw, &word) != nil || pattern == nil"},
	{name: "names without a bound", test: "TestHostileProfiles", breaks: "one record makes every listing large", file: "internal/store/record.go",
		old: "json.Unmarshal(raw, &all) != nil || len(all) > MaxNames {", new: "json.Unmarshal(raw, &all) != nil {"},
	{name: "work for an instance that drains", test: "TestCanAcceptWork", breaks: "work goes to an instance that is about to stop", file: "instance.go",
		old: "return i.State == InstanceActive && i.Load", new: "return i.State != InstanceDown && i.Load"},
	{name: "work above the limit", test: "TestCanAcceptWork", breaks: "an instance that is full gets more", file: "instance.go",
		old: "(limit.CPU == 0 || l.CPU < limit.CPU)", new: "(limit.CPU == 0 || l.CPU <= limit.CPU)"},
	{name: "a load that is no number", test: "TestLimitsOfWhatIsSaid", breaks: "an instance without memory divides by zero and is never heard of again", file: "options.go",
		old: "math.IsNaN(f) || f < 0", new: "f < 0"},
	{name: "a host that is not known", test: "TestDefaults", breaks: "nobody sees on which machine an instance runs", file: "options.go",
		old: "o.Host = cmp.Or(o.Host, defaultHost(os.Hostname))", new: "o.Host = cmp.Or(o.Host, \"\")"},
}
