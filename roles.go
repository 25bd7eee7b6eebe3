package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/parallel"
	"github.com/tenure-go/tenure/internal/store"
)

// RoleStatus is what Redis knows of a role, for one who takes no part in its election.
type RoleStatus struct {
	Role string `json:"role"` // "" is the default one
	// Leader is who leads; its InstanceID is "" and its Token 0 if nobody does. Led tells that from
	// a foreign lease without a name.
	Led    bool       `json:"led"`
	Leader LeaderInfo `json:"leader"`
	// LeaseTTL is what the lease was last granted for; 0: not known.
	LeaseTTL time.Duration `json:"-"`
	// For is how long the leader has led, or how long nobody has; 0: not known. By Redis's clock.
	For time.Duration `json:"-"`
	// Last is the last term that has ended, if nobody leads; its Token is 0 if there is none.
	Last TermRecord `json:"last,omitzero"`
	// Waiting says why nobody can be granted the lease, as far as Redis knows: WaitEmpty, WaitHold,
	// WaitVanished or WaitReserved. "": nobody leads, and a candidate that asks now may be granted
	// it. What only a candidate knows is not there: that it is unhealthy, or stands back.
	Waiting WaitReason `json:"waiting"`
	// Wait is for how long that holds at most, if candidates do not lengthen it; 0: not known.
	Wait time.Duration `json:"-"`
}

// Done reports whether nobody leads the role and nobody needs to: its last term ended because the
// work of Once, or of tenure run, was done, and Redis keeps the lease back for no reason of its
// own.
func (s RoleStatus) Done() bool {
	return !s.Led && s.Waiting == "" && s.Last.Reason == store.TermDone
}

// MarshalJSON renders durations as seconds; those that are not known are left out.
func (s RoleStatus) MarshalJSON() ([]byte, error) {
	type status RoleStatus // without this method
	return json.Marshal(struct {
		status
		LeaseTTL seconds `json:"lease_ttl_seconds,omitempty"`
		For      seconds `json:"for_seconds,omitempty"`
		Wait     seconds `json:"wait_seconds,omitempty"`
	}{status(s), seconds(s.LeaseTTL), seconds(s.For), seconds(s.Wait)})
}

// Role returns what Redis knows of a role, "" for the default one: who leads, or since when and why
// nobody does. It asks Redis once, and twice more if nobody leads. It returns ErrUnreachable or
// ErrMisconfigured.
func (c *Control) Role(ctx context.Context, role string) (RoleStatus, error) {
	leases, role, err := c.leaseOf(role)
	if err != nil {
		return RoleStatus{}, err
	}
	s := RoleStatus{Role: role}
	reply, err := ask(ctx, c.asked, leases.Leader)
	if err != nil {
		return s, err
	}
	s.LeaseTTL = reply.TTL
	if reply.Verdict == lease.Held {
		s.Led, s.Leader = true, leaderOf(role, reply)
		if !s.Leader.Since.IsZero() {
			s.For = max(store.Time(reply.Now).Sub(s.Leader.Since), 0)
		}
		return s, nil
	}
	var vacancy store.Vacancy
	if asked, ok := leases.(interface {
		Vacancy(ctx context.Context) (store.Vacancy, error)
	}); ok {
		if vacancy, err = ask(ctx, c.asked, asked.Vacancy); err != nil {
			return s, err
		}
		vacant(&s, vacancy, reply.Now)
	}
	terms, err := readTerms(ctx, c.asked, leases, role, 1)
	if err != nil {
		return s, err
	}
	if len(terms) > 0 {
		lastTerm(&s, terms[0], vacancy, reply.Now)
	}
	return s, nil
}

// vacant says why the lease is not granted, as the next acquire would find it.
func vacant(s *RoleStatus, v store.Vacancy, now int64) {
	s.LeaseTTL = store.Milliseconds(v.TTL)
	var until int64
	switch {
	case v.Hold > now && v.Token == 0 && v.Armed == 0:
		s.Waiting, until = WaitEmpty, v.Hold
	case v.Hold > now:
		s.Waiting, until = WaitHold, v.Hold
	case !v.Released && v.Until > now:
		s.Waiting, until = WaitVanished, v.Until
	case v.Reserved > now && v.Heir != "":
		s.Waiting, until = WaitReserved, v.Reserved
	default:
		return
	}
	s.Wait = store.Milliseconds(until - now)
}

// lastTerm takes the last term. The next grant writes the end of one that its leader has not given
// back: until then it is the end of its lease.
func lastTerm(s *RoleStatus, last TermRecord, v store.Vacancy, now int64) {
	if last.Ended.IsZero() && v.Token == last.Token && !v.Released && 0 < v.Until && v.Until <= now {
		last.Ended, last.Reason = store.Time(v.Until), store.TermLapsed
	}
	s.Last = last
	if !last.Ended.IsZero() {
		s.For = max(store.Time(now).Sub(last.Ended), 0)
	}
}

