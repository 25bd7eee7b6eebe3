package tenure

import (
	"slices"

	"github.com/tenure-go/tenure/internal/store"
)

// roleSet holds the electors of a process, which may be thousands. Guarded by the coordinator's
// lock.
type roleSet struct {
	all    []*Elector // the default one first; only ever appended to
	named  map[string]*Elector
	leased map[string]*Elector // by the keys of their leases
}

func (r *roleSet) add(e *Elector) {
	if r.named == nil {
		r.named, r.leased = make(map[string]*Elector), make(map[string]*Elector)
	}
	r.all = append(r.all, e)
	r.named[e.Role()] = e
	r.leased[store.LeaseOfEvents(e.loop.channel)] = e
}

// AddRole adds the election of a further role, with the same identity, subscription and Run. Its
// leader work is opts.Lead. opts.Role may be left empty; if it is set, it must be name. AddRole may
// be called before and during Run. Once Run has been told to stop, it returns ErrStopped. It
// returns an *OptionError if there is such a role already, or if an option is bad. FailFast applies
// to the roles with which Run begins: a role that is added later tries for ever. Nothing takes a
// role out again while the process runs: see Elector.SetEligible, and docs/roles.md for what comes
// and goes.
func (c *Coordinator) AddRole(name string, opts ElectionOptions) (*Elector, error) {
	var check checker
	if name == "" {
		check.refuse("Role", name, "the default role is configured by Options.Election")
	}
	if name != "" && opts.Role != "" && opts.Role != name {
		check.refuse("Role", opts.Role, "must be empty or the name %q", name)
	}
	opts.Role = name
	opts = opts.complete(&check, "")
	c.backend.check(&check, "", opts)
	c.mu.Lock()
	defer c.mu.Unlock()
	check.leaderKey("", c.opts.Namespace, opts.LeaderKey)
	same := c.roles.named[name]
	if same != nil && name != "" {
		check.refuse("Role", name, "is there already")
	}
	key := opts.leaseKey(c.opts.Namespace)
	for _, related := range store.Related(key) {
		if other := c.roles.leased[related]; other != nil && other != same {
			check.refuse("LeaderKey", key, "would share %q with role %q", store.Shared(key, related), other.Role())
		}
	}
	if err := check.err(); err != nil {
		return nil, err
	}
	if c.phase.Load() == phaseStopped {
		return nil, ErrStopped
	}
	of := c.opts
	of.Election = opts
	tasks := c.tasks.addRole(of.taskConfig(c.backend.tasks, c.bus))
	e := c.newElector(opts, func(election *electionConfig) {
		election.failFast = election.failFast && c.start == nil
		election.stuck, election.late = tasks.stuck, tasks.work()
	})
	c.roles.add(e)
	c.more.nudge()
	if c.start != nil {
		c.start(e)
	}
	return e, nil
}

// addShard adds a role that tasks are dealt to, unless it is there.
func (c *Coordinator) addShard(name string) error {
	if _, there := c.Role(name); there {
		return nil
	}
	opts := c.opts.Election
	opts.Role, opts.LeaderKey, opts.Lead, opts.Priority, opts.Preempt, opts.ByInstanceID, opts.Spread = "", "", nil, 0, 0, false, true
	_, err := c.AddRole(name, opts)
	if _, there := c.Role(name); there { // another task has added it meanwhile
		return nil
	}
	return err
}

// Role returns the elector of a role, and false if there is no such role. The name of the default
// role is that of Options.Election.Role, which is "" unless it is set.
func (c *Coordinator) Role(name string) (*Elector, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, there := c.roles.named[name]
	return e, there
}

// Roles returns the electors of all roles, that of the default role first, if there is one, the
// others in the order in which they were added.
func (c *Coordinator) Roles() []*Elector { return slices.Clone(c.all()) }

// all returns the electors of now, the default one first.
func (c *Coordinator) all() []*Elector {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roles.all // only ever appended to
}

// concerned returns the electors that a hint is for. Of thousands of roles it is mostly for one.
func (c *Coordinator) concerned(h store.Hint) []*Elector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.All {
		return c.roles.all // only ever appended to
	}
	if e := c.roles.leased[store.LeaseOfEvents(h.Channel)]; e != nil {
		return []*Elector{e}
	}
	return nil
}
