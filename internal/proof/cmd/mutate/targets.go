package main

import (
	"slices"
	"strings"
)

// suite is tests that may notice: those of a package, or those of it whose names match.
type suite struct {
	in   string // "": the root
	run  string // "": all
	skip string // of those; "": none
}

// target is what is broken, and the tests that must notice. A mutant that the first suite lets pass
// goes to the next one.
type target struct {
	name   string
	files  []string
	chosen func(section string) bool // of scripts.lua
	suites []suite
}

// redisstore holds the scripts against the oracle, and takes them from TENURE_SCRIPTS as the root
// does.
const redisstore = "internal/redisstore"

// leaseSuites are in the order of what they cost: most mutants die in the first, within a tenth of
// a second.
var leaseSuites = []suite{
	{in: redisstore, run: "^TestLeaseScripts(At.*)?$"},
	{
		in: redisstore,
		run: "^(TestLimitsOf.*|TestLeaseHints|TestWhatIsReadBackIsUntrusted|TestTokenThatTenureCannotHaveWritten|TestP2_.*|TestP6_ClientThatSendsAgain|" +
			"TestP12_Replica.*|TestWrongType.*|TestReleaseLeaves.*|TestSince.*|TestAdoption.*|TestHolderOf.*|TestLoadScripts|" +
			"Test(Renewals|Followers|Grants|Releases)TakeTheShortcut|TestQuietTermOnRedis|TestRightsInAQuietTerm|TestShortcutsInDamagedStates)$",
	},
	{in: redisstore, run: "^Test(HintsOfATransfer|HintOfAnOpenOffer|HintOfTheBest|HistoryOfTerms.*|LogScripts|LogInAnotherSlot|RenewAll.*|RenewalsTravelTogether)$"},
	{in: redisstore, run: "^TestLeaseScriptsAgreeWithTheOracle$"},
	{run: "^Test(BeatWritesTheContract|DuplicateID|Deregister)$"}, // they use what stands above the lease scripts
}

// registrySuites leave out the tests that break the rules themselves, and crowds that live for
// days: a survivor would pay for them each time, and on a busy machine pass for a mutant that never
// ends.
var registrySuites = []suite{
	{in: redisstore, run: "^Test(RegistryEntriesAt|BeatAt|BeatsTake|LookAt|SweepAt|ScanAt|HintsAtTheir).*"},
	{
		run: "^Test(Beat|Sweep|Deregister|Listing|Pages|CrowdIsHeld|Foreign|Late|Removals|Hostile|Junk|Hold|TheNext|P9_Beat|EndedTerm|Duplicate|Hung|Stop|" +
			"Active|WithoutBeats|Membership|Registry(Cost|Rights|Keys|On)).*",
	},
	{
		in: redisstore,
		run: "^Test(LogScripts|LogInAnotherSlot|ReadLog|ManyHearTogether|LongListsWaitToo|ChangesFitInAHint|ToldIsNotTrusted|WhatWaitsOutlivesItsLog|" +
			"WhoMayNotTellLeavesItToOthers|FullRedisIsToldOnce|MixedRightsTellOnce|DuplicatesAreHushed)$",
	},
	{in: redisstore, run: "^TestRegistryScriptsAgreeWithTheOracle$"},
	{
		run: "^Test.*(Sweep|Swept|Crowd|Drift|Registry|Registered|Beat|Look|Instance|Foreign|Record|Listing|Pages|Hold|Hints|Membership|Deregister|" +
			"Duplicate|Term|Clock|Outage|Fleet|Dead).*",
		skip: "^(TestP9_CrowdThatIsCutOff|TestNobodyDriftsInAnOutage|TestDeadCrowdIsRemoved|TestInstancesThatDieOneByOne|.*RulesAreTested|TestVirtual.*|" +
			"TestTasks.*|TestRedisClockSteps|TestRegistryScriptsAgree.*)$",
	},
}

