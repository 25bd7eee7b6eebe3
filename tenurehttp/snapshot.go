package tenurehttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/parallel"
)

// What a snapshot has at most.
const (
	maxRoles    = 200   // beside those of this process
	maxTerms    = 100   // of each role
	maxListed   = 500   // commands
	maxLog      = 1000  // changes
	maxPlotted  = 200   // tasks whose last runs are there
	shownRuns   = 30    // of each task
	maxPage     = 10000 // instances of one answer
	defaultPage = 100
	maxNamed    = 32 // instances that changes name: of more all are listed
)

// listing is all instances at one time. It is never written to.
type listing struct {
	status    tenure.ClusterStatus
	all       []tenure.Instance // by ID
	position  string            // the last change that was known before; "": none
	truncated bool
	failed    error // what somebody has to fix before the rest can be read; nil: all is there
}

// snapshot is all that is known of the cluster at one time. It is never written to.
type snapshot struct {
	server    tenure.RedisServer // as of the last minute
	status    tenure.ClusterStatus
	listed    time.Time         // before which no instance was read, but for those that changes name
	all       []tenure.Instance // by ID
	sorted    []int32           // places in all: those that are not active first
	roles     []role
	tasks     []tenure.TaskStatus
	runs      map[string][]tenure.RunRecord
	log       []tenure.Change // oldest first
	truncated bool
	unread    []unread // parts of which nothing is there
	noLeader  error    // why it is not known who leads the default role, if its role says so

	// What all readers get alike is encoded once, if somebody asks.
	list    func() ([]byte, error) // the instances as the endpoint of that name lists them
	plots   func() ([]byte, error) // the tasks with their last runs
	changes func() ([]byte, error) // the last changes, newest first
	pages   pageCache
}

// role is one of those that are led.
type role struct {
	name   string
	leader *tenure.LeaderInfo // nil: nobody leads
	status tenure.RoleStatus
	terms  []tenure.TermRecord
	recent func() ([]byte, error) // the last terms, as JSON

	unread   error // why neither leader nor status is there
	unlisted error // why the terms are not there
}

// survey takes snapshots. What did not change since the last one is not asked for again, but for
// the terms of one role and the runs of one task, each in its turn: their keys may have been
// spoilt, or have gone, without a change. One is taken at a time.
//
// All instances are listed beside it, once a second: of thousands that takes longer than all else.
// What has changed since the listing, by the log, is read again for each snapshot.
type survey struct {
	coordinator *tenure.Coordinator
	control     *tenure.Control
	instances   *cell[*listing]
	position    atomic.Pointer[string] // the last change that is known

	mu     sync.Mutex
	last   *snapshot // or what was read of one that was not complete in time; nil: there is none yet
	taken  int       // so many
	server tenure.RedisServer
	asked  time.Time // when Redis was last asked for that
}

// list asks for all instances.
func (s *survey) list(ctx context.Context) (*listing, error) {
	l := &listing{}
	if position := s.position.Load(); position != nil {
		l.position = *position
	}
	var err error
	l.status, l.all, err = s.control.Registry().Overview(ctx)
	switch l.truncated = errors.Is(err, tenure.ErrTruncated); {
	case errors.Is(err, tenure.ErrMisconfigured):
		l.failed = err
	case err != nil && !l.truncated:
		return nil, err
	}
	return l, nil
}

