package source

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/parallel"
	"github.com/tenure-go/tenure/internal/store"
)

// Redis is the source that asks Redis itself. What changes something is that of tenure.Control.
type Redis struct {
	*tenure.Control
	Client    redis.UniversalClient
	Namespace string
	Timeout   time.Duration // of one question, while changes are followed
}

var _ Source = (*Redis)(nil)

// lookInterval is how often Follow reads the log.
const lookInterval = time.Second

// recentShown is how many changes Cluster has.
const recentShown = 10

// Patient has a client that nobody has used yet wait for each answer for at least so long. That of
// OptionsFromEnv waits for a tenth of a lease, since it is made for a program that takes part; who
// only looks has time, and contexts bound the questions.
func Patient(client redis.UniversalClient, timeout time.Duration) {
	var read *time.Duration
	switch c := client.(type) {
	case *redis.Client:
		read = &c.Options().ReadTimeout
	case *redis.ClusterClient:
		read = &c.Options().ReadTimeout
	default:
		return
	}
	if *read > 0 { // else it waits without an end
		*read = max(*read, timeout)
	}
}

// Close closes the client.
func (r *Redis) Close() { _ = r.Client.Close() }

// Ready asks Redis for a sign of life.
func (r *Redis) Ready(ctx context.Context) error {
	err := r.ping(ctx)
	switch {
	case isUnsaved(err):
		return fmt.Errorf("%w: %w (fix: see in the log of Redis why it cannot save its data)", tenure.ErrUnreachable, err)
	case err != nil:
		return r.unreachable(ctx, err)
	}
	if _, clustered := r.Client.(*redis.ClusterClient); clustered { // another server may have answered
		if _, err := r.Control.Terms(ctx, "", 1); errors.Is(err, tenure.ErrUnreachable) { // one key: also while a slot moves
			return err
		}
	}
	return nil
}

// ping asks any server for a sign of life. If it is another one that cannot save its data, that
// does not matter.
func (r *Redis) ping(ctx context.Context) error {
	return abandon(ctx, func() error {
		err := r.Client.Ping(ctx).Err()
		if isUnsaved(err) {
			if server, unknown := r.server(ctx); unknown == nil {
				err = server.Ping(ctx).Err()
			}
		}
		return err
	})
}

