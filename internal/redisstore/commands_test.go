package redisstore

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACLRulesAreWhatTheScriptsCall: no command that a script calls is missing, and none is granted
// that no script calls.
func TestACLRulesAreWhatTheScriptsCall(t *testing.T) {
	source := regexp.MustCompile(`--[^\n]*|\bpcall\(cjson\.decode\b`).ReplaceAllString(scriptsLua, "")
	var called []string
	computed := 0
	for _, found := range regexp.MustCompile(`\b(?:call|pcall|note|refused|say)\((?:'([A-Z]+)')?`).FindAllStringSubmatch(source, -1) {
		if found[1] == "" {
			computed++
		}
		called = append(called, strings.ToLower(found[1]))
	}
	require.Equal(t, 8, computed, "call, note and refused are defined with redis.pcall, and say with refused; any other command that is no literal cannot be compared")
	slices.Sort(called)
	called = slices.Compact(called)
	require.ElementsMatch(t, called[1:], append(slices.Clone(ScriptCommands), ControlCommands...))
}
