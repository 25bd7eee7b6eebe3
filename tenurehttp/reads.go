package tenurehttp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// number is a parameter of the query.
func number(r *request, name string, otherwise, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("%s = %.100q: must be a number between 0 and %d", name, text, most)}
	}
	return n, nil
}

// page is the part of the instances that an answer has.
type page struct {
	Total   int               `json:"total"`
	Matched int               `json:"matched"` // of those, by state and q
	Offset  int               `json:"offset"`
	Items   []tenure.Instance `json:"items"`
}

// pageQuery is what an answer should have of the instances.
type pageQuery struct {
	states        string // those that are wanted, once each, with a line break behind each; "": all
	part          string // of the ID
	limit, offset int
}

// pageQueryOf reads the parameters state, which may come several times, q, a part of the ID, offset
// and limit.
func pageQueryOf(r *request) (q pageQuery, err error) {
	if q.limit, err = number(r, "limit", defaultPage, maxPage); err != nil {
		return q, err
	}
	if q.offset, err = number(r, "offset", 0, 1<<30); err != nil {
		return q, err
	}
	query := r.URL.Query()
	if q.states, err = statesOf(query["state"]); err != nil {
		return q, err
	}
	q.part = query.Get("q")
	return q, nil
}

// instanceStates are those that can be asked for, as in tenure.InstanceQuery.
var instanceStates = []string{
	string(tenure.InstanceJoining), string(tenure.InstanceActive), string(tenure.InstanceDraining),
	string(tenure.InstanceDrifted), string(tenure.InstanceDown), string(tenure.InstanceUnknown),
}

// statesOf reads the parameters state. A misspelt one is refused: it would list nobody, as if all
// were well. An empty one asks for none in particular.
func statesOf(asked []string) (states string, err error) {
	var wanted []string
	for _, state := range asked { // thousands, perhaps
		switch {
		case state == "", slices.Contains(wanted, state):
		case slices.Contains(instanceStates, state):
			wanted = append(wanted, state)
		default:
			return "", &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("state = %.100q: must be one of %s", state, strings.Join(instanceStates, ", "))}
		}
	}
	slices.Sort(wanted)
	for _, state := range wanted {
		states += state + "\n"
	}
	return states, nil
}

// listedAs is the state by which an instance is asked for: the word of another program is unknown.
func listedAs(state tenure.InstanceState) string {
	if slices.Contains(instanceStates, string(state)) {
		return string(state)
	}
	return string(tenure.InstanceUnknown)
}

// choose returns the instances that are asked for. Those that are not active come first.
func (s *snapshot) choose(q pageQuery) page {
	matched := s.sorted
	if q.states != "" || q.part != "" {
		wanted := strings.Split(q.states, "\n")
		matched = nil
		for _, i := range s.sorted {
			if one := s.all[i]; (q.states == "" || slices.Contains(wanted, listedAs(one.State))) && strings.Contains(one.ID, q.part) {
				matched = append(matched, i)
			}
		}
	}
	from := min(q.offset, len(matched))
	p := page{Total: len(s.all), Matched: len(matched), Offset: from, Items: []tenure.Instance{}}
	for _, i := range matched[from:min(from+q.limit, len(matched))] {
		p.Items = append(p.Items, s.all[i])
	}
	return p
}

// The pages that are kept of a snapshot: as many, and of so many bytes, as many readers share.
const (
	maxPagesKept = 64
	maxPageKept  = 256 << 10
)

// pageCache has the pages of a snapshot that were asked for, as JSON: all open pages show the first
// one until somebody scrolls.
type pageCache struct {
	mu    sync.Mutex
	pages map[pageQuery][]byte
}

// page returns the instances that are asked for, as JSON.
func (s *snapshot) page(q pageQuery) ([]byte, error) {
	c := &s.pages
	c.mu.Lock()
	text, known := c.pages[q]
	c.mu.Unlock()
	if known {
		return text, nil
	}
	text, err := json.Marshal(s.choose(q))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pages) < maxPagesKept && len(text) <= maxPageKept && len(q.states)+len(q.part) <= maxPageKept {
		if c.pages == nil {
			c.pages = make(map[pageQuery][]byte)
		}
		c.pages[q] = text
	}
	return text, nil
}

// snapshotAnswer is all of it in one document.
type snapshotAnswer struct {
	Namespace string               `json:"namespace"`
	This      *thisView            `json:"this"` // null: this process takes no part
	Redis     redisView            `json:"redis"`
	Status    tenure.ClusterStatus `json:"status"`
	Caller    string               `json:"caller"` // who asks, by the Authorizer
	// Actions are what the caller may ask for.
	Actions []Action `json:"actions"`
	// Unread are the parts that could not be read, and are empty: somebody has to fix something.
	Unread []unread `json:"unread,omitempty"`
	age
	// After these come roles, instances, tasks and log, which are encoded once for all readers.
}

// thisView is the process that answers, by what it knows itself.
type thisView struct {
	ID      string   `json:"instance_id"`
	State   string   `json:"state"`
	Leading []string `json:"leading"`
}

