package out

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Grid is a table: a head and rows. Cells are made plain as they are written.
type Grid struct {
	Head []string
	Rows [][]string
}

// Add adds a row.
func (g *Grid) Add(cells ...string) { g.Rows = append(g.Rows, cells) }

// Below adds a line to the row above, under its last cell.
func (g *Grid) Below(text string) { g.Rows = append(g.Rows, []string{text}) }

// Write writes the table in columns that are two blanks apart. Without rows it writes empty.
func (g *Grid) Write(w io.Writer, empty string) {
	if len(g.Rows) == 0 {
		fmt.Fprintln(w, empty)
		return
	}
	widths := make([]int, len(g.Head))
	all := append([][]string{g.Head}, g.Rows...)
	for _, row := range all {
		if len(row) < len(g.Head) { // see Below
			row[0] = Plain(row[0])
			continue
		}
		for i, cell := range row {
			row[i] = Plain(cell)
			if row[i] == "" {
				row[i] = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range all {
		var b strings.Builder
		if len(row) < len(g.Head) {
			for _, width := range widths[:len(widths)-1] {
				b.WriteString(strings.Repeat(" ", width+2))
			}
		}
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// For is a duration as people say it: two units at most.
func For(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}

// At is a time as people read it, in the zone of this machine: without the date if it is today's.
func At(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// What people call the default role, and a role that has this name: as the metrics do.
const (
	defaultRole   = "default"
	calledDefault = "role:default"
)

// Role is the name of a role for people.
func Role(role string) string {
	switch role {
	case "":
		return defaultRole
	case defaultRole:
		return calledDefault
	}
	return role
}

// NamedRole is the role that people call so: what Role says of it, or the role itself.
func NamedRole(name string) string {
	switch name {
	case defaultRole:
		return ""
	case calledDefault:
		return defaultRole
	}
	return name
}
