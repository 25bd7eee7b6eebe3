package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// clusterView is what tenure status shows.
type clusterView struct {
	Namespace string              `json:"namespace"`
	Healthy   bool                `json:"healthy"`
	Problems  []string            `json:"problems,omitempty"`
	Redis     source.Server       `json:"redis"`
	Roles     []tenure.RoleStatus `json:"roles"`
	Counts    tenure.Counts       `json:"counts"`
	Held      int                 `json:"held"`
	Lost      int                 `json:"lost"`
	Silent    []tenure.Instance   `json:"silent,omitempty"` // that are not as they should be
	Tasks     []tenure.TaskStatus `json:"tasks,omitempty"`
	Recent    []tenure.Change     `json:"recent,omitempty"`
	At        time.Time           `json:"at"`

	all    []tenure.Instance // that are known
	said   map[string]string // see source.Cluster
	unread []string          // likewise
	cut    error             // why it is not whole; nil: it is
}

func (a *app) statusCommand() *cobra.Command {
	least := 1
	command := &cobra.Command{
		Use:   "status",
		Short: "Who leads, who is there, what goes wrong; exits with 0 if all is well",
		Long: `status says who leads each role, for how long, with which token, and how much of the
lease is left. If nobody leads, it says for how long, and why, and until when, as far as
Redis knows. It exits with 0 if each role is led and everybody is there, with 1 if not,
and with 2 if Redis cannot be asked.

Roles are found by the instances that lead them, by the log and by the tasks. One that
nobody has led for long is only known if it is named: --role NAME.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := a.bound(command)
			defer cancel()
			view, err := a.view(ctx, least)
			if err != nil {
				return err
			}
			if view.cut != nil {
				_ = a.usable(view.cut) // it warns
			}
			if a.format.Person() {
				writeStatus(a.out, &view, 0)
			} else if err := out.Value(a.out, a.format, view); err != nil {
				return err
			}
			if !view.Healthy && a.stale == nil {
				return &exitError{code: exitNot}
			}
			return a.late(nil)
		},
	}
	command.Flags().StringVarP(&a.flags.role, "role", "r", "", "a role to show as well (TENURE_ROLE)")
	command.Flags().Var((*limitValue)(&least), "min-instances", "how many active instances are healthy")
	return command
}

// view asks for everything that status shows.
func (a *app) view(ctx context.Context, least int) (v clusterView, err error) {
	from, err := a.connect()
	if err != nil {
		return v, err
	}
	var named []string
	if role := a.settings.Text("role"); role != "" {
		named = append(named, role)
	}
	c, err := from.Cluster(ctx, named...)
	if errors.Is(err, tenure.ErrTruncated) {
		v.cut, err = err, nil
	}
	if err := a.usable(err); err != nil {
		return v, err
	}
	v = clusterView{
		Namespace: c.Status.Namespace, At: c.At, Redis: c.Server, Roles: c.Roles, Counts: c.Status.Counts, Held: c.Status.Held, Lost: c.Status.Lost,
		Tasks: c.Tasks, Recent: c.Recent[max(len(c.Recent)-5, 0):], all: c.Instances, said: c.Said, unread: c.Unread, cut: v.cut,
	}
	for _, i := range c.Instances {
		if i.State != tenure.InstanceActive {
			v.Silent = append(v.Silent, i)
		}
	}
	v.judge(least)
	if a.stale != nil {
		v.Problems, v.Healthy = append(v.Problems, a.stale.Error()), false
	}
	return v, nil
}

// judge says whether all is well, in the words of tenure.ClusterStatus.
func (v *clusterView) judge(least int) {
	wrong := func(is bool, text string, args ...any) {
		if is {
			v.Problems = append(v.Problems, fmt.Sprintf(text, args...))
		}
	}
	for _, part := range v.unread {
		wrong(true, "cannot be read: %s", part)
	}
	for _, role := range v.Roles {
		wrong(!role.Led && !role.Done(), "%s has no leader", out.Role(role.Role)) // it was asked for
	}
	c := v.Counts
	wrong(c.Drifted > 0, "%d drifted", c.Drifted)
	wrong(c.Down > 0, "%d down", c.Down)
	wrong(v.Held > 0, "%d were silent at once, those that are left are held", v.Held)
	wrong(v.Lost > 0, "%d lost", v.Lost)
	wrong(c.Active < least && v.counted(), "%d active, at least %d are wanted", c.Active, least)
	v.Healthy = len(v.Problems) == 0
}

// counted reports whether it is known how many instances there are: if something is unread, and
// there are none, that may be why.
func (v *clusterView) counted() bool { return len(v.unread) == 0 || v.Counts.Total > 0 }

// now is the time by Redis's clock, by which tasks are due and changes are dated: that of this
// machine may be another one. It is known if somebody leads.
func (v *clusterView) now() time.Time {
	for _, r := range v.Roles {
		if r.Led && r.Leader.Token != 0 && !r.Leader.Since.IsZero() && r.For > 0 {
			return r.Leader.Since.Add(r.For)
		}
	}
	return v.At
}

// writeStatus writes the view for people, with at most so many lines for the roles; 0: all of them.
func writeStatus(w io.Writer, v *clusterView, most int) {
	head := out.Plain(serverText(v.Redis))
	name := out.Plain(v.Namespace)
	fmt.Fprintf(w, "%s%s%s\n\n", name, strings.Repeat(" ", max(80-len(name)-len([]rune(head)), 2)), head)
	v.writeRoles(w, most)
	fmt.Fprintln(w)
	now := v.now()
	fmt.Fprintln(w, "instances "+v.instances()+map[bool]string{true: "   healthy: yes", false: "   healthy: no"}[v.Healthy])
	if text := tasksLine(v.Tasks, now); text != "" {
		fmt.Fprintln(w, "tasks     "+out.Plain(text))
	}
	shown := v.Recent[max(len(v.Recent)-3, 0):]
	for i, change := range slices.Backward(shown) {
		label := "          "
		if i == len(shown)-1 {
			label = "recent    "
		}
		fmt.Fprintln(w, label+out.Plain(out.At(change.Time, now)+"  "+changeText(change)))
	}
	for _, problem := range v.Problems {
		if !strings.HasSuffix(problem, "has no leader") {
			fmt.Fprintln(w, "problem   "+out.Plain(problem))
		}
	}
}

// serverText says what was asked, and how long ago.
func serverText(s source.Server) string {
	text := strings.TrimSpace(cmp.Or(s.Kind, "redis") + " " + s.Version)
	if s.Address != "" {
		text += " at " + s.Address
	}
	if s.API == "" {
		return fmt.Sprintf("%s, %.1f ms", text, s.RoundTrip*1000)
	}
	return fmt.Sprintf("%s, by %s, %.1fs ago", text, s.API, s.Age)
}

// manyRoles is of how many roles one that nobody leads is seen where it stands, as on the page.
const manyRoles = 6

// writeRoles writes each role, in at most so many lines; 0: as many as it takes. Of many roles
// those that nobody leads come first.
func (v *clusterView) writeRoles(w io.Writer, most int) {
	roles, width := slices.Clone(v.Roles), 0
	for _, r := range roles {
		width = max(width, len(out.Plain(out.Role(r.Role))))
	}
	if len(roles) > manyRoles {
		slices.SortStableFunc(roles, func(a, b tenure.RoleStatus) int { return cmp.Compare(led(a), led(b)) })
	}
	written := 0
	for i, r := range roles {
		lines, room := v.roleLines(r, width), most-written
		if i < len(roles)-1 {
			room-- // for what is said of the rest
		}
		if most > 0 && i > 0 && len(lines) > room {
			fmt.Fprintln(w, moreRoles(roles[i:]))
			return
		}
		written += len(lines)
		fmt.Fprintln(w, strings.Join(lines, "\n"))
	}
}

// led is 1 for a role that somebody leads, and 0 for another one.
func led(r tenure.RoleStatus) int {
	if r.Led {
		return 1
	}
	return 0
}

// moreRoles says how many are left out, and how many of them nobody leads.
func moreRoles(rest []tenure.RoleStatus) string {
	vacant := len(rest)
	for _, r := range rest {
		vacant -= led(r)
	}
	if vacant == 0 {
		return fmt.Sprintf("… and %d more, all led", len(rest))
	}
	return fmt.Sprintf("… and %d more, %d of them NO LEADER", len(rest), vacant)
}

// roleLines says of one role that it is led, or that it is not and why.
func (v *clusterView) roleLines(r tenure.RoleStatus, width int) []string {
	name := out.Plain(out.Role(r.Role))
	name += strings.Repeat(" ", width-len(name)+3)
	if r.Led {
		return []string{name + "LED   " + out.Plain(ledText(r))}
	}
	text := "NO LEADER"
	if r.For > 0 {
		text += " for " + out.For(r.For)
	}
	lines := wrap(text+"  "+out.Plain(v.why(r)), 80-len(name))
	for i := range lines {
		if i > 0 {
			name = strings.Repeat(" ", len(name))
		}
		lines[i] = name + lines[i]
	}
	return lines
}

func ledText(r tenure.RoleStatus) string {
	if r.Leader.Token == 0 {
		return fmt.Sprintf("%s   another program holds the lease", cmp.Or(r.Leader.InstanceID, "?"))
	}
	text := r.Leader.InstanceID
	if r.For > 0 {
		text += "   for " + out.For(r.For)
	}
	text += fmt.Sprintf("   token %d   lease %.1fs", r.Leader.Token, max(r.Leader.Remaining, 0).Seconds())
	if r.LeaseTTL > 0 {
		text += fmt.Sprintf(" of %gs", r.LeaseTTL.Seconds())
	}
	return text
}

// why says why nobody leads a role, and until when, as far as Redis knows.
func (v *clusterView) why(r tenure.RoleStatus) string {
	var said []string
	if last := r.Last; last.Token != 0 {
		text := "Last led by " + cmp.Or(last.InstanceID, "?")
		if last.Reason != "" {
			text += ", whose term " + reasonText(last.Reason)
		}
		said = append(said, text)
	}
	uptime := time.Duration(v.Redis.Uptime * float64(time.Second))
	young := r.LeaseTTL > 0 && uptime > 0 && uptime < r.LeaseTTL+2*time.Second
	switch {
	case v.Redis.Refuses != "":
		return strings.Join(append(said, "Redis refuses every lease: "+v.Redis.Refuses), ". ") + "."
	case r.Waiting == tenure.WaitHold && young, r.Waiting == tenure.WaitEmpty && young:
		said = append(said, fmt.Sprintf("Redis is %s old: a leader may hold a lease from before its restart", out.For(uptime)))
	case r.Waiting == tenure.WaitHold:
		said = append(said, "Redis has restarted, failed over or lost data: a lease that it forgot may be on")
	case r.Waiting == tenure.WaitEmpty:
		said = append(said, "Redis knows nothing of the role yet: leaders are asked to speak up")
	case r.Waiting == tenure.WaitVanished:
		said = append(said, "The lease vanished before its end, and is honoured until then")
	case r.Waiting == tenure.WaitReserved:
		said = append(said, "The last leader has left it to another instance for a moment")
	case r.Last.Token == 0 && v.claimed(r.Role) != "":
		said = append(said, v.claimed(r.Role)+" says that it leads: if its lease has another key, name that (LeaderKey, TENURE_LEADER_KEY)")
	case v.said[r.Role] != "":
		said = append(said, strings.TrimSuffix(v.said[r.Role], "."))
	case v.Counts.Active == 0 && v.Counts.Drifted > 0:
		said = append(said, "No instance is active: those that drifted are gone, cut off, or refused by Redis, as their logs say")
	case v.Counts.Active == 0 && v.counted():
		said = append(said, "No instance is active: nobody can lead")
	default:
		said = append(said, "Redis would grant the lease: no candidate has asked yet, or those that there are stand back, are unhealthy or may not lead")
	}
	if r.Wait > 0 {
		said = append(said, "Election possible in "+out.For(r.Wait))
	}
	return strings.Join(said, ". ") + "."
}

// claimed names an instance whose record says that it leads a role; "": there is none.
func (v *clusterView) claimed(role string) string {
	for _, i := range v.all {
		if slices.Contains(i.Leading, role) {
			return i.ID
		}
	}
	return ""
}

// leadNow are the instances with what they lead now, as far as the roles are known: their own word
// is as old as their last heartbeat.
func (v *clusterView) leadNow() []tenure.Instance {
	known, leads := make(map[string]bool), make(map[string][]string)
	for _, r := range v.Roles {
		known[r.Role] = true
		if r.Led && r.Leader.Token != 0 {
			leads[r.Leader.InstanceID] = append(leads[r.Leader.InstanceID], r.Role)
		}
	}
	all := slices.Clone(v.all)
	for i, one := range all {
		rest := slices.DeleteFunc(slices.Clone(one.Leading), func(role string) bool { return known[role] })
		all[i].Leading = slices.Concat(rest, leads[one.ID])
		slices.Sort(all[i].Leading)
	}
	return all
}

// reasonText says how a term ended.
func reasonText(reason string) string {
	if text, known := map[string]string{
		"lapsed": "lapsed: it has died or was cut off", "resigned": "was resigned", "stopped": "ended as it stopped", "done": "ended as its work was done", "transferred": "was handed over",
		"expired": "expired: no renewal came through", "lost": "was refused by redis", "failed": "was given up: its work failed",
		"forgotten": "redis has forgotten", "unheard": "was never heard of",
	}[reason]; known {
		return text
	}
	return "ended: " + reason
}

// instances counts, and names those that are not as they should be.
func (v *clusterView) instances() string {
	c := v.Counts
	if !v.counted() {
		return "not known"
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what tenure.InstanceState
	}{
		{c.Active, tenure.InstanceActive}, {c.Joining, tenure.InstanceJoining}, {c.Draining, tenure.InstanceDraining},
		{c.Drifted, tenure.InstanceDrifted}, {c.Down, tenure.InstanceDown}, {c.Unknown, tenure.InstanceUnknown},
	} {
		if part.n == 0 && part.what != tenure.InstanceActive {
			continue
		}
		text := fmt.Sprintf("%d %s", part.n, part.what)
		if part.what == tenure.InstanceDrifted || part.what == tenure.InstanceDown {
			text += v.names(part.what)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// names are the first ones of a state.
func (v *clusterView) names(state tenure.InstanceState) string {
	var names []string
	for _, i := range v.Silent {
		if i.State == state {
			names = append(names, fmt.Sprintf("%s, silent for %s", i.ID, out.For(i.Age)))
		}
	}
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	if len(names) == 0 {
		return ""
	}
	return out.Plain(" (" + strings.Join(names, "; ") + ")")
}

// tasksLine says what is next, what stands still and what fails.
func tasksLine(tasks []tenure.TaskStatus, now time.Time) string {
	if len(tasks) == 0 {
		return ""
	}
	var next, failing, late, unread *tenure.TaskStatus
	failed, overdue, unreadable := 0, 0, 0
	for i := range tasks {
		t := &tasks[i]
		if t.Err != nil { // also of one that its leader cannot go on with
			unreadable++
			unread = cmp.Or(unread, t)
		}
		if !t.Next.IsZero() && t.Err == nil && !t.Paused && !t.Overdue && (next == nil || t.Next.Before(next.Next)) {
			next = t
		}
		if t.Failures > 0 {
			failed++
			if failing == nil || t.Failures > failing.Failures {
				failing = t
			}
		}
		if t.Overdue {
			overdue++
			if late == nil || t.Next.Before(late.Next) {
				late = t
			}
		}
	}
	text := strconv.Itoa(len(tasks))
	if next != nil {
		text += fmt.Sprintf(", next %q in %s", next.Name, out.For(next.Next.Sub(now)))
	}
	if unread != nil {
		text += fmt.Sprintf(". %d unreadable: %q: %s", unreadable, unread.Name, strings.TrimPrefix(unread.Err.Error(), "tenure: "))
	}
	if overdue > 0 {
		text += fmt.Sprintf(". %d overdue: %q", overdue, late.Name)
	}
	if failing != nil {
		text += fmt.Sprintf(". %d failing: %q", failed, failing.Name) + timesInARow(failing.Failures)
		if r := failing.Last; r.Error != "" {
			text += fmt.Sprintf(", last %s ago on %s: %s", out.For(now.Sub(r.Finished)), r.InstanceID, r.Error)
		}
	}
	return text
}

// changeText says what changed.
func changeText(c tenure.Change) string {
	switch c.Type {
	case tenure.ChangeElected:
		return fmt.Sprintf("%s leads %s with token %d", c.InstanceID, out.Role(c.Role), c.Token)
	case tenure.ChangeEnded:
		return strings.TrimSpace(fmt.Sprintf("%s has no leader: the term of %s %s", out.Role(c.Role), cmp.Or(c.InstanceID, "?"), reasonText(c.Reason)))
	case tenure.ChangeHeld:
		return fmt.Sprintf("%d instances were silent at once: the rest is not removed yet", c.Count)
	case tenure.ChangeSnapshot:
		return fmt.Sprintf("snapshot of %d instances", len(c.Instances))
	}
	return fmt.Sprintf("%s %s", c.InstanceID, c.Type)
}

// wrap breaks a text at blanks.
func wrap(text string, width int) (lines []string) {
	line := ""
	for i, word := range strings.Split(text, " ") {
		if i > 0 && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