type redisView struct {
	Address *string `json:"address"` // null: several servers, or not known
	// Answered is how long ago Redis last gave a usable answer; null: never.
	Answered *float64 `json:"answered_seconds_ago"`
	Kind     string   `json:"kind,omitempty"` // redis or valkey; "": not known
	Version  string   `json:"version,omitempty"`
	Uptime   float64  `json:"uptime_seconds,omitempty"` // as of the last minute
}

// roleView is one role.
type roleView struct {
	Role   string             `json:"role"`
	Leader *tenure.LeaderInfo `json:"leader"` // null: nobody leads
	Status tenure.RoleStatus  `json:"status"` // what Redis knows of it: why nobody leads, and until when
	// Election is what this process knows of the election itself, with why it waits; null: it is no
	// candidate.
	Election   *tenure.ElectionStatus `json:"election"`
	Guarantees *tenure.Guarantees     `json:"guarantees"` // likewise
	// After these come the last terms, newest first.
}

// taskView is a task with its last runs.
type taskView struct {
	Status tenure.TaskStatus  `json:"status"`
	Runs   []tenure.RunRecord `json:"runs"` // newest first
}

// The parts of the snapshot that are not asked for with parameters.
const (
	shownTerms   = 20
	shownChanges = 100
)

// snapshot serves all that the page shows.
func (h *Handler) snapshot(w http.ResponseWriter, r *request) error {
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	asked, err := pageQueryOf(r)
	if err != nil {
		return err
	}
	var fields []field
	for _, part := range []struct {
		name   string
		encode func() ([]byte, error)
	}{
		{"roles", func() ([]byte, error) { return h.roleViews(s, a) }}, {"instances", func() ([]byte, error) { return s.page(asked) }}, {"tasks", s.plots}, {"log", s.changes},
	} {
		text, err := part.encode()
		if err != nil {
			return err
		}
		fields = append(fields, field{part.name, text})
	}
	answer := snapshotAnswer{Namespace: s.status.Namespace, Redis: h.redis(s, a), Status: s.status, Unread: s.unread, age: a}
	answer.Status.Leader = *aged(&answer.Status.Leader, a)
	if h.coordinator != nil {
		answer.This = &thisView{ID: h.coordinator.InstanceID(), State: string(h.coordinator.State()), Leading: h.leading()}
	}
	answer.Caller, answer.Actions = h.may(r)
	parts, err := joined(answer, fields...)
	if err != nil {
		return err
	}
	writeParts(w, parts)
	return nil
}

// redis is what is known of it.
func (h *Handler) redis(s *snapshot, a age) redisView {
	v := redisView{Kind: s.server.Kind, Version: s.server.Version, Uptime: s.server.Uptime.Seconds()}
	if address := h.control.RedisAddress(); address != "" {
		v.Address = &address
	}
	last := time.Now().Add(-a.passed)
	if h.coordinator != nil {
		for _, e := range h.coordinator.Roles() {
			if answered := e.Status().LastAnswer; answered.After(last) {
				last = answered
			}
		}
	}
	if !last.IsZero() {
		ago := max(time.Since(last), 0).Round(time.Millisecond).Seconds()
		v.Answered = &ago
	}
	return v
}

// roleViews are the roles, as a list in JSON.
func (h *Handler) roleViews(s *snapshot, a age) ([]byte, error) {
	list := []byte{'['}
	for _, r := range s.roles {
		if r.unread != nil { // that nobody leads it is not known
			continue
		}
		view := roleView{Role: r.name, Leader: aged(r.leader, a), Status: agedStatus(r.status, a)}
		if h.coordinator != nil {
			if e, is := h.coordinator.Role(r.name); is {
				status, guarantees := e.Status(), e.Guarantees()
				view.Election, view.Guarantees = &status, &guarantees
			}
		}
		terms, err := r.recent()
		if err != nil {
			return nil, err
		}
		parts, err := joined(view, field{"terms", terms})
		if err != nil {
			return nil, err
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		for _, part := range parts {
			list = append(list, part...)
		}
	}
	return append(list, ']'), nil
}

func taskViews(s *snapshot) []taskView {
	views := make([]taskView, len(s.tasks))
	for i, t := range s.tasks {
		views[i] = taskView{Status: t, Runs: append([]tenure.RunRecord{}, s.runs[t.Name]...)}
	}
	return views
}

// newestFirst are the last changes.
func newestFirst(log []tenure.Change, most int) []tenure.Change {
	last := slices.Clone(log[max(0, len(log)-most):])
	slices.Reverse(last)
	return append([]tenure.Change{}, last...)
}

// instance serves one instance.
func (h *Handler) instance(w http.ResponseWriter, r *request) error {
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	i, found := slices.BinarySearchFunc(s.all, r.name, func(i tenure.Instance, id string) int { return strings.Compare(i.ID, id) })
	if err := s.missing(partInstances); err != nil {
		return err
	}
	if !found {
		return a.lacks("instance " + r.name)
	}
	return writeJSON(w, http.StatusOK, struct {
		Instance tenure.Instance `json:"instance"`
		age
	}{s.all[i], a})
}

// tasks serves the state of all tasks.
func (h *Handler) tasks(w http.ResponseWriter, r *request) error {
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	if err := s.missing(partTasks); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Tasks []tenure.TaskStatus `json:"tasks"`
		age
	}{append([]tenure.TaskStatus{}, s.tasks...), a})
}

