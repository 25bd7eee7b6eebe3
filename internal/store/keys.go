package store

import (
	"slices"
	"strings"
)

// Keys is the key table of a namespace. Everything of one role lies in one hash slot.
type Keys string

// Lease is the key of the lease of a role: the instance ID of who holds it.
func (k Keys) Lease(role string) string {
	if role == "" {
		return string(k) + ":leader"
	}
	return string(k) + ":leader:" + role
}

// LeaseSince is the key of the start of the leadership.
func LeaseSince(lease string) string { return lease + ":since" }

// LeaseTerm is the key of the hash that outlives the lease: its history.
func LeaseTerm(lease string) string { return lease + ":term" }

// LeaseTerms is the stream of the terms of a lease: when each began, when and why it ended.
func LeaseTerms(lease string) string { return lease + ":terms" }

// LeaseEvents is the channel of the hints of a lease: all who share the lease hear them, whatever
// they call their namespace and the role.
func LeaseEvents(lease string) string { return lease + ":events" }

// LeaseOfEvents is the lease whose hints come on a channel.
func LeaseOfEvents(channel string) string { return strings.TrimSuffix(channel, LeaseEvents("")) }

// leaseParts are the key of a lease and all that is derived from it: keys, and the channel of its
// hints.
func leaseParts(lease string) []string {
	return []string{lease, LeaseSince(lease), LeaseTerm(lease), LeaseTerms(lease), LeaseEvents(lease)}
}

// Instances is the hash of all records of instances, by ID.
func (k Keys) Instances() string { return string(k) + ":instances" }

// Heartbeat is the key that is there while an instance beats.
func (k Keys) Heartbeat(id string) string { return string(k) + ":instance:" + id + ":heartbeat" }

// Beats is the zset of the instances by their last heartbeat.
func (k Keys) Beats() string { return string(k) + ":beats" }

// Words is the zset of the instances that do not call themselves active: by their word, and then by
// their last heartbeat.
func (k Keys) Words() string { return string(k) + ":beats:words" }

// Hold is the key that is there while the removal of silent instances is held.
func (k Keys) Hold() string { return string(k) + ":beats:hold" }

// Removed is the zset of the instances that sweeps have removed of late.
func (k Keys) Removed() string { return string(k) + ":beats:removed" }

// Lost is the number of instances that sweeps have removed since none was for DownAfter.
func (k Keys) Lost() string { return string(k) + ":beats:lost" }

// Told is how far the log was told to those who listen, if they are many.
func (k Keys) Told() string { return string(k) + ":beats:told" }

// Log is the stream of what changed in the namespace.
func (k Keys) Log() string { return string(k) + ":log" }

// Events is the channel of the hints of the registry.
func (k Keys) Events() string { return string(k) + ":events" }

// Metrics is the hash of what an instance has pushed.
func (k Keys) Metrics(id string) string { return string(k) + ":instance:" + id + ":metrics" }

// AllMetrics is the stream of what all instances have pushed, name by name.
func (k Keys) AllMetrics() string { return string(k) + ":metrics" }

// Own is the channel that only one process publishes to and listens on, to check its subscription.
func (k Keys) Own(id string) string { return string(k) + ":instance:" + id + ":events" }

// Tasks is the set of the names of all tasks that have a record.
func (k Keys) Tasks() string { return string(k) + ":tasks" }

// Triggers is the zset of the names of tasks of which a trigger waits, by when that ends.
func (k Keys) Triggers() string { return string(k) + ":tasks:triggers" }

// Task is the record of a task.
func (k Keys) Task(name string) string { return string(k) + ":task:" + name }

// Inbox is the list of the commands that wait for an instance.
func (k Keys) Inbox(id string) string { return string(k) + ":instance:" + id + ":commands" }

// Command is the hash of what became of a command.
func (k Keys) Command(id string) string { return string(k) + ":command:" + id }

// Commands is the stream of the commands that were asked for, and of how they ended.
func (k Keys) Commands() string { return string(k) + ":commands" }

// Runs is the stream of the last runs of a task.
func (k Keys) Runs(name string) string { return string(k) + ":task:" + name + ":runs" }

// Taken says which key or channel of the namespace, that is none of a lease, a lease key would
// share; "": none.
func (k Keys) Taken(lease string) string {
	for _, part := range leaseParts(lease) {
		switch part {
		case k.Instances(), k.Beats(), k.Words(), k.Hold(), k.Removed(), k.Lost(), k.Told(), k.Tasks(), k.Triggers(), k.Events(), k.Commands(), k.AllMetrics(), k.Log():
			return part
		}
		if strings.HasPrefix(part, k.Task("")) || strings.HasPrefix(part, k.Command("")) || strings.HasPrefix(part, string(k)+":instance:") {
			return part
		}
	}
	return ""
}

// Shared says which key or channel two leases would share; "": none.
func Shared(lease, other string) string {
	for _, part := range leaseParts(lease) {
		if slices.Contains(leaseParts(other), part) {
			return part
		}
	}
	return ""
}

// Related returns the leases that share a key or channel with a lease: itself, what is derived from
// it, and what it may be derived from.
func Related(lease string) []string {
	related := leaseParts(lease)
	for _, suffix := range leaseParts("")[1:] {
		if of, ok := strings.CutSuffix(lease, suffix); ok {
			related = append(related, of)
		}
	}
	return related
}

// HashTag is what a Redis Cluster hashes of a key: what stands between the first brace and the next
// closing one, if anything does. Keys of one hash tag lie in one slot.
func HashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