// taskSuites are in that order too.
var taskSuites = []suite{
	{in: "internal/schedule", run: "^Test(SlotDecisions|OwedSlots|OutdatedRuns|Replan|ChangesOfASchedule|JitterNeverChanges|SlotsAreStored|DecideAfter|InitialDelay).*"},
	{
		run:  "^Test(Abandoned|EndedSchedule|First|Grace|Jitter|LatePause|Missed|OneChange|OneSlot|StartingDeadline|At[A-Z]|Trigger|Orphan|Overlap|OwnRun|Pause|RecordIn|RecordThat|Rerun|Resume|RunOn).*",
		skip: "^TestAbandonedForGood$",
	},
	{
		run: "^Test(P10|.*Task|.*Run|.*Schedule|Abandoned|Attempt|Broken|CatchUp|Changed|Fenced|Finish|History|Hung|Idle|Index|LeaseOf|Long|Lost|Many|NoMethod|" +
			"Owed|Poison|Record|RedisClock|Retry|Sick|Skip|Slow|Timeout|Two|Unreadable).*",
		skip: "^(TestVirtual.*|TestTasksKeepTheirRhythm.*)$",
	},
}

func sections(names ...string) func(string) bool {
	return func(section string) bool { return slices.Contains(names, section) }
}

// targets are the rules that are broken by machine.
var targets = []target{
	{name: "lease", files: []string{"internal/lease/lease.go", "internal/lease/messages.go", "internal/lease/candidate.go", "internal/lease/rank.go", "internal/lease/release.go"}, suites: []suite{{in: "internal/lease"}}},
	{
		name: "schedule", files: []string{
			"internal/schedule/grid.go", "internal/schedule/record.go", "internal/schedule/schedule.go", "internal/schedule/slots.go", "internal/schedule/memory.go",
			"internal/schedule/machine.go", "internal/schedule/machine_calls.go", "internal/schedule/machine_slots.go", "internal/schedule/machine_run.go",
			"internal/agenda/agenda.go",
		},
		suites: append([]suite{{in: "internal/schedule"}, {in: "internal/agenda"}}, taskSuites...),
	},
	{name: "cron", files: []string{"internal/cron/cron.go", "internal/cron/next.go"}, suites: []suite{{in: "internal/cron"}}},
	{name: "term", files: []string{"term.go"}, suites: []suite{{run: "^(TestP4|TestP8|TestZero|TestTermFrom|TestResign|TestErrorOf).*"}}},
	{name: "membership", files: []string{"internal/membership/beat.go", "internal/membership/sweep.go"}, suites: []suite{{in: "internal/membership"}}},
	{
		name: "lua-lease", files: []string{"scripts.lua"}, chosen: sections("prelude common", "shortcut acquire", "acquire", "shortcut renew, renew_all", "shortcut renew", "renew", "renew_all", "shortcut release", "release", "leader"),
		suites: leaseSuites,
	},
	{
		name: "lua-tasks", files: []string{"scripts.lua"}, chosen: func(s string) bool { return s == "prelude tasks" || strings.HasSuffix(s, "_task") }, // the shortcuts too
		suites: append([]suite{{
			in: redisstore,
			run: "^(TestTaskScripts(At.*|Refuse|AgreeWithTheOracle)?|TestTaskHistory.*|TestHistoryThatTakes.*|TestTaskIndex.*|TestIndexIs.*|TestLeaseOf.*|" +
				"TestUnreadable.*|TestResumeOf.*|TestClaimsTakeTheShortcut|TestEndsTakeTheShortcut|TestTaskShortcuts.*|TestTrigger.*|TestCancelIsInTheIndex|" +
				"TestForgetTask|TestFailedRunsAreCounted|TestListingsHaveTheScheduleAndTheTime)$",
		}}, taskSuites...),
	},
	{
		name: "lua-registry", files: []string{"scripts.lua"},
		chosen: sections("prelude registry", "shortcut beat", "beat", "deregister", "look", "hold", "sweep", "adopt", "scan", "instance"),
		suites: registrySuites,
	},
}