// terms serves the last terms of a role, or of all roles.
func (h *Handler) terms(w http.ResponseWriter, r *request) error {
	limit, err := number(r, "limit", defaultPage, maxTerms)
	if err != nil {
		return err
	}
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	terms, found := []tenure.TermRecord{}, false
	query := r.URL.Query() // once: it may be long, and there may be many roles
	role, asked := query.Get("role"), query.Has("role")
	for _, one := range s.roles {
		if !asked || one.name == role {
			if one.unlisted != nil {
				return one.unlisted
			}
			terms, found = append(terms, one.terms[:min(limit, len(one.terms))]...), true
		}
	}
	if !found && asked {
		if err := s.missing(partLog, partInstances, partTasks); err != nil { // which say what roles there are
			return err
		}
		return a.lacks(fmt.Sprintf("role %.100q", role))
	}
	return writeJSON(w, http.StatusOK, struct {
		Terms []tenure.TermRecord `json:"terms"`
		age
	}{terms, a})
}

// log serves the last changes, oldest first.
func (h *Handler) log(w http.ResponseWriter, r *request) error {
	limit, err := number(r, "limit", defaultPage, maxLog)
	if err != nil {
		return err
	}
	s, a, err := h.look(r.Context())
	if err != nil {
		return err
	}
	if err := s.missing(partLog); err != nil {
		return err
	}
	changes := s.log
	if after := r.URL.Query().Get("after"); after != "" {
		rest, kept := behind(s.log, after)
		if !kept && later(after, lastID(s.log)) { // another process has said it a moment ago
			asked := time.Now()
			if v, err := h.now.rarelyAnew(r.Context()); err == nil {
				s, a = v.value, ageOfSnapshot(v)
				rest, kept = behind(s.log, after)
				if !kept && v.at.Before(asked) && later(after, lastID(s.log)) { // Redis does not answer this process: it knows of nothing that came after it
					rest, kept = nil, true
					a.isStale()
				}
			}
			if err := s.missing(partLog); err != nil {
				return err
			}
		}
		if !kept {
			return &problem{Status: http.StatusNotFound, Code: "gone", Detail: fmt.Sprintf("after = %.100q: is none of the last %d changes", after, maxLog)}
		}
		changes = rest[:entries(rest, limit)]
	} else {
		changes = changes[newest(changes, limit):]
	}
	return writeJSON(w, http.StatusOK, struct {
		Log []tenure.Change `json:"log"`
		age
	}{append([]tenure.Change{}, changes...), a})
}

// entries is how many of these changes a reader gets who wants limit of them. An entry of the log
// is there as a whole: all of its changes have one ID, behind which the reader goes on.
func entries(log []tenure.Change, limit int) int {
	n := min(limit, len(log))
	for n > 0 && n < len(log) && log[n].ID == log[n-1].ID {
		n++
	}
	return n
}

// newest is where the last entries begin for a reader who wants limit changes. An entry is there as
// a whole here too.
func newest(log []tenure.Change, limit int) int {
	from := max(0, len(log)-limit)
	for from > 0 && from < len(log) && log[from].ID == log[from-1].ID {
		from--
	}
	return from
}

// behind are the changes after one, and whether that one is there.
func behind(log []tenure.Change, id string) (rest []tenure.Change, kept bool) {
	for i, change := range slices.Backward(log) {
		if change.ID == id {
			return log[i+1:], true
		}
	}
	return nil, false
}

// commandList serves the audit stream, newest first.
func (h *Handler) commandList(w http.ResponseWriter, r *request) error {
	limit, err := number(r, "limit", defaultPage, maxListed)
	if err != nil {
		return err
	}
	v, err := h.audit.get(r.Context())
	if err = cmp.Or(err, v.refused()); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Commands []tenure.CommandRecord `json:"commands"`
		age
	}{append([]tenure.CommandRecord{}, v.value[:min(limit, len(v.value))]...), ageOf(v)})
}

// command serves what became of one command.
func (h *Handler) command(w http.ResponseWriter, r *request) error {
	asked := time.Now()
	v, err := h.audit.get(r.Context())
	if err = cmp.Or(err, v.refused()); err != nil {
		return err
	}
	named := func(c tenure.CommandRecord) bool { return c.ID == r.name }
	i := slices.IndexFunc(v.value, named)
	if i < 0 && v.at.Before(asked) { // another process has sent it a moment ago
		v, err = h.audit.rarelyAnew(r.Context())
		if err = cmp.Or(err, v.refused()); err != nil {
			return err
		}
		i = slices.IndexFunc(v.value, named)
	}
	a := ageOf(v)
	if i < 0 {
		if v.at.Before(asked) {
			a.isStale()
		}
		return a.lacks("command " + r.name)
	}
	return writeJSON(w, http.StatusOK, struct {
		Command tenure.CommandRecord `json:"command"`
		age
	}{v.value[i], a})
}
