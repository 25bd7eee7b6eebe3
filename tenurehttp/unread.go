package tenurehttp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure"
)

// The parts of a snapshot that may be unread.
const (
	partStatus    = "status"
	partInstances = "instances"
	partRoles     = "roles" // one of them
	partTasks     = "tasks"
	partRuns      = "runs" // those of one task
	partLog       = "log"
)

// unread is a part of a snapshot that could not be read, though Redis answers: a key belongs to
// something else, or the user lacks a right. Somebody has to fix that; all else is shown meanwhile.
type unread struct {
	Part  string  `json:"part"`
	Name  *string `json:"name,omitempty"` // of the role, or the task
	Error string  `json:"error"`          // with the fix

	err error
}

// lacks notes that a part could not be read. It returns the error if that may pass by itself: then
// there is no snapshot.
func (s *snapshot) lacks(part string, name *string, err error) error {
	if !errors.Is(err, tenure.ErrMisconfigured) {
		return err
	}
	s.unread = append(s.unread, unread{part, name, err.Error(), err})
	return nil
}

// reportUnread makes what could not be read a problem of the cluster.
func (s *snapshot) reportUnread() {
	var problems []string
	for _, u := range s.unread {
		of := "the " + u.Part
		switch u.Part {
		case partStatus: // whose problems have it already
			continue
		case partRoles:
			of = called(*u.Name)
		case partRuns:
			of = "the runs of task " + *u.Name
		}
		problems = append(problems, fmt.Sprintf("%s cannot be read: %v", of, u.err))
	}
	if len(problems) > 0 {
		s.status.Healthy, s.status.Problems = false, append(problems, s.status.Problems...)
	}
}

// called is a role as problems name it.
func called(role string) string {
	if role == "" {
		return "the default role"
	}
	return "role " + role
}

// shownVacant is how many roles that nobody leads a problem names.
const shownVacant = 5

// reportVacant makes roles that nobody leads a problem of the cluster, whose status has the default
// one only.
func (s *snapshot) reportVacant(roles []string) {
	if len(roles) == 0 {
		return
	}
	text := "nobody leads " + strings.Join(roles[:min(len(roles), shownVacant)], ", ")
	if more := len(roles) - shownVacant; more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	s.status.Healthy, s.status.Problems = false, slices.Concat(s.status.Problems, []string{text})
}

// nothing is the error if neither log nor instances nor tasks could be read: of roles, all that is
// known then are those of this process. It is nil otherwise.
func (s *snapshot) nothing() error {
	if s.missing(partLog) == nil || s.missing(partInstances) == nil {
		return nil
	}
	return s.missing(partTasks)
}

// missing is the error of the first of these parts that could not be read; nil: all are there. Of
// roles and runs it is that of any.
func (s *snapshot) missing(parts ...string) error {
	for _, part := range parts {
		for _, u := range s.unread {
			if u.Part == part {
				return u.err
			}
		}
	}
	return nil
}

// leaderMissing is why it is not known who leads the default role; nil: it is.
func (s *snapshot) leaderMissing() error {
	if s.missing(partStatus, partInstances) == nil {
		return nil
	}
	return s.noLeader
}
