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
	WorkerCount   int
	Metadata      map[string]string
}

// Words of a record that says nothing of its status, or nonsense.
const (
	WordActive  = "active"
	WordUnknown = "unknown"
)

// What is published of an instance, and what is read back, has no more metadata than that.
const (
	MaxMetadataPairs = 32
	MaxMetadataBytes = 4096
)

// Pieces returns the record that tenure writes of an instance: its times go between the two. Words
// and IDs need no escape in JSON.
func (i Instance) Pieces(id string) (head, rest string) {
	head = `{"instance_id":` + quoted(id) + `,"started_at":`
	rest = `,"status":` + quoted(i.Status) + `,"worker_count":` + strconv.Itoa(i.WorkerCount) + `,"incarnation":` + quoted(i.Incarnation)
	if pairs, err := json.Marshal(i.Metadata); err == nil && len(i.Metadata) > 0 {
		rest += `,"metadata":` + string(pairs) // last, since it may hold the names of other fields
	}
	return head, rest + "}"
}

// RecordTimes returns what goes between the pieces, both in Unix seconds.
func RecordTimes(started, lastHeartbeat int64) string {
	return strconv.FormatInt(started, 10) + `,"last_heartbeat":` + strconv.FormatInt(lastHeartbeat, 10)
}

func quoted(s string) string { return `"` + s + `"` }

// ownRecord is how a record of tenure begins: its fields in this order, without blanks. Any other
// record is foreign, whatever words it has in it. The scripts read it alike (OWN).
var ownRecord = regexp.MustCompile(`^\{"instance_id":"[A-Za-z0-9._:-]+","started_at":[0-9]+,"last_heartbeat":[0-9]+,` +
	`"status":"[A-Za-z0-9_-]*","worker_count":[0-9]+,"incarnation":"([A-Za-z0-9_-]{1,64})"[,}]`)

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
		WorkerCount:   int(min(max(jsonNumber(fields["worker_count"]), 0), 1<<20)),
		Metadata:      metadata(fields["metadata"]),
	}
	if own := ownRecord.FindStringSubmatch(record); own != nil {
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

func unixSeconds(raw json.RawMessage) time.Time {
	const year10000 = 253402300800
	f := jsonNumber(raw)
	if f < 1 || f >= year10000 {
		return time.Time{}
	}
	return time.Unix(int64(math.Floor(f)), 0)
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