// readInstances takes the instances from the last listing, and those that have changed since.
func (s *survey) readInstances(ctx context.Context, n *snapshot) error {
	began, position := time.Now(), lastID(n.log)
	s.position.Store(&position)
	v, ok := s.instances.peek(listFor)
	var err error
	if !ok {
		v, err = s.instances.get(ctx)
		if err == nil && v.err == nil && time.Since(v.at) >= listFor {
			v, err = s.instances.anew(ctx)
		}
		if err = cmp.Or(err, v.err); err != nil {
			return err
		}
	}
	ids, few := v.value.changed(n.log)
	for ; !few; ids, few = v.value.changed(n.log) {
		v, err = s.instances.anew(ctx)
		if err = cmp.Or(err, v.err, ctx.Err()); err != nil {
			return err
		}
	}
	l := v.value
	n.status, n.all, n.listed, n.truncated = l.status, l.all, v.at, n.truncated || l.truncated
	if err = l.failed; l.all != nil && (err != nil || position != l.position || v.at.Before(began)) {
		n.status, n.all, err = s.control.Registry().OverviewOf(ctx, l.status, l.all, ids...)
	}
	switch {
	case err != nil && n.all == nil:
		err = n.lacks(partInstances, nil, err)
	case err != nil:
		err = n.lacks(partStatus, nil, err)
	}
	return err
}

// changed are the instances that the log names behind a listing. false: there are many, or it is
// not known which.
func (l *listing) changed(log []tenure.Change) (ids []string, few bool) {
	behind := slices.IndexFunc(log, func(c tenure.Change) bool { return later(c.ID, l.position) })
	switch {
	case behind < 0:
		return nil, len(log) == 0 && l.position == "" || len(log) > 0 && lastID(log) == l.position
	case behind == 0 && l.position != "": // what was there between is gone
		return nil, false
	}
	for _, c := range log[behind:] {
		if c.InstanceID != "" && named.MatchString(c.InstanceID) && !slices.Contains(ids, c.InstanceID) {
			if ids = append(ids, c.InstanceID); len(ids) > maxNamed {
				return ids[:maxNamed], false
			}
		}
	}
	return ids, true
}

// take asks Redis for all of it.
func (s *survey) take(ctx context.Context) (*snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := cmp.Or(s.last, &snapshot{})
	n := &snapshot{runs: make(map[string][]tenure.RunRecord)}
	var err error
	whole := func(e error) bool { // a listing that was cut is one all the same
		n.truncated = n.truncated || errors.Is(e, tenure.ErrTruncated)
		if e != nil && !errors.Is(e, tenure.ErrTruncated) {
			err = e
		}
		return err == nil
	}
	var failed error
	if n.log, failed = s.readLog(ctx, last.log); failed != nil {
		failed = n.lacks(partLog, nil, failed)
	}
	if !whole(failed) || !whole(s.readInstances(ctx, n)) {
		return nil, err
	}
	if n.tasks, failed = s.control.Tasks().List(ctx); failed != nil {
		failed = n.lacks(partTasks, nil, failed)
	}
	if !whole(failed) || !whole(n.nothing()) || !whole(s.readRoles(ctx, n, last)) || !whole(s.readRuns(ctx, n, last)) {
		return nil, err
	}
	n.reportUnread()
	if time.Since(s.asked) > askServer {
		if server, err := s.control.RedisServer(ctx); !errors.Is(err, tenure.ErrUnreachable) { // INFO may be refused: then nothing is known of it
			s.server, s.asked = server, time.Now()
		}
	}
	n.server = s.server
	n.sorted = byRank(n.all)
	n.list = sync.OnceValues(func() ([]byte, error) { return classicList(n) })
	n.plots = sync.OnceValues(func() ([]byte, error) { return json.Marshal(taskViews(n)) })
	n.changes = sync.OnceValues(func() ([]byte, error) { return json.Marshal(newestFirst(n.log, shownChanges)) })
	s.last = n
	s.taken++
	s.instances.renew(listLater)
	return n, nil
}

// ranks puts first what somebody should look at.
var ranks = []tenure.InstanceState{tenure.InstanceDown, tenure.InstanceDrifted, tenure.InstanceUnknown, tenure.InstanceJoining, tenure.InstanceDraining, tenure.InstanceActive}