// Roles returns the status of every role that is known: those that instances lead or have led, by
// the last 200 entries of the log, those that tasks belong to, and the given ones. An instance
// names the first 64 that it leads: if one leads so many, or if there are more instances than a
// listing looks at, the whole log is read for the others. A role that nobody has led for long is
// known by its name alone: name it, and so is one that nobody has led since the work of Once, or
// of tenure run, was done. The default role is there if it was ever led, and if there is no other.
// They are in the order of their names. Up to 16 roles are asked for at once.
func (c *Control) Roles(ctx context.Context, also ...string) ([]RoleStatus, error) {
	names, err := c.roleNames(ctx)
	if err != nil {
		return nil, err
	}
	named := slices.Concat(also, names, []string{c.role})
	slices.Sort(named)
	named = slices.Compact(named)
	asked := make([]RoleStatus, len(named))
	if err := parallel.Each(len(named), store.RolesAtOnce, func(i int) (err error) {
		asked[i], err = c.Role(ctx, named[i])
		return err
	}); err != nil {
		return nil, err
	}
	if len(named) == 1 {
		return asked, nil
	}
	return slices.DeleteFunc(asked, func(s RoleStatus) bool {
		never := !s.Led && s.Waiting == "" && s.Last.Token == 0
		return (never || s.Done()) && !slices.Contains(also, s.Role)
	}), nil
}

// roleNames finds out which roles there are.
func (c *Control) roleNames(ctx context.Context) ([]string, error) {
	var heard store.RoleNames
	_, err := c.registry.each(ctx, func(i Instance) bool {
		heard.Leading(i.Leading)
		return true
	})
	switch {
	case errors.Is(err, ErrTruncated): // those that are not there may lead others
		heard.Cut()
	case err != nil:
		return nil, err
	}
	changes, err := c.registry.Recent(ctx, heard.Log())
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		heard.Note(change.Role)
	}
	tasks, err := c.tasks.List(ctx)
	if err != nil && !errors.Is(err, ErrTruncated) {
		return nil, err
	}
	for _, task := range tasks {
		heard.Note(task.Role)
	}
	return heard.Sorted(), nil
}

// ForgetRole removes what Redis keeps of a role that a deploy has taken out: the history of its
// terms, and the records of its tasks with their histories. Until then it counts as one that nobody
// leads. Its tokens go on: if the role comes back, its next term has a greater one, and its tasks
// begin anew.
//
// Nobody may have led the role for a minute, Redis may not be keeping it back (RoleStatus.Waiting),
// and the process of this Control may not take part in its election: else ForgetRole removes
// nothing and returns ErrRegistered. A process that takes part and may not lead now is not asked.
// ErrNotFound: there is nothing to be removed. After any other error call it again. ErrTruncated:
// there are more than 100,000 tasks, and those that were not looked at are left.
func (c *Control) ForgetRole(ctx context.Context, role string) error {
	leases, role, err := c.leaseOf(role)
	if err != nil {
		return err
	}
	return c.noted(ctx, store.Command{Kind: commandForget, Role: role}, func() error { return c.forgetRole(ctx, leases, role) })
}

func (c *Control) forgetRole(ctx context.Context, leases store.Lease, role string) error {
	called := "the default role"
	if role != "" {
		called = fmt.Sprintf("role %q", role)
	}
	if c.takesPart(role) {
		return fmt.Errorf("%w: %s, by this process", ErrRegistered, called)
	}
	s, err := c.Role(ctx, role)
	switch {
	case err != nil:
		return err
	case s.Led:
		return fmt.Errorf("%w: %s, which instance %.128q leads", ErrRegistered, called, s.Leader.InstanceID)
	case s.Waiting != "":
		return fmt.Errorf("%w: %s, for which Redis waits: %s", ErrRegistered, called, s.Waiting)
	case !s.Last.Ended.IsZero() && s.For < knownWithin:
		return fmt.Errorf("%w: %s, which was led less than %v ago", ErrRegistered, called, knownWithin)
	}
	tasks, err := c.tasks.forgetRole(ctx, c.leaseKey(role))
	switch {
	case err != nil:
		return err
	case s.Last.Token == 0 && tasks == 0:
		return fmt.Errorf("%w: %s", ErrNotFound, called)
	case s.Last.Token == 0:
		return nil
	}
	reply, err := ask(ctx, c.asked, func(ctx context.Context) (store.LeaseReply, error) { return leases.ForgetTerms(ctx, s.Last.Token) })
	if err == nil && reply.Verdict != lease.Done {
		err = fmt.Errorf("%w: %s, which somebody leads by now", ErrRegistered, called)
	}
	return err
}
