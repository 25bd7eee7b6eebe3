package tenurehttp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure"
)

// This file has the five endpoints whose shapes are those of an older system, which programs read:
// Unix times and durations in whole seconds, null for what is not known. No name in them changes.

// thisInstance is null in a process that takes no part.
type thisInstance struct {
	ID       string `json:"id"`
	IsLeader bool   `json:"is_leader"`
}

func (h *Handler) itself() *thisInstance {
	if h.coordinator == nil {
		return nil
	}
	return &thisInstance{ID: h.coordinator.InstanceID(), IsLeader: h.coordinator.IsLeader()}
}

// epoch is a time in Unix seconds; nil: it is not known.
func epoch(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

// whole is a duration in seconds, rounded up; 0: it is switched off.
func whole(d time.Duration) int64 { return int64(math.Ceil(max(d, 0).Seconds())) }

type statusAnswer struct {
	Healthy  bool          `json:"cluster_healthy"`
	Name     string        `json:"namespace"`
	Count    int           `json:"instance_count"`
	Active   int           `json:"active_instances"`
	Drifted  int           `json:"drifted_instances"`
	Leader   *statusLeader `json:"leader"` // null: nobody leads
	This     *thisInstance `json:"this_instance"`
	Problems []string      `json:"problems,omitempty"`
	age
}

type statusLeader struct {
	ID    string `json:"instance_id"`
	Since *int64 `json:"since"`
}

// status serves whether all is well.
func (h *Handler) status(w http.ResponseWriter, r *request) error {
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	if err := s.missing(partStatus, partInstances); err != nil {
		return err
	}
	answer := statusAnswer{
		Healthy: s.status.Healthy, Name: s.status.Namespace, Count: s.status.Counts.Total, Active: s.status.Counts.Active, Drifted: s.status.Counts.Drifted,
		This: h.itself(), Problems: s.status.Problems, age: a,
	}
	if a.Stale { // how it is now is not known
		answer.Healthy, answer.Problems = false, slices.Concat(answer.Problems, []string{a.Error})
	}
	if l := s.status.Leader; l.InstanceID != "" {
		answer.Leader = &statusLeader{ID: l.InstanceID, Since: epoch(l.Since)}
	}
	return writeJSON(w, http.StatusOK, answer)
}

type classicInstance struct {
	ID            string `json:"instance_id"`
	Status        string `json:"status"`
	IsLeader      bool   `json:"is_leader"`
	StartedAt     *int64 `json:"started_at"`
	LastHeartbeat *int64 `json:"last_heartbeat"`
	WorkerCount   int    `json:"worker_count"`
}

type instancesAnswer struct {
	Total  int     `json:"total"`
	Leader *string `json:"current_leader"` // null: nobody leads
	age
	// After these come the instances, see classicList.
}

// classicList are the instances of a snapshot, as JSON.
func classicList(s *snapshot) ([]byte, error) {
	list := make([]classicInstance, len(s.all))
	for i, one := range s.all {
		list[i] = classicInstance{
			ID: one.ID, Status: string(one.State), IsLeader: one.ID == s.status.Leader.InstanceID, StartedAt: epoch(one.StartedAt),
			LastHeartbeat: epoch(one.LastHeartbeat), WorkerCount: one.WorkerCount,
		}
	}
	return json.Marshal(list)
}

// instances serves the list of all instances, by their IDs.
func (h *Handler) instances(w http.ResponseWriter, r *request) error {
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	if err := cmp.Or(s.missing(partInstances), s.leaderMissing()); err != nil {
		return err
	}
	list, err := s.list()
	if err != nil {
		return err
	}
	parts, err := joined(instancesAnswer{Total: len(s.all), Leader: leaderID(s), age: a}, field{"instances", list})
	if err != nil {
		return err
	}
	writeParts(w, parts)
	return nil
}

// leaderID is that of the default role; nil: nobody leads.
func leaderID(s *snapshot) *string {
	if id := s.status.Leader.InstanceID; id != "" {
		return &id
	}
	return nil
}

type leaderAnswer struct {
	Leader *string       `json:"leader"` // null: nobody leads
	This   *thisInstance `json:"this_instance"`
	age
}

// leader serves who leads the default role.
func (h *Handler) leader(w http.ResponseWriter, r *request) error {
	if role := r.URL.Query().Get("role"); role != "" { // who leads the default one is no answer
		return &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("role = %.100q: leader is about the default role (fix: ask role?role=NAME)", role)}
	}
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	if err := s.leaderMissing(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, leaderAnswer{Leader: leaderID(s), This: h.itself(), age: a})
}