// byRank returns the places of the instances, by rank, and by ID within a rank.
func byRank(all []tenure.Instance) []int32 {
	places := make(map[tenure.InstanceState]int, len(ranks))
	for place, state := range ranks {
		places[state] = place
	}
	ranked := make([][]int32, len(ranks))
	for i := range all {
		place, known := places[all[i].State]
		if !known {
			place = places[tenure.InstanceUnknown]
		}
		ranked[place] = append(ranked[place], int32(i)) //nolint:gosec // a listing has fewer
	}
	return slices.Concat(ranked...)
}

// readLog reads on behind the last change that is known.
func (s *survey) readLog(ctx context.Context, known []tenure.Change) ([]tenure.Change, error) {
	registry := s.control.Registry()
	if len(known) == 0 {
		return registry.Recent(ctx, maxLog)
	}
	more, err := registry.Log(ctx, known[len(known)-1].ID, maxLog)
	switch {
	case errors.Is(err, tenure.ErrNotFound): // Redis has lost it, or much has happened since
		return registry.Recent(ctx, maxLog)
	case err != nil:
		return nil, err
	case len(more) == 0:
		return known, nil
	}
	all := slices.Concat(known, more)
	over := max(0, len(all)-maxLog)
	for over > 0 && all[over].ID == all[over-1].ID && all[over].ID != lastID(all) { // an entry is there as a whole, or not
		over++
	}
	return all[over:], nil
}

// readRoles asks who leads each role. The terms are read again if they may have changed.
func (s *survey) readRoles(ctx context.Context, n, last *snapshot) error {
	before := make(map[string]role)
	for _, r := range last.roles {
		before[r.name] = r
	}
	changed, all := changedRoles(n.log, last.log)
	names := s.names(n, last)
	roles, there := make([]role, len(names)), make([]bool, len(names))
	err := parallel.Each(len(names), atOnce, func(i int) error {
		old, known := before[names[i]]
		var err error
		roles[i], err = s.readRole(ctx, n, names[i], old, all || changed[names[i]] || !known || old.unlisted != nil || i == s.taken%len(names))
		there[i] = err == nil
		return err
	})
	if err != nil { // the next snapshot goes on with what is there: else none might ever be complete in time
		begun := &snapshot{log: n.log, tasks: last.tasks, runs: last.runs}
		for i, name := range names {
			if r, known := before[name]; there[i] {
				begun.roles = append(begun.roles, roles[i])
			} else if known {
				r.unlisted = err // its terms are read again
				begun.roles = append(begun.roles, r)
			}
		}
		s.last = begun
		return err
	}
	var vacant []string
	for i, r := range roles {
		if r.unread != nil {
			_ = n.lacks(partRoles, &names[i], r.unread) // which it takes
		}
		// While nobody leads a role, both may need its terms: that is said once.
		if r.unlisted != nil && (r.unread == nil || r.unread.Error() != r.unlisted.Error()) {
			_ = n.lacks(partRoles, &names[i], r.unlisted)
		}
		if s.isDefault(r.name) {
			n.noLeader = r.unread
			if r.leader != nil && n.missing(partStatus, partInstances) != nil {
				n.status.Leader = *r.leader
			}
		}
		if r.status.Done() && !s.takesPart(r.name) {
			continue
		}
		if r.leader != nil || len(r.terms) > 0 || r.status.Waiting != "" || cmp.Or(r.unread, r.unlisted) != nil || s.takesPart(r.name) {
			n.roles = append(n.roles, r)
			if r.leader == nil && r.unread == nil && !s.isDefault(r.name) {
				vacant = append(vacant, called(r.name))
			}
		}
	}
	n.reportVacant(vacant)
	return nil
}

// changedRoles are the roles that the log names behind its last known change. all is set if any
// role may have changed, because what came behind that is not kept.
func changedRoles(log, known []tenure.Change) (changed map[string]bool, all bool) {
	changed = make(map[string]bool)
	if lastID(log) == lastID(known) {
		return changed, false
	}
	more, kept := behind(log, lastID(known))
	for _, c := range more {
		changed[c.Role] = true
	}
	return changed, !kept
}

