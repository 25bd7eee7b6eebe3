package store

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Instance is what the record of an instance says. Texts that another program wrote are untrusted.
type Instance struct {
	Incarnation   string // "": another program wrote the record
	Status        string // its own word: WordActive if there is none, WordUnknown if it is none
	StartedAt     time.Time
	LastHeartbeat time.Time
	Leading       []string // roles that it led when it sent the record; "": the default one
	Profile
}

// Profile is what an instance says of itself, beside its status and what it leads.
type Profile struct {
	WorkerCount  int
	WorkerID     int
	Address      string // "": it has none
	Host         string
	Version      string
	Ports        map[string]int
	Roles        []string
	Capabilities []string
	Load         Load
	LoadLimit    Load // 0 in a field: no limit
	Metadata     map[string]string
}

// Load is how busy an instance is, by its own word.
type Load struct {
	Connections int     `json:"connections,omitempty"`
	Jobs        int     `json:"jobs,omitempty"`
	CPU         float64 `json:"cpu,omitempty"`
	Memory      float64 `json:"memory,omitempty"`
}

// Words of a record that says nothing of its status, or nonsense.
const (
	WordActive  = "active"
	WordUnknown = "unknown"
)

// What is published of an instance, and what is read back, is no more than that. With all of it,
// and every byte of the metadata escaped, a record stays below the 64 KiB that the scripts read.
const (
	MaxMetadataPairs = 32
	MaxMetadataBytes = 4096
	MaxNames         = 64   // roles, or capabilities
	MaxNameBytes     = 4096 // of them together
	MaxPorts         = 16
	MaxPortBytes     = 1024 // of their names together
	MaxWorkers       = 1 << 20
	MaxLoadCount     = 1<<31 - 1 // connections, or jobs
)

// What is said of an instance is made of these.
var (
	// AddressPattern is that of an address: what a URI is made of.
	AddressPattern = pattern(`A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-`, 256)
	// HostPattern is that of a host, by name or by IP.
	HostPattern = pattern(`A-Za-z0-9._:%-`, 253)
	// VersionPattern is that of a version.
	VersionPattern = pattern(`A-Za-z0-9._~:/@+()-`, 128)
)

// Pieces returns the record that tenure writes of an instance: its times go between the two. Words
// and IDs need no escape in JSON.
func (i Instance) Pieces(id string) (head, rest string) {
	head = `{"instance_id":` + quoted(id) + `,"started_at":`
	rest = `,"status":` + quoted(i.Status) + `,"worker_count":` + strconv.Itoa(i.WorkerCount) + `,"incarnation":` + quoted(i.Incarnation)
	more, err := json.Marshal(wireProfile{
		Address: i.Address, Host: i.Host, Version: i.Version, WorkerID: i.WorkerID, Ports: i.Ports, Roles: i.Roles, Leading: i.Leading,
		Capabilities: i.Capabilities, Load: i.Load, LoadLimit: i.LoadLimit, Metadata: i.Metadata,
	})
	if err == nil && len(more) > len("{}") {
		rest += "," + string(more[1:len(more)-1])
	}
	return head, rest + "}"
}

// wireProfile is what a record says behind the fields by which it is known as tenure's. What is not
// said is left out. The names are a contract.
type wireProfile struct {
	Address      string            `json:"address,omitempty"`
	Host         string            `json:"host,omitempty"`
	Version      string            `json:"version,omitempty"`
	WorkerID     int               `json:"worker_id,omitempty"`
	Ports        map[string]int    `json:"ports,omitempty"`
	Roles        []string          `json:"roles,omitempty"`
	Leading      []string          `json:"leading,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Load         Load              `json:"load,omitzero"`
	LoadLimit    Load              `json:"load_limit,omitzero"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

// RecordTimes returns what goes between the pieces, both in Unix seconds.
func RecordTimes(started, lastHeartbeat int64) string {
	return strconv.FormatInt(started, 10) + `,"last_heartbeat":` + strconv.FormatInt(lastHeartbeat, 10)
}

func quoted(s string) string { return `"` + s + `"` }

// ownRecord is how a record of tenure begins: its fields in this order, without blanks. Any other
// record is foreign, whatever words it has in it. The scripts read it alike (OWN).
var ownRecord = regexp.MustCompile(`^\{"instance_id":"[A-Za-z0-9._:-]+","started_at":[0-9]+,"last_heartbeat":[0-9]+,` +
	`"status":"[A-Za-z0-9_-]*","worker_count":[0-9]+,"incarnation":"([A-Za-z0-9_-]+)"[,}]`)

// maxIncarnation is how long one may be: an expression that counts to it would take a start of the
// program some milliseconds.
const maxIncarnation = 64

// ParseInstance makes sense of a record, as far as there is any: leniently, since other programs
// write records too. Names of fields are taken as they are, in lower case, as the scripts do.
func ParseInstance(record string) (i Instance, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(record), &fields) != nil || fields == nil {
		return Instance{}, false
	}
	i = Instance{
		Status:        ownWord(fields["status"]),
		StartedAt:     unixSeconds(fields["started_at"]),
		LastHeartbeat: unixSeconds(fields["last_heartbeat"]),
		Leading:       names(fields["leading"], true),
		Profile: Profile{
			WorkerCount:  int(jsonBetween(fields["worker_count"], MaxWorkers)),
			WorkerID:     int(jsonBetween(fields["worker_id"], MaxWorkers)),
			Address:      jsonWord(fields["address"], AddressPattern),
			Host:         jsonWord(fields["host"], HostPattern),
			Version:      jsonWord(fields["version"], VersionPattern),
			Ports:        ports(fields["ports"]),
			Roles:        names(fields["roles"], false),
			Capabilities: names(fields["capabilities"], false),
			Load:         load(fields["load"]),
			LoadLimit:    load(fields["load_limit"]),
			Metadata:     metadata(fields["metadata"]),
		},
	}
	if own := ownRecord.FindStringSubmatch(record); own != nil && len(own[1]) <= maxIncarnation {
		i.Incarnation = own[1]
	}
	return i, true
}