type configAnswer struct {
	ID                string  `json:"instance_id"`
	HeartbeatInterval int64   `json:"heartbeat_interval"`
	HeartbeatTTL      int64   `json:"heartbeat_ttl"`
	LeaderTTL         int64   `json:"leader_ttl"`
	RenewInterval     int64   `json:"leader_renew_interval"`
	DriftedAfter      int64   `json:"drift_threshold"`
	DownAfter         int64   `json:"stale_threshold"`
	RedisHost         *string `json:"redis_host"` // null: several servers, or not known
	RedisPort         *int    `json:"redis_port"`
}

// errNoInstance is the error of what only a process that takes part can say.
var errNoInstance = &problem{Status: http.StatusNotFound, Code: "no_instance", Detail: "this process takes no part in the cluster: ask one that does"}

// config serves the settings of this process. It does not ask Redis.
func (h *Handler) config(w http.ResponseWriter, _ *request) error {
	if h.coordinator == nil {
		return errNoInstance
	}
	o := h.coordinator.Options()
	answer := configAnswer{
		ID: o.InstanceID, HeartbeatInterval: whole(o.Registry.HeartbeatInterval), HeartbeatTTL: whole(o.Registry.HeartbeatTTL),
		LeaderTTL: whole(o.Election.LeaseTTL), RenewInterval: whole(o.Election.RenewInterval),
		DriftedAfter: whole(o.Registry.DriftedAfter), DownAfter: whole(o.Registry.DownAfter),
	}
	if host, port, err := net.SplitHostPort(h.coordinator.RedisAddress()); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			answer.RedisHost, answer.RedisPort = &host, &n
		}
	}
	return writeJSON(w, http.StatusOK, answer)
}

type thisAnswer struct {
	ID          string     `json:"instance_id"`
	IsLeader    bool       `json:"is_leader"`
	WorkerID    int        `json:"worker_id"`
	WorkerCount int        `json:"worker_count"`
	Config      thisConfig `json:"config"`
	State       string     `json:"state"`
	Leading     []string   `json:"leading"`
}

type thisConfig struct {
	HeartbeatInterval int64 `json:"heartbeat_interval"`
	LeaderTTL         int64 `json:"leader_ttl"`
	DriftedAfter      int64 `json:"drift_threshold"`
	DownAfter         int64 `json:"stale_threshold"`
}

// this serves this process. It does not ask Redis.
func (h *Handler) this(w http.ResponseWriter, _ *request) error {
	if h.coordinator == nil {
		return errNoInstance
	}
	o := h.coordinator.Options()
	return writeJSON(w, http.StatusOK, thisAnswer{
		ID: o.InstanceID, IsLeader: h.coordinator.IsLeader(), WorkerID: o.Registry.WorkerID, WorkerCount: o.Registry.WorkerCount,
		Config: thisConfig{
			HeartbeatInterval: whole(o.Registry.HeartbeatInterval), LeaderTTL: whole(o.Election.LeaseTTL),
			DriftedAfter: whole(o.Registry.DriftedAfter), DownAfter: whole(o.Registry.DownAfter),
		},
		State: string(h.coordinator.State()), Leading: h.leading(),
	})
}

// leading are the roles that this process leads now.
func (h *Handler) leading() []string {
	roles := []string{}
	for _, e := range h.coordinator.Roles() {
		if e.IsLeader() {
			roles = append(roles, e.Role())
		}
	}
	return roles
}

// probes: what a platform asks. They do not ask Redis, and need no credentials.

type probeAnswer struct {
	OK    bool   `json:"ok"`
	State string `json:"state,omitempty"` // of this process
	Role  string `json:"role,omitempty"`
}

func probed(w http.ResponseWriter, a probeAnswer) error {
	status := http.StatusOK
	if !a.OK {
		status = http.StatusServiceUnavailable
	}
	return writeJSON(w, status, a)
}

// livez is 200 as long as this process serves, whatever Redis does: a restart would not help.
func (h *Handler) livez(w http.ResponseWriter, _ *request) error {
	return probed(w, probeAnswer{OK: true})
}

// readyz is 200 while this process takes part. One that has joined stays ready while Redis is away.
func (h *Handler) readyz(w http.ResponseWriter, _ *request) error {
	a := probeAnswer{OK: !h.isClosed()}
	if h.coordinator != nil {
		state := h.coordinator.State()
		a.OK, a.State = a.OK && state == tenure.InstanceActive, string(state)
	}
	return probed(w, a)
}

// leaderz is 200 on the leader of a role only, by what this process itself knows.
func (h *Handler) leaderz(w http.ResponseWriter, r *request) error {
	if h.coordinator == nil {
		return probed(w, probeAnswer{})
	}
	e := h.coordinator.Elector()
	if r.URL.Query().Has("role") {
		asked, found := h.coordinator.Role(r.URL.Query().Get("role"))
		if !found {
			return &problem{Status: http.StatusNotFound, Code: "no_role", Detail: "this process has no such role"}
		}
		e = asked
	}
	return probed(w, probeAnswer{OK: e.IsLeader() && !h.isClosed(), Role: e.Role()})
}
