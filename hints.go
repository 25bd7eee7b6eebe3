package tenure

import "encoding/json"

// Hints of a lease travel on <leaderkey>:events, those of the registry on <ns>:events. Losing, repeating or forging one costs
// latency or a request, never correctness, but for the roll-call.
const (
	hintVacant    = "vacant"    // a lease was released: followers ask at once
	hintGranted   = "granted"   // a lease was granted
	hintRollCall  = "roll-call" // Redis has no history: leaders renew at once
	hintConnected = "connected" // not sent: the channel is listened on (again), hints may have been missed
)

// hint is one message of a channel. Everything in it is untrusted.
type hint struct {
	Type    string `json:"type"`
	Role    string `json:"role"` // as the sender calls it: the lease is known by the channel
	Subject string `json:"instance,omitempty"`
	// Subjects are the instances that one sweep has changed.
	Subjects []string `json:"instances,omitempty"`
	Source   string   `json:"source,omitempty"` // incarnation of the sender

	channel string // that it came on
	all     bool   // meant for every role
}

const maxHintBytes = 4096

// parseHint reads a message of a channel, on which anybody may publish anything.
func parseHint(payload string) (h hint, ok bool) {
	ok = len(payload) <= maxHintBytes && json.Unmarshal([]byte(payload), &h) == nil && h.Type != hintConnected
	return h, ok
}
