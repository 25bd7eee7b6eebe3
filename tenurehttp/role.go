package tenurehttp

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// roleName is what the name of a role may be.
var roleName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// The bounds of the roles that are asked for by name: what Redis gets does not grow with the names
// that somebody makes up.
const (
	maxAskedRoles = 64
	askedFor      = 10 * time.Second // for which a role is kept after it was last asked for
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

// of returns the cell of a role; false: too many others are asked for.
func (c *roleCells) of(name string) (*cell[roleAnswer], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	found := c.cells[name]
	if found == nil {
		for other, one := range c.cells {
			if now.Sub(one.last) > askedFor {
				delete(c.cells, other)
			}
		}
		if len(c.cells) >= maxAskedRoles {
			return nil, false
		}
		if c.cells == nil {
			c.cells = make(map[string]*askedRole)
		}
		found = &askedRole{cell: newCell(c.h, func(ctx context.Context) (roleAnswer, error) { return c.read(ctx, name) })}
		found.least = mostSpacing // nobody says that it has changed: each reader asks for a new one
		c.cells[name] = found
	}
	found.last = now
	return found.cell, true
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

// role serves what Redis knows of one role, also of one that nobody has led for long. It is read
// after the request, so that one who waits for a leader sees it.
func (h *Handler) role(w http.ResponseWriter, r *request) error {
	name := r.URL.Query().Get("role")
	if name != "" && !roleName.MatchString(name) {
		return &problem{Status: http.StatusBadRequest, Code: "parameter", Detail: fmt.Sprintf("role = %.100q: is no name", name)}
	}
	limit, err := number(r, "limit", defaultPage, maxTerms)
	if err != nil {
		return err
	}
	c, ok := h.roles.of(name)
	if !ok {
		return &problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: fmt.Sprintf("%d roles are asked for", maxAskedRoles), retry: 1}
	}
	asked := time.Now()
	v, err := c.anew(r.Context())
	if err != nil {
		return err
	}
	answer := roleAnswer{age: ageOf(v), Terms: append([]tenure.TermRecord{}, v.value.Terms[:min(limit, len(v.value.Terms))]...)}
	if v.at.Before(asked) && !answer.Stale { // one who waits for a leader must not take it for an answer
		answer.Stale, answer.Error = true, fmt.Sprintf("redis has given no answer within %v", waitBound)
	}
	answer.Status = agedStatus(v.value.Status, answer.age)
	return writeJSON(w, http.StatusOK, answer)
}