// ownWord is the status that a record says. An instance that says none is active: it beats.
func ownWord(raw json.RawMessage) string {
	var word *string
	switch {
	case raw == nil:
		return WordActive
	case json.Unmarshal(raw, &word) != nil:
		return WordUnknown
	case word == nil, *word == "":
		return WordActive
	case !IncarnationPattern.MatchString(*word): // the same characters
		return WordUnknown
	}
	return *word
}

func jsonNumber(raw json.RawMessage) float64 {
	var f float64
	_ = json.Unmarshal(raw, &f) // what is no number is none
	return f
}

// jsonBetween is a number between 0 and most; what is beyond counts as the nearer of the two.
func jsonBetween(raw json.RawMessage, most float64) float64 {
	return min(max(jsonNumber(raw), 0), most)
}

// jsonWord is a text that the pattern allows, and "" for anything else.
func jsonWord(raw json.RawMessage, pattern *Pattern) string {
	var word string
	if json.Unmarshal(raw, &word) != nil || !pattern.MatchString(word) {
		return ""
	}
	return word
}

// names reads a list of roles or capabilities. What is no name is left out, and a list that is too
// long is none. The default role has the name "", which counts if empty is set.
func names(raw json.RawMessage, empty bool) []string {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil || len(all) > MaxNames {
		return nil
	}
	var kept []string
	size := 0
	for _, one := range all {
		if name := jsonWord(one, RolePattern); name != "" || empty && string(one) == `""` {
			kept = append(kept, name)
			size += len(name)
		}
	}
	if size > MaxNameBytes {
		return nil
	}
	return kept
}

func ports(raw json.RawMessage) map[string]int {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || len(all) > MaxPorts {
		return nil
	}
	kept, size := make(map[string]int), 0
	for name, value := range all {
		if port := jsonNumber(value); port >= 1 && port <= 65535 && port == math.Floor(port) && RolePattern.MatchString(name) {
			kept[strings.Clone(name)] = int(port)
			size += len(name)
		}
	}
	if len(kept) == 0 || size > MaxPortBytes {
		return nil
	}
	return kept
}

func load(raw json.RawMessage) Load {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return Load{}
	}
	return Load{
		Connections: int(jsonBetween(fields["connections"], MaxLoadCount)), Jobs: int(jsonBetween(fields["jobs"], MaxLoadCount)),
		CPU: jsonBetween(fields["cpu"], 1), Memory: jsonBetween(fields["memory"], 1),
	}
}

func unixSeconds(raw json.RawMessage) time.Time {
	const year10000 = 253402300800
	f := jsonNumber(raw)
	if f < 1 || f >= year10000 {
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(f)), 0).UTC()
}

func metadata(raw json.RawMessage) map[string]string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	kept, size := make(map[string]string), 0
	for name, value := range all {
		var text *string
		if json.Unmarshal(value, &text) != nil || text == nil {
			continue
		}
		kept[strings.Clone(name)] = *text
		size += len(name) + len(*text)
	}
	if len(kept) == 0 || len(kept) > MaxMetadataPairs || size > MaxMetadataBytes {
		return nil
	}
	return kept
}