// abandon returns what ask returns, or once ctx is done its cause: the client waits for an answer
// also if its context was canceled meanwhile.
func abandon(ctx context.Context, ask func() error) error {
	answered := make(chan error, 1)
	go func() { answered <- ask() }() // ends with the timeout of the client
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isUnsaved reports whether Redis refuses writes since it cannot save its data, which it says to
// PING too. It answers reads.
func isUnsaved(err error) bool { return redis.HasErrorPrefix(err, "MISCONF") }

// Cluster asks for everything.
func (r *Redis) Cluster(ctx context.Context, roles ...string) (c Cluster, err error) {
	c.At = time.Now().UTC()
	if c.Server, err = r.about(ctx); err != nil {
		return c, err
	}
	var cut, fix error
	parts := 0
	whole := func(part string, err error) error {
		switch {
		case errors.Is(err, tenure.ErrTruncated):
			cut = err
			return nil
		case errors.Is(err, tenure.ErrMisconfigured): // the others may be there
			fix = err
			c.Unread = append(c.Unread, unreadText(part, err))
			return nil
		case err == nil:
			parts++
		}
		return err
	}
	c.Status, c.Instances, err = r.Registry().Overview(ctx)
	if err = whole("status", err); err != nil {
		return c, err
	}
	var heard store.RoleNames
	for _, i := range c.Instances {
		heard.Leading(i.Leading)
	}
	if cut != nil { // those that are not there may lead others
		heard.Cut()
	}
	if c.Tasks, err = r.Control.Tasks().List(ctx); errors.Is(err, tenure.ErrTruncated) { // it is asked again and again, by top
		err = fmt.Errorf("%w (fix: tenure tasks lists all)", err)
	}
	if err = whole("tasks", err); err != nil {
		return c, err
	}
	changes, err := r.Registry().Recent(ctx, heard.Log())
	if err = whole("log", err); err != nil {
		return c, err
	}
	c.Recent = last(changes, recentShown)
	if parts == 0 && c.Instances == nil && cut == nil {
		return c, fix
	}
	for _, t := range c.Tasks {
		heard.Note(t.Role)
	}
	for _, change := range changes {
		heard.Note(change.Role)
	}
	if err := r.readRoles(ctx, &c, heard.Sorted(), roles); err != nil {
		return c, err
	}
	if slices.ContainsFunc(c.Roles, func(s tenure.RoleStatus) bool { return !s.Led }) {
		said := make(chan string, 1)
		_ = abandon(ctx, func() error { said <- r.refuses(ctx); return nil })
		select {
		case c.Server.Refuses = <-said:
		default: // there was no time for it
		}
	}
	return c, cut
}

// refuses is why the server refuses every new lease, as far as PING and INFO say so; "": they say
// no reason. In a cluster it is the master that has the keys of the namespace.
func (r *Redis) refuses(ctx context.Context) string {
	server, err := r.server(ctx)
	if err != nil {
		return ""
	}
	if isUnsaved(server.Ping(ctx).Err()) {
		return "it cannot save its data, and says MISCONF"
	}
	info := make(map[string]string)
	for _, section := range []string{"replication", "memory"} {
		text, err := server.Info(ctx, section).Result() // it may be refused
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
	}
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	exempt, _ := strconv.ParseInt(info["mem_not_counted_for_evict"], 10, 64) // what waits for replicas that lag, and for the append-only file
	most, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
	switch {
	case info["role"] == "slave":
		return "it is a replica"
	case most > 0 && used-exempt >= most && info["maxmemory_policy"] == "noeviction":
		return "it is full"
	case info["min_slaves_good_slaves"] == "0": // which INFO has if min-replicas-to-write is on
		return "it has no replica that is in step, and min-replicas-to-write asks for some"
	}
	return ""
}

// server is a client of the server that has the keys of the namespace.
func (r *Redis) server(ctx context.Context) (redis.UniversalClient, error) {
	if cluster, is := r.Client.(*redis.ClusterClient); is {
		return cluster.MasterForKey(ctx, r.Namespace)
	}
	return r.Client, nil
}

// Now is the time by Redis's clock, or by this machine's if Redis does not say it.
func (r *Redis) Now(ctx context.Context) time.Time {
	said := make(chan time.Time, 1)
	_ = abandon(ctx, func() error {
		server, err := r.server(ctx)
		if err == nil {
			var now time.Time
			if now, err = server.Time(ctx).Result(); err == nil {
				said <- now
			}
		}
		return err
	})
	select {
	case now := <-said:
		return now
	default:
		return time.Now()
	}
}

// last are the changes of the last entries of the log, so many. An entry about several instances is
// as many changes.
func last(changes []tenure.Change, entries int) []tenure.Change {
	for i, change := range slices.Backward(changes) {
		if i == len(changes)-1 || change.ID != changes[i+1].ID {
			entries--
		}
		if entries < 0 {
			return changes[i+1:]
		}
	}
	return changes
}

// unreadText says that a part is not there.
func unreadText(part string, err error) string {
	return fmt.Sprintf("%s: %s", part, strings.TrimPrefix(err.Error(), "tenure: "))
}

// readRoles asks for the roles that were heard of, as tenure.Control.Roles does, but lists nothing
// again. A role that cannot be read does not keep the others from being there.
func (r *Redis) readRoles(ctx context.Context, c *Cluster, heard, also []string) error {
	names := slices.Concat(heard, also, []string{""})
	slices.Sort(names)
	names = slices.Compact(names)
	roles, unread := make([]tenure.RoleStatus, len(names)), make([]error, len(names))
	if err := parallel.Each(len(names), store.RolesAtOnce, func(i int) (err error) {
		roles[i], err = r.Control.Role(ctx, names[i])
		if errors.Is(err, tenure.ErrMisconfigured) {
			unread[i], err = err, nil
		}
		return err
	}); err != nil {
		return err
	}
	for i, s := range roles {
		if l := &s.Leader; s.Led && l.Token != 0 {
			if at := slices.IndexFunc(c.Instances, func(i tenure.Instance) bool { return i.ID == l.InstanceID }); at >= 0 {
				l.Address = c.Instances[at].Address
			}
		}
		switch {
		case unread[i] != nil:
			c.Unread = append(c.Unread, unreadText(strings.TrimSpace("role "+names[i]), unread[i]))
		case (s.Led || s.Last.Token != 0 || s.Waiting != "") && !s.Done() || slices.Contains(also, names[i]) || len(names) == 1:
			c.Roles = append(c.Roles, s)
		}
	}
	return nil
}

// about asks what the server is. What INFO does not say is not known.
func (r *Redis) about(ctx context.Context) (s Server, err error) {
	began := time.Now()
	if err := r.ping(ctx); err != nil && !isUnsaved(err) {
		return s, r.unreachable(ctx, err)
	}
	s.RoundTrip = time.Since(began).Seconds()
	if single, ok := r.Client.(*redis.Client); ok {
		if _, _, err := net.SplitHostPort(single.Options().Addr); err == nil {
			s.Address = single.Options().Addr
		}
	}
	if server, err := r.Control.RedisServer(ctx); err == nil { // INFO may be refused
		s.Kind, s.Version, s.Uptime = server.Kind, server.Version, server.Uptime.Seconds()
	}
	return s, nil
}

// unreachable classes an error of the client as the library does, by asking it the same.
func (r *Redis) unreachable(ctx context.Context, err error) error {
	if _, asked := r.Control.Leader(ctx, ""); asked != nil && !errors.Is(asked, tenure.ErrNoLeader) {
		return asked
	}
	return fmt.Errorf("%w: %w", tenure.ErrUnreachable, err)
}

// Instances lists those in one of the states.
func (r *Redis) Instances(ctx context.Context, states []tenure.InstanceState) ([]tenure.Instance, error) {
	return r.Registry().Instances(ctx, tenure.InstanceQuery{States: states})
}

// Instance returns one.
func (r *Redis) Instance(ctx context.Context, id string) (tenure.Instance, error) {
	return r.Registry().Instance(ctx, id)
}

// Leader asks who leads, and looks up where that one is reached.
func (r *Redis) Leader(ctx context.Context, role string) (tenure.LeaderInfo, error) {
	leader, err := r.Control.Leader(ctx, role)
	if err == nil && leader.Token != 0 {
		if instance, err := r.Registry().Instance(ctx, leader.InstanceID); err == nil {
			leader.Address = instance.Address
		}
	}
	return leader, err
}

// Tasks lists the tasks of a prefix: as many as the library lists.
func (r *Redis) Tasks(ctx context.Context, prefix string) ([]tenure.TaskStatus, error) {
	tasks, err := r.Control.Tasks().ListNamed(ctx, prefix, math.MaxInt)
	if errors.Is(err, tenure.ErrTruncated) {
		err = fmt.Errorf("%w (fix: --prefix)", err)
	}
	return tasks, err
}

// Runs lists the last runs of a task.
func (r *Redis) Runs(ctx context.Context, task string, limit int) ([]tenure.RunRecord, error) {
	return r.Control.Tasks().Runs(ctx, task, limit)
}

// Recent lists the last changes.
func (r *Redis) Recent(ctx context.Context, limit int) ([]tenure.Change, error) {
	return r.Registry().Recent(ctx, limit)
}

// WaitFor waits for instances.
func (r *Redis) WaitFor(ctx context.Context, n int) error { return r.Registry().WaitFor(ctx, n) }

// Follow reads the log once a second. While Redis gives no answer it goes on.
func (r *Redis) Follow(ctx context.Context, after string, take func([]tenure.Change), say func(string)) {
	for failing := false; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(lookInterval):
		}
		asked, cancel := context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("%w: no answer within %v", tenure.ErrUnreachable, r.Timeout))
		changes, err := r.Registry().Log(asked, after, 1000)
		if errors.Is(err, tenure.ErrNotFound) {
			say(missing)
			after = "" // also if nothing is kept: whatever comes is behind it
			changes, err = r.Registry().Recent(asked, 1000)
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			say(err.Error())
		}
		failing = err != nil
		if len(changes) > 0 {
			take(changes)
			after = changes[len(changes)-1].ID
		}
	}
}

// missing is said if changes may have been missed.
const missing = "changes may be missing here: the log is not kept back so far"
