package tenure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// InstanceState is the state of an instance.
type InstanceState string

// The states of an instance. The first three are its own word, which counts while it beats.
const (
	InstanceJoining  InstanceState = "joining"  // it has registered and does not take part yet
	InstanceActive   InstanceState = "active"   // it beats
	InstanceDraining InstanceState = "draining" // it is on its way out
	InstanceDrifted  InstanceState = "drifted"  // it has been silent for DriftedAfter
	InstanceDown     InstanceState = "down"     // it has been silent for DownAfter and is about to be removed

	// InstanceUnknown: the instance belongs to another program, beats, and has a status that is not
	// a word. If its status is a word that is none of these constants, such as "dead", then State
	// is that word. Counts counts both as unknown.
	InstanceUnknown InstanceState = "unknown"
)

// Instance is the record of one process. If another program wrote it, its metadata are untrusted.
// They are left out if they are not texts, or if there are more of them than RegistryOptions allow.
type Instance struct {
	ID string `json:"instance_id"`
	// Incarnation tells one start of the process from the next. "" if another program wrote the
	// record.
	Incarnation string `json:"incarnation"`
	// State is one of the constants, or the word of another program: see InstanceUnknown.
	State InstanceState `json:"state"`
	// StartedAt and LastHeartbeat come from the record, in UTC, in whole seconds of Redis's clock,
	// or of the clock of the other program that wrote it. Zero if the record has none.
	StartedAt     time.Time `json:"started_at,omitzero"`
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// Age is the time since the last beat, by Redis's clock. An instance of another program counts
	// as beaten each time a leader sees its heartbeat key. Until a leader has seen that key, its
	// own last_heartbeat counts.
	Age         time.Duration `json:"-"`
	WorkerCount int           `json:"worker_count"`
	// What follows is as in RegistryOptions. It is empty, or 0, if the record does not say it, or
	// says what no RegistryOptions may.
	WorkerID int            `json:"worker_id"`
	Address  string         `json:"address,omitempty"`
	Host     string         `json:"host,omitempty"`
	Version  string         `json:"version,omitempty"`
	Ports    map[string]int `json:"ports,omitempty"`
	Roles    []string       `json:"roles,omitempty"`
	// Leading are the roles that the instance led when it sent its last heartbeat, "" for the
	// default one; of more than 64 the first ones. Who leads now: see Elector.Leader.
	Leading      []string          `json:"leading,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Load         Load              `json:"load,omitzero"`
	LoadLimit    Load              `json:"load_limit,omitzero"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

// HasRole reports whether role is one of Roles, or one that the instance led when it sent its last
// heartbeat. "" is the default role.
func (i Instance) HasRole(role string) bool {
	return slices.Contains(i.Roles, role) || slices.Contains(i.Leading, role)
}

// HasCapability reports whether capability is one of Capabilities.
func (i Instance) HasCapability(capability string) bool {
	return slices.Contains(i.Capabilities, capability)
}

// CanAcceptWork reports whether the instance is active, and below each limit of its LoadLimit. One
// that joins, drains, has drifted, or is in a state of another program cannot.
func (i Instance) CanAcceptWork() bool {
	return i.State == InstanceActive && i.Load.below(i.LoadLimit)
}

// Load is how busy an instance is, by its own word.
type Load struct {
	Connections int     `json:"connections"` // open ones; between 0 and 2,147,483,647
	Jobs        int     `json:"jobs"`        // that run now; likewise
	CPU         float64 `json:"cpu"`         // the share that is used, between 0 and 1
	Memory      float64 `json:"memory"`      // likewise
}

// Mean returns the mean of CPU and Memory, between 0 and 1.
func (l Load) Mean() float64 { return (l.CPU + l.Memory) / 2 }

// below reports whether each field is below its limit. A limit of 0 is none.
func (l Load) below(limit Load) bool {
	return (limit.Connections == 0 || l.Connections < limit.Connections) && (limit.Jobs == 0 || l.Jobs < limit.Jobs) &&
		(limit.CPU == 0 || l.CPU < limit.CPU) && (limit.Memory == 0 || l.Memory < limit.Memory)
}

// size is about how many bytes the instance takes.
func (i Instance) size() int {
	size := 320 + len(i.ID) + len(i.Incarnation) + len(i.Address) + len(i.Host) + len(i.Version)
	for name := range i.Ports {
		size += 32 + len(name)
	}
	for _, names := range [][]string{i.Roles, i.Leading, i.Capabilities} {
		for _, name := range names {
			size += 16 + len(name)
		}
	}
	for name, value := range i.Metadata {
		size += 32 + len(name) + len(value)
	}
	return size
}

// known is the state, or InstanceUnknown for a word that tenure does not know.
func (s InstanceState) known() InstanceState {
	switch s {
	case InstanceJoining, InstanceActive, InstanceDraining, InstanceDrifted, InstanceDown:
		return s
	}
	return InstanceUnknown
}

// Counts says how many instances there are, by state.
type Counts struct {
	Joining   int `json:"joining"`
	Active    int `json:"active"`
	Draining  int `json:"draining"`
	Drifted   int `json:"drifted"`
	Down      int `json:"down"`
	Unknown   int `json:"unknown"`   // instances of other programs with another status
	Total     int `json:"total"`     // the sum of the six above
	Malformed int `json:"malformed"` // entries that are no record of an instance: they are skipped
}

// fuller is what a listing has counted, or what an index has if that is more.
func fuller(listed, indexed Counts) Counts {
	if indexed.Total <= listed.Total {
		return listed
	}
	indexed.Malformed = listed.Malformed
	return indexed
}

// add counts an instance.
func (c *Counts) add(state InstanceState) {
	c.Total++
	switch state {
	case InstanceJoining:
		c.Joining++
	case InstanceActive:
		c.Active++
	case InstanceDraining:
		c.Draining++
	case InstanceDrifted:
		c.Drifted++
	case InstanceDown:
		c.Down++
	default:
		c.Unknown++
	}
}

// countsLine is the counts for people: "2 active, 1 drifted", without what is 0.
func countsLine(c Counts) string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{c.Joining, "joining"}, {c.Active, "active"}, {c.Draining, "draining"}, {c.Drifted, "drifted"}, {c.Down, "down"}, {c.Unknown, "unknown"},
		{c.Malformed, "malformed"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "no instance")
}