// isDefault reports whether a role is that of ClusterStatus.Leader.
func (s *survey) isDefault(name string) bool {
	if s.coordinator == nil {
		return name == ""
	}
	return name == s.coordinator.Options().Election.Role && !s.coordinator.Options().NoDefaultRole
}

// readRole asks who leads a role. changed: its terms are not those of old. What somebody has to fix
// is an error of the role.
func (s *survey) readRole(ctx context.Context, n *snapshot, name string, old role, changed bool) (r role, err error) {
	r = role{name: name, terms: old.terms, recent: old.recent}
	r.status, err = s.control.Role(ctx, name)
	switch {
	case errors.Is(err, tenure.ErrMisconfigured):
		r.unread, changed = err, true
	case err != nil:
		return r, err
	case r.status.Led:
		r.status.Leader.Address = n.address(r.status.Leader)
		leader := r.status.Leader
		r.leader = &leader
	}
	if changed || tokenOf(r.leader) != tokenOf(old.leader) {
		terms, err := s.control.Terms(ctx, name, maxTerms)
		switch {
		case errors.Is(err, tenure.ErrMisconfigured):
			r.unlisted = err
		case err != nil:
			return r, err
		}
		r.terms, r.recent = terms, sync.OnceValues(func() ([]byte, error) {
			return json.Marshal(append([]tenure.TermRecord{}, terms[:min(len(terms), shownTerms)]...))
		})
	}
	return r, nil
}

// atOnce is how many questions of a snapshot are on at once: of a thousand roles one after the
// other, none would ever be complete in time.
const atOnce = 16

func lastID(log []tenure.Change) string {
	if len(log) == 0 {
		return ""
	}
	return log[len(log)-1].ID
}

func tokenOf(leader *tenure.LeaderInfo) int64 {
	if leader == nil {
		return -1
	}
	return leader.Token
}

// address is where the leader is reached; "" if it is not known, or another program leads.
func (s *snapshot) address(leader tenure.LeaderInfo) string {
	i, found := slices.BinarySearchFunc(s.all, leader.InstanceID, func(i tenure.Instance, id string) int { return cmp.Compare(i.ID, id) })
	if !found || leader.Token == 0 {
		return ""
	}
	return s.all[i].Address
}

// takesPart reports whether this process is a candidate of a role.
func (s *survey) takesPart(name string) bool {
	if s.coordinator == nil {
		return false
	}
	_, is := s.coordinator.Role(name)
	return is
}

// names are the roles of this process, and then all others that are heard of, by name. While a part
// that names some cannot be read, those of the last snapshot count too.
func (s *survey) names(n, last *snapshot) []string {
	var own []string
	if s.coordinator != nil {
		for _, e := range s.coordinator.Roles() {
			own = append(own, e.Role())
		}
	}
	others := map[string]bool{"": true}
	for _, i := range n.all {
		for _, name := range i.Leading {
			if isRole(name) {
				others[name] = true
			}
		}
	}
	for _, c := range n.log {
		if (c.Type == tenure.ChangeElected || c.Type == tenure.ChangeEnded) && isRole(c.Role) {
			others[c.Role] = true
		}
	}
	for _, t := range n.tasks {
		if isRole(t.Role) {
			others[t.Role] = true
		}
	}
	if n.missing(partInstances, partLog, partTasks) != nil {
		for _, r := range last.roles {
			others[r.name] = true
		}
	}
	for _, name := range own {
		delete(others, name)
	}
	if s.coordinator != nil && s.coordinator.Options().Election.Role != "" { // "" is that one there
		delete(others, "")
	}
	found := slices.Sorted(maps.Keys(others))
	if len(found) > maxRoles {
		found, n.truncated = found[:maxRoles], true
	}
	return append(own, found...)
}

