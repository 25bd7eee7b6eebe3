package store

import (
	"strings"
	"testing"
)

// FuzzHint: whatever is published, it is a hint of a few bytes or nothing, and never the one that
// only the client may give.
func FuzzHint(f *testing.F) {
	for _, payload := range []string{
		`{"type":"vacant","role":""}`, `{"type":"roll-call","role":"x"}`, `{"type":"connected"}`, `{"type":1}`, `[]`, `null`, "\x00", `{"type":"vacant","role":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		h, ok := ParseHint(payload)
		if ok && (len(payload) > MaxHintBytes || h.Type == HintConnected || h.Type == HintListeners || h.All || h.Count != 0) {
			t.Errorf("%q goes for the hint %+v", payload, h)
		}
	})
}
