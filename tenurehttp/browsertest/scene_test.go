package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// prefix is where the page is mounted: not at the root.
const prefix = "/ops/tenure"

// scene serves the page, and a state that takes a day to come about, in the documents of the API.
type scene struct {
	mu        sync.Mutex
	down      bool // the connection breaks off
	stale     string
	roles     []map[string]any
	instances []tenure.Instance
	tasks     []map[string]any
	log       []tenure.Change
	history   []tenure.TermRecord // more terms than the roles have
	actions   []string
	caller    string
	asked     []string // commands
	result    tenure.CommandRecord
	url       string
	began     time.Time
	aside     bool          // the process that answers takes no part
	ahead     time.Duration // of the clock of the server before that of Redis
	truncated bool          // there is more than the server has read
	snapshots int           // that were asked for
	each      func(n int)
	before    http.HandlerFunc // what answers in place of the server; nil: nothing does
}

// newScene starts a server.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{began: time.Now(), result: tenure.CommandRecord{ID: "c1", Kind: "drain", State: "done", By: "alice"}}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody asks it
	control, err := tenure.NewControl(rdb, tenure.ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	page, err := tenurehttp.NewDashboard(control, tenurehttp.Options{})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET "+prefix+"/api/cluster/", http.HandlerFunc(s.serve))
	mux.Handle("POST "+prefix+"/api/cluster/", http.HandlerFunc(s.command))
	mux.Handle(prefix+"/", http.StripPrefix(prefix, page))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); page.Close(); _ = rdb.Close() })
	s.url = server.URL + prefix + "/"
	return s
}

// change changes the scene.
func (s *scene) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

// commands are those that were asked for.
func (s *scene) commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *scene) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		panic(http.ErrAbortHandler)
	}
	if s.before != nil {
		s.before(w, r)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, prefix+"/api/cluster/")
	switch {
	case path == "snapshot":
		if s.snapshots++; s.each != nil {
			s.each(s.snapshots)
		}
		s.send(w, s.snapshot(r))
	case path == "terms":
		s.send(w, map[string]any{"terms": append([]tenure.TermRecord{}, s.history...)})
	case path == "commands/c1":
		s.send(w, map[string]any{"command": s.result})
	case strings.HasPrefix(path, "instances/"):
		i := slices.IndexFunc(s.instances, func(i tenure.Instance) bool { return i.ID == path[len("instances/"):] })
		if i < 0 {
			http.Error(w, `{"detail":"not found: instance"}`, http.StatusNotFound)
			return
		}
		s.send(w, map[string]any{"instance": s.instances[i]})
	case strings.HasPrefix(path, "tasks/"):
		for _, t := range s.tasks {
			if status := t["status"].(tenure.TaskStatus); status.Name == strings.Split(path, "/")[1] {
				zone := ""
				if strings.Contains(status.Schedule, "Europe/Berlin") {
					zone = "Europe/Berlin"
				}
				s.send(w, map[string]any{"status": status, "runs": t["runs"], "upcoming": upcoming(status), "zone": zone})
				return
			}
		}
		http.Error(w, `{"detail":"not found: task"}`, http.StatusNotFound)
	default: // events
		http.Error(w, `{"detail":"no such thing here"}`, http.StatusServiceUnavailable)
	}
}

// upcoming are the next slots of a task, some time apart.
func upcoming(s tenure.TaskStatus) []time.Time {
	slots := []time.Time{}
	apart := 24 * time.Hour
	if every, is := strings.CutPrefix(s.Schedule, "every "); is {
		apart, _ = time.ParseDuration(every)
	}
	for i := range 5 {
		if !s.Next.IsZero() {
			slots = append(slots, s.Next.Add(time.Duration(i)*apart).UTC())
		}
	}
	return slots
}

func (s *scene) command(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	s.asked = append(s.asked, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+" "+string(text))
	w.WriteHeader(http.StatusAccepted)
	s.send(w, map[string]any{"id": "c1", "state": "asked", "by": "alice", "instance_id": "web-2"})
}

func (s *scene) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(http.ErrAbortHandler) // the page has gone
	}
}

