package tenurehttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

const (
	maxListedRuns = 1000
	shownSlots    = 5
)

// taskRead is what is read of one task, if somebody asks for it.
type taskRead struct {
	runs     []tenure.RunRecord // that have ended, newest first
	upcoming []time.Time
}

// taskCell is the cell of a task, and the state that the last reader was shown beside it.
type taskCell struct {
	*cell[taskRead]
	shown tenure.TaskStatus
}

// taskCells has one cell a task that is known.
type taskCells struct {
	h     *Handler
	mu    sync.Mutex
	cells map[string]*taskCell
}

// of returns the cell of a task, which the snapshot has in that state. If it was in another one
// before, runs and slots may have changed too. The cells of tasks that the snapshot has no more are
// dropped.
func (c *taskCells) of(s *snapshot, status tenure.TaskStatus) *cell[taskRead] {
	c.mu.Lock()
	defer c.mu.Unlock()
	status.Err = nil // each reading makes another one
	found := c.cells[status.Name]
	if found == nil {
		if c.cells == nil || len(c.cells) >= 2*len(s.tasks) {
			c.cells = make(map[string]*taskCell)
		}
		found = &taskCell{newCell(func(ctx context.Context) (taskRead, error) { return c.read(ctx, status.Name) }), status}
		c.cells[status.Name] = found
	}
	if found.shown != status {
		found.shown = status
		found.expire()
	}
	return found.cell
}

// read asks for the runs and for the next slots. A process that takes part knows the schedules that
// it has registered; of a schedule that fails no slot is known.
func (c *taskCells) read(ctx context.Context, task string) (r taskRead, err error) {
	if r.runs, err = c.h.control.Tasks().Runs(ctx, task, maxListedRuns); err != nil {
		return r, err
	}
	tasks := c.h.control.Tasks()
	if c.h.coordinator != nil {
		tasks = c.h.coordinator.Tasks()
	}
	r.upcoming, err = tasks.Upcoming(ctx, task, shownSlots)
	if errors.Is(err, tenure.ErrNotFound) || errors.Is(err, tenure.ErrMisconfigured) {
		return r, nil
	}
	return r, err
}

// cronZone finds the zone of a cron schedule.
var cronZone = regexp.MustCompile(`^cron (?:(?:CRON_)?TZ=([A-Za-z0-9_+/-]{1,64}) )?`)

// zoneOf is the zone that a schedule is by; "": by none.
func zoneOf(schedule string) string {
	found := cronZone.FindStringSubmatch(schedule)
	switch {
	case found == nil:
		return ""
	case found[1] == "":
		return "UTC"
	}
	return found[1]
}

// readTask returns a task, what was read of it, and how many runs are asked for.
func (h *Handler) readTask(r *request) (status tenure.TaskStatus, v view[taskRead], limit int, err error) {
	if limit, err = number(r, "limit", defaultPage, maxListedRuns); err != nil {
		return status, v, 0, err
	}
	s, a, err := h.look(r.Context())
	if err != nil {
		return status, v, 0, err
	}
	if err := s.missing(partTasks); err != nil {
		return status, v, 0, err
	}
	i := slices.IndexFunc(s.tasks, func(t tenure.TaskStatus) bool { return t.Name == r.name })
	if i < 0 {
		return status, v, 0, a.lacks("task " + r.name)
	}
	c := h.runs.of(s, s.tasks[i])
	if runs, shown := s.runs[r.name]; shown {
		last := view[taskRead]{value: taskRead{runs: runs}, at: time.Now().Add(-a.passed)}
		if a.Stale {
			last.err = errors.New(a.Error)
		}
		v, err = c.orElse(r.Context(), last, c.get)
	} else {
		v, err = c.get(r.Context())
	}
	return s.tasks[i], v, min(limit, len(v.value.runs)), cmp.Or(err, v.refused())
}

// task serves one task: its state, its next slots, and its runs that have ended.
func (h *Handler) task(w http.ResponseWriter, r *request) error {
	status, v, limit, err := h.readTask(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Status   tenure.TaskStatus  `json:"status"`
		Upcoming []time.Time        `json:"upcoming"`
		Zone     string             `json:"zone"`
		Runs     []tenure.RunRecord `json:"runs"`
		age
	}{status, append([]time.Time{}, v.value.upcoming...), zoneOf(status.Schedule), append([]tenure.RunRecord{}, v.value.runs[:limit]...), ageOf(v)})
}

// taskRuns serves the runs of a task that have ended.
func (h *Handler) taskRuns(w http.ResponseWriter, r *request) error {
	_, v, limit, err := h.readTask(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Runs []tenure.RunRecord `json:"runs"`
		age
	}{append([]tenure.RunRecord{}, v.value.runs[:limit]...), ageOf(v)})
}
