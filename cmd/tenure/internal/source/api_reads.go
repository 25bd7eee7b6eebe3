package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// What follows are the documents of the API, as far as they are read. The snapshots of package
// tenure have their durations in seconds there.

// age says how old a document is.
type age struct {
	Age       float64 `json:"age_seconds"`
	Stale     bool    `json:"stale"`
	Error     string  `json:"error"`
	Truncated bool    `json:"truncated"`
}

// stale is the error of a document that is the last one.
func (a age) stale() error {
	if !a.Stale {
		return nil
	}
	return &StaleError{Age: seconds(a.Age), Text: clipped(strings.TrimPrefix(a.Error, "tenure: "))}
}

// err is what is wrong with a document.
func (a age) err() error {
	if err := a.stale(); err != nil {
		return err
	}
	if a.Truncated {
		return fmt.Errorf("%w: the API has not read all", tenure.ErrTruncated)
	}
	return nil
}

// clipped is a text that a server has said, cut where no sentence of it ends later.
func clipped(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

type statusDocument struct {
	Namespace string `json:"namespace"`
	Active    int    `json:"active_instances"`
	age
}

type leaderInfo struct {
	tenure.LeaderInfo
	Remaining float64 `json:"remaining_seconds"`
}

func (l leaderInfo) value() tenure.LeaderInfo {
	l.LeaderInfo.Remaining = seconds(l.Remaining)
	return l.LeaderInfo
}

type termRecord struct {
	tenure.TermRecord
	Gap float64 `json:"gap_seconds"`
}

func (t termRecord) value() tenure.TermRecord {
	t.TermRecord.Gap = seconds(t.Gap)
	return t.TermRecord
}

type instance struct {
	tenure.Instance
	Age float64 `json:"age_seconds"`
}

func (i instance) value() tenure.Instance {
	i.Instance.Age = seconds(i.Age)
	return i.Instance
}

type taskStatus struct {
	tenure.TaskStatus
	Error string `json:"error"`
}

func (t taskStatus) value() tenure.TaskStatus {
	if t.Error != "" {
		t.Err = errors.New(t.Error)
	}
	return t.TaskStatus
}

type roleStatus struct {
	tenure.RoleStatus
	Leader   leaderInfo `json:"leader"`
	Last     termRecord `json:"last"`
	LeaseTTL float64    `json:"lease_ttl_seconds"`
	For      float64    `json:"for_seconds"`
	Wait     float64    `json:"wait_seconds"`
}

func (r roleStatus) value() tenure.RoleStatus {
	s := r.RoleStatus
	s.Leader, s.Last = r.Leader.value(), r.Last.value()
	s.LeaseTTL, s.For, s.Wait = seconds(r.LeaseTTL), seconds(r.For), seconds(r.Wait)
	return s
}

type clusterStatus struct {
	tenure.ClusterStatus
	Leader leaderInfo `json:"leader"`
}

type roleDocument struct {
	Status roleStatus   `json:"status"`
	Terms  []termRecord `json:"terms"`
	age
}

type snapshotDocument struct {
	Namespace string `json:"namespace"`
	Redis     struct {
		Address string  `json:"address"`
		Kind    string  `json:"kind"`
		Version string  `json:"version"`
		Uptime  float64 `json:"uptime_seconds"`
	} `json:"redis"`
	Status clusterStatus `json:"status"`
	This   struct {
		ID string `json:"instance_id"`
	} `json:"this"`
	Roles []struct {
		Status   roleStatus `json:"status"`
		Election election   `json:"election"`
	} `json:"roles"`
	Instances struct {
		Matched int        `json:"matched"`
		Items   []instance `json:"items"`
	} `json:"instances"`
	Tasks []struct {
		Status taskStatus `json:"status"`
	} `json:"tasks"`
	Log    []tenure.Change `json:"log"` // newest first
	Unread []unread        `json:"unread"`
	age
}

// election is what the process that answers knows of an election of its own.
type election struct {
	Waiting tenure.WaitReason `json:"waiting"`
	Error   string            `json:"error"`
}

// ownWaits are the reasons for which a candidate does not ask for the lease.
var ownWaits = map[tenure.WaitReason]string{
	tenure.WaitPenalty: "stands back after a term of its own", tenure.WaitUnhealthy: "fails its health check", tenure.WaitIneligible: "may not lead", tenure.WaitDraining: "drains",
}

// text is why the candidate does not lead, if it is not the lease; "": it knows of nothing.
func (e election) text() string {
	why := ownWaits[e.Waiting]
	switch problem := strings.TrimPrefix(e.Error, "tenure: "); {
	case problem == "":
		return why
	case why == "":
		return "reports: " + problem
	default:
		return why + ": " + problem
	}
}

// unread is a part that the API could not read, though Redis answers.
type unread struct {
	Part  string `json:"part"`
	Name  string `json:"name"` // of the role, or of the task
	Error string `json:"error"`
}

// partWords are the words for parts of which there are several.
var partWords = map[string]string{"roles": "role", "runs": "the runs of"}

func (u unread) text() string {
	part := cmp.Or(partWords[u.Part], u.Part)
	return clipped(unreadText(strings.TrimSpace(part+" "+u.Name), errors.New(u.Error)))
}

// lacks is the error of a part that could not be read; nil: it is there.
func (s *snapshotDocument) lacks(part string) error {
	for _, u := range s.Unread {
		if u.Part == part {
			return &apiError{kind: tenure.ErrMisconfigured, text: clipped(u.Error), code: "misconfigured"}
		}
	}
	return nil
}

// values turns what was read into what the library has.
func values[D interface{ value() T }, T any](documents []D) []T {
	var all []T
	for _, d := range documents {
		all = append(all, d.value())
	}
	return all
}

// The pages in which instances are read.
const (
	pageSize = 1000
	maxPages = 200
)

// pages reads the snapshot page by page, while more says so of the last instance of a page.
func (a *API) pages(ctx context.Context, states []tenure.InstanceState, more func(tenure.Instance) bool) (first snapshotDocument, all []tenure.Instance, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for _, state := range states {
		query.Add("state", string(state))
	}
	seen := make(map[string]bool)
	for page := range maxPages {
		var s snapshotDocument
		query.Set("offset", strconv.Itoa(page*pageSize))
		if err := a.get(ctx, "snapshot", query, &s); err != nil {
			return first, nil, err
		}
		if page == 0 {
			first = s
		}
		for _, i := range values(s.Instances.Items) {
			if !seen[i.ID] { // they may have moved between two pages
				seen[i.ID] = true
				all = append(all, i)
			}
		}
		if len(s.Instances.Items) == 0 || (page+1)*pageSize >= s.Instances.Matched || !more(all[len(all)-1]) {
			break
		}
	}
	slices.SortFunc(all, func(x, y tenure.Instance) int { return cmp.Compare(x.ID, y.ID) })
	return first, all, nil
}

// Cluster reads the snapshot, and the given roles if it does not have them.
func (a *API) Cluster(ctx context.Context, roles ...string) (c Cluster, err error) {
	c.At = time.Now().UTC()
	s, all, err := a.pages(ctx, nil, func(i tenure.Instance) bool { return i.State != tenure.InstanceActive })
	if err != nil {
		return c, err
	}
	c.Server = Server{
		Kind: clipped(s.Redis.Kind), Version: clipped(s.Redis.Version), Uptime: s.Redis.Uptime, Address: s.Redis.Address, API: a.base.Redacted(), RoundTrip: time.Since(c.At).Seconds(), Age: s.Age, Stale: s.Stale, Error: clipped(s.Error),
	}
	if want := a.options.Namespace; want != "" && s.Namespace != want {
		return c, &apiError{text: fmt.Sprintf("the API at %s serves the namespace %s, not %s", a.base.Redacted(), s.Namespace, want)}
	}
	c.Status, c.Instances = s.Status.ClusterStatus, all
	c.Status.Leader, c.Status.Namespace = s.Status.Leader.value(), s.Namespace
	c.Said = make(map[string]string)
	for _, r := range s.Roles {
		c.Roles = append(c.Roles, r.Status.value())
		if text := r.Election.text(); text != "" && s.This.ID != "" {
			c.Said[r.Status.Role] = clipped(s.This.ID + ", which answers, " + text)
		}
	}
	for _, u := range s.Unread {
		c.Unread = append(c.Unread, u.text())
		if u.Part == "roles" {
			roles = slices.DeleteFunc(slices.Clone(roles), func(name string) bool { return name == u.Name })
		}
	}
	if len(c.Roles) == 0 && s.lacks("roles") == nil { // as over Redis: the default one, of which nothing is known
		roles = append([]string{""}, roles...)
	}
	for _, name := range roles {
		if slices.ContainsFunc(c.Roles, func(r tenure.RoleStatus) bool { return r.Role == name }) {
			continue
		}
		d, err := a.role(ctx, name, 0)
		if err != nil {
			return c, err
		}
		c.Roles = append(c.Roles, d.Status.value())
	}
	slices.SortFunc(c.Roles, func(x, y tenure.RoleStatus) int { return cmp.Compare(x.Role, y.Role) })
	for _, t := range s.Tasks {
		c.Tasks = append(c.Tasks, t.Status.value())
	}
	c.Recent = s.Log[:min(len(s.Log), recentShown)]
	slices.Reverse(c.Recent)
	return c, s.err()
}

func (a *API) role(ctx context.Context, role string, terms int) (d roleDocument, err error) {
	query := url.Values{"limit": {strconv.Itoa(min(terms, 100))}}
	if role != "" {
		query.Set("role", role)
	}
	return d, a.get(ctx, "role", query, &d)
}

// Instances reads all that are in one of the states.
func (a *API) Instances(ctx context.Context, states []tenure.InstanceState) ([]tenure.Instance, error) {
	if err := a.mine(ctx); err != nil {
		return nil, err
	}
	first, all, err := a.pages(ctx, states, func(tenure.Instance) bool { return true })
	if err != nil {
		return nil, err
	}
	if err := first.lacks("instances"); err != nil {
		return nil, err
	}
	return all, first.err()
}

// Instance reads one.
func (a *API) Instance(ctx context.Context, id string) (tenure.Instance, error) {
	if err := a.mine(ctx); err != nil {
		return tenure.Instance{}, err
	}
	var d struct {
		Instance instance `json:"instance"`
		age
	}
	if err := a.get(ctx, "instances/"+url.PathEscape(id), nil, &d); err != nil {
		return tenure.Instance{}, err
	}
	return d.Instance.value(), d.stale()
}

// Leader reads who leads.
func (a *API) Leader(ctx context.Context, role string) (tenure.LeaderInfo, error) {
	if err := a.mine(ctx); err != nil {
		return tenure.LeaderInfo{}, err
	}
	d, err := a.role(ctx, role, 0)
	if err != nil {
		return tenure.LeaderInfo{}, err
	}
	if !d.Status.Led {
		return tenure.LeaderInfo{}, cmp.Or(d.stale(), tenure.ErrNoLeader)
	}
	return d.Status.value().Leader, d.stale()
}

// Now is the time by Redis's clock, if somebody leads the default role, or else by this machine's.
func (a *API) Now(ctx context.Context) time.Time {
	d, err := a.role(ctx, "", 0)
	if s := d.Status.value(); err == nil && !d.Stale && s.Led && s.Leader.Token != 0 && !s.Leader.Since.IsZero() && s.For > 0 {
		return s.Leader.Since.Add(s.For)
	}
	return time.Now()
}

// Terms reads the terms of a role.
func (a *API) Terms(ctx context.Context, role string, limit int) ([]tenure.TermRecord, error) {
	if err := a.mine(ctx); err != nil {
		return nil, err
	}
	d, err := a.role(ctx, role, limit)
	if err != nil {
		return nil, err
	}
	return values(d.Terms), d.stale()
}

// Tasks reads the tasks of a prefix. An API has those that its program has registered, and of all
// others a part if there are many.
func (a *API) Tasks(ctx context.Context, prefix string) ([]tenure.TaskStatus, error) {
	if err := a.mine(ctx); err != nil {
		return nil, err
	}
	var d struct {
		Tasks []taskStatus `json:"tasks"`
		age
	}
	if err := a.get(ctx, "tasks", nil, &d); err != nil {
		return nil, err
	}
	tasks := slices.DeleteFunc(values(d.Tasks), func(t tenure.TaskStatus) bool { return !strings.HasPrefix(t.Name, prefix) })
	err := d.err()
	if errors.Is(err, tenure.ErrTruncated) {
		err = fmt.Errorf("%w (fix: --redis, or --api of a program that runs them)", err)
	}
	return tasks, err
}

// list reads a list with a limit.
func (a *API) list(ctx context.Context, path string, limit, most int, to any) error {
	if err := a.mine(ctx); err != nil {
		return err
	}
	return a.get(ctx, path, url.Values{"limit": {strconv.Itoa(min(max(limit, 0), most))}}, to)
}

// Runs reads the last runs of a task. One that is not known has none.
func (a *API) Runs(ctx context.Context, task string, limit int) ([]tenure.RunRecord, error) {
	var d struct {
		Runs []tenure.RunRecord `json:"runs"`
		age
	}
	if err := a.list(ctx, "tasks/"+url.PathEscape(task)+"/runs", limit, 1000, &d); err != nil && !errors.Is(err, tenure.ErrNotFound) {
		return nil, err
	}
	return d.Runs, d.stale()
}

// Commands reads what was asked for.
func (a *API) Commands(ctx context.Context, limit int) ([]tenure.CommandRecord, error) {
	var d struct {
		Commands []tenure.CommandRecord `json:"commands"`
		age
	}
	if err := a.list(ctx, "commands", limit, 500, &d); err != nil {
		return nil, err
	}
	return d.Commands, d.stale()
}

// Recent reads the last changes.
func (a *API) Recent(ctx context.Context, limit int) ([]tenure.Change, error) {
	var d logDocument
	if err := a.list(ctx, "log", limit, maxLog, &d); err != nil {
		return nil, err
	}
	return d.Log, d.stale()
}

// WaitFor asks again and again how many are active.
func (a *API) WaitFor(ctx context.Context, n int) error {
	unanswered := tenure.ErrUnreachable // why it is not known how many are active; nil: it is
	for {
		s, err := a.status(ctx)
		switch {
		case err == nil && !s.Stale && s.Active >= n:
			return nil
		case err != nil && !Passing(err) && !errors.Is(err, context.Cause(ctx)):
			return err
		case err == nil:
			unanswered = s.stale()
		case ctx.Err() == nil:
			unanswered = err
		}
		select {
		case <-ctx.Done():
			if unanswered != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), unanswered)
			}
			return context.Cause(ctx)
		case <-time.After(lookInterval / 4):
		}
	}
}

// status asks once how many are active, and waits for the answer for no longer than Timeout.
func (a *API) status(ctx context.Context) (s statusDocument, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.options.Timeout, fmt.Errorf("%w within %v", tenure.ErrUnreachable, a.options.Timeout))
	defer cancel()
	if err = a.mine(ctx); err == nil {
		err = a.get(ctx, "status", nil, &s)
	}
	return s, err
}