// readRuns reads the last runs of the tasks that have run since.
func (s *survey) readRuns(ctx context.Context, n, last *snapshot) error {
	before := make(map[string]tenure.TaskStatus)
	for _, t := range last.tasks {
		before[t.Name] = t
	}
	plotted := n.tasks[:min(len(n.tasks), maxPlotted)]
	runs, unread, there := make([][]tenure.RunRecord, len(plotted)), make([]error, len(plotted)), make([]bool, len(plotted))
	err := parallel.Each(len(plotted), atOnce, func(i int) error {
		t := plotted[i]
		old, known := before[t.Name]
		kept, read := last.runs[t.Name]
		if known && read && old.Last == t.Last && i != s.taken%len(plotted) {
			runs[i], there[i] = kept, true
			return nil
		}
		var err error
		runs[i], err = s.control.Tasks().Runs(ctx, t.Name, shownRuns)
		there[i] = err == nil
		if errors.Is(err, tenure.ErrMisconfigured) {
			unread[i], err = err, nil
		}
		return err
	})
	if err != nil { // see readRoles
		s.last = &snapshot{log: n.log, roles: n.roles, runs: n.runs}
		for i, t := range plotted {
			if there[i] {
				s.last.tasks, s.last.runs[t.Name] = append(s.last.tasks, t), runs[i]
			}
		}
		return err
	}
	for i, t := range plotted {
		if unread[i] == nil {
			n.runs[t.Name] = runs[i]
			continue
		}
		_ = n.lacks(partRuns, &t.Name, unread[i]) // which it takes
	}
	return nil
}

// age says how old an answer is. It is a part of each that comes from Redis.
type age struct {
	At        time.Time `json:"at"` // by this machine's clock
	Age       float64   `json:"age_seconds"`
	Stale     bool      `json:"stale"` // Redis gives no answer: this is the last one
	Error     string    `json:"error,omitempty"`
	Truncated bool      `json:"truncated,omitempty"`

	passed time.Duration // since leaders were read, which may be after At
}

func ageOf[T any](v view[T]) age {
	passed := max(time.Since(v.at), 0)
	a := age{passed: passed, At: v.at.UTC(), Age: passed.Round(time.Millisecond).Seconds()}
	if v.err != nil {
		a.Error = v.err.Error()
	}
	if v.err != nil || passed > staleAfter {
		a.isStale()
	}
	return a
}

// isStale says of an answer that Redis has not given a younger one to who has asked for that.
func (a *age) isStale() {
	a.Stale, a.Error = true, cmp.Or(a.Error, fmt.Sprintf("redis has given no answer within %v", waitBound))
}

// lacks is the error for what an answer does not have: if it is stale, that may be there by now.
func (a *age) lacks(what string) error {
	if a.Stale {
		return &problem{Status: http.StatusServiceUnavailable, Code: "unreachable", Detail: a.Error, retry: 1}
	}
	return fmt.Errorf("%w: %s", tenure.ErrNotFound, what)
}

// look returns the snapshot and its age.
func (h *Handler) look(ctx context.Context) (*snapshot, age, error) {
	v, err := h.now.get(ctx)
	if err != nil {
		return nil, age{}, err
	}
	return v.value, ageOfSnapshot(v), nil
}

func ageOfSnapshot(v view[*snapshot]) age {
	a := ageOf(v)
	a.Truncated = v.value.truncated
	a.At, a.Age = v.value.listed.UTC(), max(time.Since(v.value.listed), 0).Round(time.Millisecond).Seconds()
	return a
}

// aged is a leader as it is by now, if it has not renewed since.
func aged(leader *tenure.LeaderInfo, a age) *tenure.LeaderInfo {
	if leader == nil {
		return nil
	}
	l := *leader
	if l.Remaining > 0 {
		l.Remaining = max(l.Remaining-a.passed, 0)
	}
	return &l
}

// agedStatus is a role as it is by now, if nothing has changed since.
func agedStatus(s tenure.RoleStatus, a age) tenure.RoleStatus {
	if s.Led {
		s.Leader = *aged(&s.Leader, a)
	}
	if s.For > 0 {
		s.For += a.passed
	}
	s.Wait = max(s.Wait-a.passed, 0)
	return s
}
