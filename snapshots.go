package tenure

import (
	"encoding/json"
	"time"
)

// This file renders the public snapshots as JSON, which is a contract: snake_case names, times in
// UTC by RFC 3339, durations as seconds in fields whose names say so, errors as their text. A time
// or an error that is not set is left out; of an Event everything that is not set is.

// seconds is a duration as JSON.
type seconds time.Duration

// MarshalJSON gives a number with at most nine decimals.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// stamp is a time as JSON can have it. What is read from Redis may lie beyond the year 9999, which
// JSON has no text for: one such record must not spoil a listing.
func stamp(t time.Time) time.Time {
	switch year := t.UTC().Year(); {
	case t.IsZero():
		return time.Time{}
	case year > 9999:
		return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	case year < 0:
		return time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.UTC()
}

// jsonError is an error as JSON.
func jsonError(err error) string {
	if err == nil {
		return ""
	}
	return errorText(err)
}

// MarshalJSON renders the event; what is not set is left out.
func (e Event) MarshalJSON() ([]byte, error) {
	type event Event // without this method
	plain := event(e)
	plain.Time, plain.Slot, plain.Until = stamp(e.Time), stamp(e.Slot), stamp(e.Until)
	return json.Marshal(struct {
		event
		Step seconds `json:"step_seconds,omitempty"`
		Took seconds `json:"took_seconds,omitempty"`
		Err  string  `json:"error,omitempty"`
	}{plain, seconds(e.Step), seconds(e.Took), jsonError(e.Err)})
}

// MarshalJSON renders the snapshot.
func (s ElectionStatus) MarshalJSON() ([]byte, error) {
	type status ElectionStatus // without this method
	plain := status(s)
	plain.Deadline, plain.LastAnswer, plain.WaitingUntil = stamp(s.Deadline), stamp(s.LastAnswer), stamp(s.WaitingUntil)
	return json.Marshal(struct {
		status
		Err string `json:"error,omitempty"`
	}{plain, jsonError(s.Err)})
}

// MarshalJSON renders the snapshot.
func (s Subscription) MarshalJSON() ([]byte, error) {
	type subscription Subscription // without this method
	plain := subscription(s)
	plain.Since = stamp(s.Since)
	return json.Marshal(struct {
		subscription
		Err string `json:"error,omitempty"`
	}{plain, jsonError(s.Err)})
}

// MarshalJSON renders the leader; remaining_seconds is -1 for a lease without expiry.
func (l LeaderInfo) MarshalJSON() ([]byte, error) {
	type leader LeaderInfo // without this method
	plain := leader(l)
	plain.Since = stamp(l.Since)
	remaining := seconds(l.Remaining)
	if l.Remaining < 0 {
		remaining = seconds(-time.Second)
	}
	return json.Marshal(struct {
		leader
		Remaining seconds `json:"remaining_seconds"`
	}{plain, remaining})
}

// MarshalJSON renders the term; "gap_seconds" is left out if it is not known.
func (r TermRecord) MarshalJSON() ([]byte, error) {
	type record TermRecord // without this method
	plain := record(r)
	plain.Began, plain.Ended = stamp(r.Began), stamp(r.Ended)
	return json.Marshal(struct {
		record
		Gap seconds `json:"gap_seconds,omitempty"`
	}{plain, seconds(r.Gap)})
}

// MarshalJSON renders the instance.
func (i Instance) MarshalJSON() ([]byte, error) {
	type instance Instance // without this method
	plain := instance(i)
	plain.StartedAt, plain.LastHeartbeat = stamp(i.StartedAt), stamp(i.LastHeartbeat)
	return json.Marshal(struct {
		instance
		Age seconds `json:"age_seconds"`
	}{plain, seconds(i.Age)})
}

// MarshalJSON renders the snapshot; "last" is left out if the task never ran.
func (s TaskStatus) MarshalJSON() ([]byte, error) {
	type status TaskStatus // without this method
	plain := status(s)
	plain.Next, plain.LastSuccess, plain.Pause.At = stamp(s.Next), stamp(s.LastSuccess), stamp(s.Pause.At)
	return json.Marshal(struct {
		status
		Err string `json:"error,omitempty"`
	}{plain, jsonError(s.Err)})
}

// MarshalJSON renders the run.
func (r RunRecord) MarshalJSON() ([]byte, error) {
	type record RunRecord // without this method
	plain := record(r)
	plain.Slot, plain.Started, plain.Finished = stamp(r.Slot), stamp(r.Started), stamp(r.Finished)
	return json.Marshal(plain)
}

// MarshalJSON renders durations as seconds.
func (g Guarantees) MarshalJSON() ([]byte, error) {
	type guarantees Guarantees // without this method
	return json.Marshal(struct {
		guarantees
		LeaseTTL        seconds `json:"lease_ttl_seconds"`
		Belief          seconds `json:"belief_seconds"`
		Cancel          seconds `json:"cancel_seconds"`
		OutageTolerance seconds `json:"outage_tolerance_seconds"`
		CrashFailover   seconds `json:"crash_failover_seconds"`
		HandOver        seconds `json:"hand_over_seconds"`
		HandOverUnheard seconds `json:"hand_over_unheard_seconds"`
		Yield           seconds `json:"yield_seconds"`
		TransferWait    seconds `json:"transfer_wait_seconds"`
		LossFailover    seconds `json:"loss_failover_seconds"`
		FirstElection   seconds `json:"first_election_seconds"`
	}{
		guarantees(g), seconds(g.LeaseTTL), seconds(g.Belief), seconds(g.Cancel), seconds(g.OutageTolerance), seconds(g.CrashFailover),
		seconds(g.HandOver), seconds(g.HandOverUnheard), seconds(g.Yield), seconds(g.TransferWait), seconds(g.LossFailover), seconds(g.FirstElection),
	})
}
