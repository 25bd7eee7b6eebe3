package store

import (
	"encoding/json"
	"time"
)

// Hints of a lease travel on <leaderkey>:events, those of the registry on <ns>:events. Losing,
// repeating or forging one costs latency or a request, never correctness, but for the roll-call.
const (
	HintVacant    = "vacant"    // a lease was released: followers ask at once, but if it is reserved for the instance that is named, others wait
	HintGranted   = "granted"   // a lease was granted
	HintRollCall  = "roll-call" // Redis has no history: leaders renew at once
	HintNamed     = "named"     // a lease is offered to, or reserved for, the instance that is named: it asks at once
	HintReady     = "ready"     // that instance has asked: the leader renews at once
	HintTriggered = "triggered" // a task was triggered, or its run is to end
	HintConnected = "connected" // not sent: the channel is listened on (again), hints may have been missed
	HintListeners = "listeners" // not sent: so many listen on the channel
)

// HintCommand says that a command waits for the instance that is named.
const HintCommand = "command"

// HintChanged carries changes of instances that have waited for each other, if many listen.
const HintChanged = "changed"

// HintDuplicate is sent by an incarnation that was replaced and lives.
const HintDuplicate = "duplicate_id"

// Hint is one message of a channel. Everything in it is untrusted.
type Hint struct {
	Type    string `json:"type"`
	Role    string `json:"role"` // as the sender calls it: the lease is known by the channel
	Subject string `json:"instance,omitempty"`
	// Subjects are the instances that changed alike.
	Subjects []string `json:"instances,omitempty"`
	Source   string   `json:"source,omitempty"`  // incarnation of the sender; "" in a change that waited, if the instance made it itself
	Changes  []Hint   `json:"changes,omitempty"` // of HintChanged: Type, Subjects and Source of each
	Wait     int64    `json:"wait,omitempty"`    // ms for which a vacant lease is reserved
	Task     string   `json:"task,omitempty"`

	Channel string `json:"-"` // that it came on
	All     bool   `json:"-"` // meant for every role
	Count   int    `json:"-"` // of HintListeners, this process included
}

// MaxHintBytes is the longest hint that is read.
const MaxHintBytes = 4096

// ParseHint reads a message of a channel, on which anybody may publish anything.
func ParseHint(payload string) (h Hint, ok bool) {
	ok = len(payload) <= MaxHintBytes && json.Unmarshal([]byte(payload), &h) == nil && h.Type != HintConnected && h.Type != HintListeners
	return h, ok
}

// Reserved is for how long a vacant lease is reserved: a millisecond at least, 5 s at most,
// whatever the hint says.
func (h Hint) Reserved() time.Duration {
	return time.Duration(min(max(h.Wait, 1), 5000)) * time.Millisecond
}
