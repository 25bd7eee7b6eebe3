package tenurehttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/store"
)

// isRole reports whether a role can have that name; "" is the default one.
func isRole(name string) bool { return name == "" || store.IsRole(name) }

// The bounds of the roles that are asked for by name: what Redis gets does not grow with the names
// that somebody makes up.
const (
	maxAskedRoles = 64               // beside those of the snapshot, which have as many places as there are
	askedFor      = 10 * time.Second // for which a role is kept after it was last asked for
	hardlyAsked   = time.Second      // likewise, if another one needs the place
)

// roleAnswer is one role, as Redis knows it now.
type roleAnswer struct {
	Status tenure.RoleStatus   `json:"status"`
	Terms  []tenure.TermRecord `json:"terms"` // newest first
	age
}

// askedRole is a role that somebody has asked for by its name.
type askedRole struct {
	*cell[roleAnswer]
	last time.Time // it was asked for
}

// roleCells are those that are asked for, one cell a name.
type roleCells struct {
	h     *Handler
	mu    sync.Mutex
	cells map[string]*askedRole
}

// of returns the cell of a role; nil: it is none that the snapshot has, and too many of those are
// asked for.
func (c *roleCells) of(ctx context.Context, name string) *cell[roleAnswer] {
	if found := c.enter(name, name == ""); found != nil {
		return found
	}
	s, _, err := c.h.look(ctx)
	if err != nil {
		return nil
	}
	return c.enter(name, slices.ContainsFunc(s.roles, func(r role) bool { return r.name == name }))
}

// enter returns the cell of a role, if there is room for it. One that exists needs none.
func (c *roleCells) enter(name string, exists bool) *cell[roleAnswer] {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	found := c.cells[name]
	if found == nil {
		if !c.clear(now) && !exists {
			return nil
		}
		if c.cells == nil {
			c.cells = make(map[string]*askedRole)
		}
		found = &askedRole{cell: newCell(func(ctx context.Context) (roleAnswer, error) { return c.read(ctx, name) })}
		found.least = mostSpacing // nobody says that it has changed: each reader asks for a new one
		c.cells[name] = found
	}
	found.last = now
	return found.cell
}

// clear drops what nobody asks for any more, and reports whether there is room for a role that may
// not exist. The lock is held.
func (c *roleCells) clear(now time.Time) bool {
	exists := map[string]bool{"": true}
	if s, ok := c.h.now.last(); ok {
		for _, r := range s.roles {
			exists[r.name] = true
		}
	}
	taken, longest := 0, ""
	for name, one := range c.cells {
		switch {
		case now.Sub(one.last) > askedFor:
			delete(c.cells, name)
		case !exists[name]:
			taken++
			if longest == "" || one.last.Before(c.cells[longest].last) {
				longest = name
			}
		}
	}
	if taken >= maxAskedRoles && now.Sub(c.cells[longest].last) > hardlyAsked {
		delete(c.cells, longest)
		taken--
	}
	return taken < maxAskedRoles
}

func (c *roleCells) read(ctx context.Context, name string) (r roleAnswer, err error) {
	if r.Status, err = c.h.control.Role(ctx, name); err != nil {
		return r, err
	}
	if leader := &r.Status.Leader; leader.Token != 0 {
		if instance, err := c.h.control.Registry().Instance(ctx, leader.InstanceID); err == nil {
			leader.Address = instance.Address
		}
	}
	r.Terms, err = c.h.control.Terms(ctx, name, maxTerms)
	return r, err
}

// lastRole is a role as the last snapshot has it; false: it does not, or a part of it is unread.
func (h *Handler) lastRole(name string) (v view[roleAnswer], known bool) {
	s, ok := h.now.kept()
	if !ok {
		return v, false
	}
	i := slices.IndexFunc(s.value.roles, func(r role) bool { return r.name == name && cmp.Or(r.unread, r.unlisted) == nil })
	if i < 0 {
		return v, false
	}
	return view[roleAnswer]{value: roleAnswer{Status: s.value.roles[i].status, Terms: s.value.roles[i].terms}, at: s.at, err: s.err}, true
}

// role serves what Redis knows of one role, also of one that nobody has led for long. It is read
// after the request, so that one who waits for a leader sees it.
func (h *Handler) role(w http.ResponseWriter, r *request) error {
	name := r.URL.Query().Get("role")
	if !isRole(name) {
		return &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("role = %.100q: is no name", name)}
	}
	limit, err := number(r, "limit", defaultPage, maxTerms)
	if err != nil {
		return err
	}
	c := h.roles.of(r.Context(), name)
	if c == nil {
		return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: fmt.Sprintf("%d roles that are not in the snapshot are asked for", maxAskedRoles), retry: 1}
	}
	asked := time.Now()
	var v view[roleAnswer]
	if last, known := h.lastRole(name); known {
		v, err = c.orElse(r.Context(), last, c.anew)
	} else {
		v, err = c.anew(r.Context())
	}
	if err = cmp.Or(err, v.refused()); err != nil {
		return err
	}
	answer := roleAnswer{age: ageOf(v), Terms: append([]tenure.TermRecord{}, v.value.Terms[:min(limit, len(v.value.Terms))]...)}
	if v.at.Before(asked) { // one who waits for a leader must not take it for an answer
		answer.isStale()
	}
	answer.Status = agedStatus(v.value.Status, answer.age)
	return writeJSON(w, http.StatusOK, answer)
}