// snapshot is the document that the page reads.
func (s *scene) snapshot(r *http.Request) map[string]any {
	matched := s.instances
	if q := r.URL.Query().Get("q"); q != "" {
		matched = slices.DeleteFunc(slices.Clone(matched), func(i tenure.Instance) bool { return !strings.Contains(i.ID, q) })
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	offset = min(offset, len(matched))
	counts := map[string]int{"total": len(s.instances)}
	for _, i := range s.instances {
		counts[string(i.State)]++
	}
	var problems []string
	if n := counts["drifted"]; n > 0 {
		problems = append(problems, fmt.Sprintf("%d drifted", n))
	}
	at := time.Now()
	answered := 0.2
	if s.stale != "" {
		at, answered = s.began, time.Since(s.began).Seconds()
	}
	actions := append([]string{}, s.actions...)
	var this any
	if !s.aside {
		this = map[string]any{"instance_id": "web-1", "state": "active"}
	}
	return map[string]any{
		"namespace": "shop", "this": this, "redis": map[string]any{"address": "db1:6379", "answered_seconds_ago": answered},
		"status": map[string]any{"namespace": "shop", "counts": counts, "problems": problems, "leader": map[string]any{"role": ""}}, "roles": append([]map[string]any{}, s.roles...),
		"instances": map[string]any{"total": len(s.instances), "matched": len(matched), "offset": offset, "items": append([]tenure.Instance{}, matched[offset:min(offset+limit, len(matched))]...)},
		"tasks":     append([]map[string]any{}, s.tasks...), "log": append([]tenure.Change{}, s.log...), "caller": s.caller, "actions": actions,
		"at": at.Add(s.ahead), "age_seconds": time.Since(at).Seconds(), "stale": s.stale != "", "error": s.stale, "truncated": s.truncated,
	}
}

// lead adds a role that is led. Its terms are those of the leaders, each from so many hours ago; a
// minus sign before a name: a crash ended its term, and nobody led for the minutes behind the
// colon.
func (s *scene) lead(role string, ttl, remaining float64, leaders ...string) {
	now := time.Now()
	var terms []tenure.TermRecord
	token := int64(1795295029000) + int64(len(role))*37
	for i, text := range leaders {
		var id string
		var from, gap float64
		_, err := fmt.Sscanf(text, "%s %f %f", &id, &from, &gap)
		if err != nil {
			panic(err)
		}
		token += 211
		began := now.Add(-time.Duration(from * float64(time.Hour)))
		if i > 0 {
			last := &terms[i-1]
			last.Ended, last.Reason = began.Add(-time.Duration(gap*float64(time.Minute))), "stopped"
			if gap > 1 {
				last.Reason = "lapsed"
			}
		}
		terms = append(terms, tenure.TermRecord{Role: role, Token: token, InstanceID: id, Began: began, Gap: time.Duration(gap * float64(time.Minute))})
	}
	last := &terms[len(terms)-1]
	answer := map[string]any{"role": role, "guarantees": map[string]any{"lease_ttl_seconds": ttl, "crash_failover_seconds": ttl + 1, "outage_tolerance_seconds": ttl * 0.6}}
	if remaining > 0 {
		answer["leader"] = tenure.LeaderInfo{Role: role, InstanceID: last.InstanceID, Token: last.Token, Since: last.Began, Remaining: time.Duration(remaining * float64(time.Second))}
		answer["election"] = map[string]any{"role": role, "waiting": "lease"}
	} else {
		last.Ended, last.Reason = now.Add(-14*time.Second), "forgotten"
		answer["leader"] = nil
		answer["election"] = map[string]any{"role": role, "waiting": "young", "waiting_until": now.Add(15 * time.Second)}
	}
	slices.Reverse(terms)
	answer["terms"] = terms
	s.roles = append(s.roles, answer)
}

// task adds a task with thirty runs; those of the numbers failed, counted from the newest.
func (s *scene) task(name, schedule string, next, took time.Duration, change func(*tenure.TaskStatus), failed ...int) {
	now := time.Now()
	var runs []tenure.RunRecord
	for i := range 30 {
		started := now.Add(-time.Duration(i)*5*time.Minute - 4*time.Minute)
		lasted := took + took*time.Duration((i*7+len(name)*3)%11)/14
		run := tenure.RunRecord{
			Task: name, ID: name + strconv.Itoa(i), Started: started, Finished: started.Add(lasted), State: tenure.RunSucceeded, Attempt: 1, Token: 1795295029211,
			InstanceID: []string{"web-2", "web-2", "web-1"}[i%3],
		}
		if slices.Contains(failed, i) {
			run.State, run.Error, run.Attempt = tenure.RunFailed, "dial tcp 10.0.4.17:443: i/o timeout", 3
		}
		runs = append(runs, run)
	}
	status := tenure.TaskStatus{Name: name, Known: true, Schedule: schedule, Next: now.Add(next), Last: runs[0], LastSuccess: runs[len(failed)].Started}
	if change != nil {
		change(&status)
	}
	s.tasks = append(s.tasks, map[string]any{"status": status, "runs": runs})
}

// instance adds an instance.
func (s *scene) instance(id string, state tenure.InstanceState, age time.Duration, version string, cpu float64) {
	now := time.Now()
	s.instances = append(s.instances, tenure.Instance{
		ID: id, Incarnation: "8f1c2d", State: state, StartedAt: now.Add(-31 * time.Hour), LastHeartbeat: now.Add(-age), Age: age, Version: version, Address: "https://" + id + ".shop:8443",
		Load: tenure.Load{CPU: cpu, Memory: cpu / 2, Jobs: 3}, Roles: []string{"", "ingest", "export"}, Metadata: map[string]string{"zone": "eu-central-1a", "image": "shop:4.1.0"},
	})
}

// day is a day of a shop, as the picture in the documentation has it.
func (s *scene) day() *scene {
	s.lead("", 30, 24.1, "web-1 23.1 0", "web-2 3.2 0")
	s.lead("ingest", 30, 21.7, "web-3 22.4 0", "web-1 11.2 0.005", "web-4 6.1 14", "web-1 2.7 0")
	s.lead("export", 30, 0, "web-2 19 0", "web-5 8.4 0.01")
	s.instance("web-6", tenure.InstanceDrifted, 74*time.Second, "v41", 0.11)
	s.instance("web-3", tenure.InstanceDraining, 2*time.Second, "v40", 0.06)
	for i, id := range []string{"web-1", "web-2", "web-4", "web-5", "web-7"} {
		s.instance(id, tenure.InstanceActive, time.Duration(i%3+1)*time.Second, "v41", []float64{0.34, 0.62, 0.21, 0.18, 0.27}[i])
	}
	s.task("cleanup", "cron CRON_TZ=Europe/Berlin 30 2 * * *", 9*time.Hour, 3*time.Second, func(t *tenure.TaskStatus) {
		t.Paused, t.Pause = true, tenure.TaskPause{By: "on-call", Reason: "the bucket is being moved", At: time.Now().Add(-40 * time.Minute)}
	})
	s.task("digest", "cron 0 7 * * MON-FRI", 5*time.Hour+12*time.Minute, 48*time.Second, nil, 11)
	s.task("invoices", "every 1m0s", 42*time.Second, 1200*time.Millisecond, nil)
	s.task("rates", "every 5m0s", 2*time.Minute, 800*time.Millisecond, func(t *tenure.TaskStatus) { t.Failures = 3 }, 0, 1, 2)
	s.task("reindex", "on demand", -1, 4*time.Minute, func(t *tenure.TaskStatus) { t.Running, t.Next = true, time.Time{} }, 5, 19)
	s.task("sync-stock", "every 30s", 11*time.Second, 90*time.Millisecond, nil)
	now := time.Now()
	for i, c := range []tenure.Change{
		{Type: tenure.ChangeEnded, Role: "export", InstanceID: "web-5", Token: 1795295029644, Reason: "forgotten", Time: now.Add(-14 * time.Second)},
		{Type: tenure.ChangeDrifted, InstanceID: "web-6", Time: now.Add(-44 * time.Second)},
		{Type: tenure.ChangeDraining, InstanceID: "web-3", Time: now.Add(-9 * time.Minute)},
		{Type: tenure.ChangeJoined, InstanceID: "web-7", Time: now.Add(-26 * time.Minute)},
		{Type: tenure.ChangeElected, Role: "ingest", InstanceID: "web-1", Token: 1795295030066, Time: now.Add(-162 * time.Minute)},
		{Type: tenure.ChangeEnded, Role: "ingest", InstanceID: "web-4", Token: 1795295029855, Reason: "stopped", Time: now.Add(-162 * time.Minute)},
		{Type: tenure.ChangeElected, Role: "", InstanceID: "web-2", Token: 1795295029422, Time: now.Add(-192 * time.Minute)},
	} {
		c.ID = fmt.Sprintf("%d-0", 1000-i)
		s.log = append(s.log, c)
	}
	return s
}
