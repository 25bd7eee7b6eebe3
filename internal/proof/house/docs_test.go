package house

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// pages are the documents, by their paths from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "testdata" || path == "bin" || strings.HasPrefix(name, ".") && path != ".") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			text, err := os.ReadFile(path)
			all[filepath.ToSlash(path)] = strings.ReplaceAll(string(text), "\r\n", "\n")
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 40)
	return all
}

// block is what stands between two fences of a page.
type block struct {
	page string
	line int // of its first line
	kind string
	text string
}

// blocks are those of the given kind, in the order of pages and lines.
func blocks(t *testing.T, kinds ...string) (all []block) {
	t.Helper()
	documents := pages(t)
	for _, page := range slices.Sorted(maps.Keys(documents)) {
		var open *block
		number := 0
		for line := range strings.Lines(documents[page]) {
			number++
			fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case isFence && open == nil:
				open = &block{page: page, line: number + 1, kind: fence}
			case isFence:
				require.Empty(t, fence, "%s:%d: a fence within a fence", page, number)
				if slices.Contains(kinds, open.kind) {
					all = append(all, *open)
				}
				open = nil
			case open != nil:
				open.text += line
			}
		}
		require.Nil(t, open, "%s: a fence is not closed", page)
	}
	return all
}

var (
	written = regexp.MustCompile(`<a id="([^"]+)"`)
	title   = regexp.MustCompile(`^#{1,6} (.+?)\s*$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are those that a page has on GitHub: of its headings, and those that are written out.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		for _, id := range written.FindAllStringSubmatch(line, -1) {
			all[id[1]] = true
		}
		heading := title.FindStringSubmatch(line)
		if fenced || heading == nil {
			continue
		}
		slug := dropped.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(heading[1], "$1")), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		for i, base := 1, slug; all[slug]; i++ {
			slug = fmt.Sprint(base, "-", i)
		}
		all[slug] = true
	}
	return all
}

// TestDocsLinks: each link of a document to a file of the repository leads there, and to the
// heading that it names.
func TestDocsLinks(t *testing.T) {
	documents := pages(t)
	headings := map[string]map[string]bool{}
	for page, text := range documents {
		headings[page] = anchors(text)
	}
	links := 0
	for page, text := range documents {
		if page == "docs/adr/0000-template.md" {
			continue
		}
		text = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(text, "")
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			target := cmp.Or(link[1], link[2])
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s leads nowhere", page, target)
				continue
			}
			if anchor != "" && strings.HasSuffix(file, ".md") && !headings[file][anchor] {
				t.Errorf("%s: %s has no such heading", page, target)
			}
		}
	}
	require.Greater(t, links, 300)
}

// command is a line of a shell block, in words.
type command struct {
	at    string
	words []string
}

// commands are those of all shell blocks. What follows a pipe is another one.
func commands(t *testing.T) (all []command) {
	t.Helper()
	for _, b := range blocks(t, "sh") {
		text := strings.ReplaceAll(b.text, "\\\n", "  ")
		for number, line := range strings.Split(text, "\n") {
			at := fmt.Sprintf("%s:%d", b.page, b.line+number)
			for _, words := range shellWords(t, at, line) {
				all = append(all, command{at: at, words: words})
			}
		}
	}
	return all
}

// shellWords splits a line as a shell would: by blanks outside of quotes, up to a comment.
func shellWords(t *testing.T, at, line string) (all [][]string) {
	t.Helper()
	var words []string
	end := func() {
		for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
			words = words[1:] // a variable for this command
		}
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word := regexp.MustCompile(`^(?:[^\s"'#|&;]|"[^"]*"|'[^']*'|\b#)+`).FindString(rest)
		switch {
		case word != "":
			rest = rest[len(word):]
			words = append(words, regexp.MustCompile(`"([^"]*)"|'([^']*)'`).ReplaceAllString(word, "$1$2"))
		case rest[0] == '#':
			end()
			return all
		case strings.ContainsRune("|&;", rune(rest[0])):
			end()
			rest = strings.TrimLeft(rest, "|&;")
		default:
			require.Fail(t, "a quote is not closed", "%s: %s", at, line)
		}
	}
	end()
	return all
}

// sources are the texts of files, joined.
func sources(t *testing.T, patterns ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			all.Write(text)
		}
	}
	return all.String()
}

// TestDocsCommands: each command of a shell block of the documents is one that there is: a target
// of make, a folder for go, a command and flags of the CLI. Those of redis-cli are run, see
// TestDocsRedisCommands.
func TestDocsCommands(t *testing.T) {
	makefiles := sources(t, "Makefile", "proof.mk")
	scripts := sources(t, "cmd/tenure/testdata/script/*.txtar")
	cli := sources(t, "cmd/tenure/internal/cli/*.go")
	others := []string{"cd", "curl", "docker", "export", "git", "kill", "kubectl", "redis-server", "redis-cli"}
	all := commands(t)
	require.Greater(t, len(all), 20)
	for _, c := range all {
		switch program := c.words[0]; {
		case program == "make":
			for _, target := range c.words[1:] {
				require.True(t, strings.Contains(target, "=") || regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).MatchString(makefiles), "%s: %s", c.at, target)
			}
		case program == "go":
			require.Contains(t, []string{"get", "run", "test", "install", "doc", "mod", "tool"}, c.words[1], c.at)
			for _, word := range c.words[2:] {
				path, ours := strings.CutPrefix(word, "github.com/tenure-go/tenure")
				path, _, _ = strings.Cut(strings.TrimSuffix(path, "/..."), "@")
				if ours || strings.HasPrefix(path, "./") {
					require.DirExists(t, filepath.Join(".", path), c.at)
				}
			}
		case program == "tenure":
			tenureCommand(t, c, scripts, cli)
		default:
			require.Contains(t, others, program, c.at)
		}
	}
}

// tenureCommand looks for a command of the CLI among those that its tests run, and for its flags
// among those that its source names.
func tenureCommand(t *testing.T, c command, scripts, cli string) {
	t.Helper()
	words := c.words
	if i := slices.Index(words, "--"); i >= 0 {
		words = words[:i]
	}
	name := []string{}
	for _, word := range words[:min(len(words), 3)] {
		more := append(slices.Clone(name), word)
		if strings.HasPrefix(word, "-") || !regexp.MustCompile(`(?m)\b`+regexp.QuoteMeta(strings.Join(more, " "))+`\b`).MatchString(scripts) {
			break
		}
		name = more
	}
	require.Greater(t, len(name), 1, "%s: no test of the CLI runs %v", c.at, c.words)
	for _, word := range words {
		if flag, isFlag := strings.CutPrefix(word, "-"); isFlag && flag != "h" {
			flag, _, _ = strings.Cut(strings.TrimPrefix(flag, "-"), "=")
			require.Contains(t, cli, strconv.Quote(flag), "%s: the CLI has no %s", c.at, word)
		}
	}
}

// TestDocsRedisCommands: each redis-cli of a shell block is answered without an error by a Redis
// with the namespace "shop", a leader, a role "export" and a task "report".
func TestDocsRedisCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1}}})
	require.NoError(t, err)
	_, err = c.AddRole("export", tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1}})
	require.NoError(t, err)
	ran := make(chan struct{}, 1)
	require.NoError(t, c.Tasks().Register(tenure.Task{
		Name: "report", Schedule: tenure.OnDemand(), RunOnElection: true,
		Run: func(context.Context, tenure.TaskRun) error { ran <- struct{}{}; return nil },
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	select {
	case <-ran:
	case <-time.After(time.Minute):
		require.Fail(t, "nobody leads")
	}
	asked := 0
	for _, command := range commands(t) {
		if command.words[0] != "redis-cli" {
			continue
		}
		var args []any
		words := command.words[1:]
		for i := 0; i < len(words); i++ {
			switch {
			case len(args) == 0 && slices.Contains([]string{"-u", "-h", "-p", "-n"}, words[i]):
				i++ // where it is
			case len(args) == 0 && strings.HasPrefix(words[i], "-"):
			default:
				args = append(args, words[i])
			}
		}
		if err := rdb.Do(t.Context(), args...).Err(); !errors.Is(err, redis.Nil) {
			require.NoError(t, err, "%s: %v", command.at, command.words)
		}
		asked++
	}
	require.Positive(t, asked)
	stop()
	require.NoError(t, <-ended)
}

// TestDocsCron: docs/tasks.md says of each expression when it is due, or why it is refused.
func TestDocsCron(t *testing.T) {
	_, section, found := strings.Cut(pages(t)["docs/tasks.md"], "\n## Cron expressions\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(section, -1)
	require.Greater(t, len(rows), 15)
	for _, row := range rows {
		schedule, err := tenure.ParseCron(row[1])
		if why, refused := strings.CutPrefix(row[2], "error: "); refused {
			require.ErrorContains(t, err, why, row[1])
			continue
		}
		require.NoError(t, err, row[1])
		next := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
		for due := range strings.SplitSeq(row[2], ", ") {
			next = schedule.Next(next)
			require.Equal(t, due, next.Format("2006-01-02T15:04Z"), row[1])
		}
	}
}

// TestDocsCapacity: the figures of docs/redis.md are those of Guarantees.
func TestDocsCapacity(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) s \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$`).FindAllStringSubmatch(pages(t)["docs/redis.md"], -1)
	require.Len(t, rows, 4)
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	for _, row := range rows {
		ttl, err := time.ParseDuration(row[1] + "s")
		require.NoError(t, err)
		c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", Election: tenure.ElectionOptions{LeaseTTL: ttl}})
		require.NoError(t, err)
		further, err := c.AddRole("export", tenure.ElectionOptions{LeaseTTL: ttl})
		require.NoError(t, err)
		first, more := c.Guarantees(), further.Guarantees()
		expected := []string{}
		for _, rate := range []float64{first.Leading, first.Following, more.Leading, more.Following} {
			expected = append(expected, fmt.Sprintf("%.2f", rate))
		}
		require.Equal(t, expected, row[2:], row[1])
	}
}

// TestDocsCopiedFigures: what pages say of the profiles outside of the conditions is what the table
// says, which `make pages` writes anew.
func TestDocsCopiedFigures(t *testing.T) {
	const anchor = "#outside-of-the-conditions"
	_, section, found := strings.Cut(pages(t)["docs/guarantees.md"], "\n## Outside of the conditions\n")
	require.True(t, found)
	section, table, found := strings.Cut(section, "<!-- figures: outside -->")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "<!-- end of figures -->")
	later := 0
	for _, row := range regexp.MustCompile(`(?m)\| (\d+) \|$`).FindAllStringSubmatch(table, -1) {
		count, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		later += count
	}
	require.Contains(t, strings.ReplaceAll(section, "\n", " "), fmt.Sprintf("in all %d cases", later))
	share := regexp.MustCompile(`\d+\.\d\d %`)
	copied := 0
	for page, text := range pages(t) {
		if strings.HasPrefix(page, "docs/adr/") || page == "CHANGELOG.md" {
			continue // what was so then
		}
		for _, part := range regexp.MustCompile(`\n(?:\n|- |\| )`).Split(text, -1) {
			if !strings.Contains(part, anchor) {
				continue
			}
			for _, figure := range share.FindAllString(part, -1) {
				require.Contains(t, table, figure, "%s: %s", page, part)
				copied++
			}
		}
	}
	require.Greater(t, copied, 5)
}

// TestDocsFiguresOfFailovers: what pages say of failovers in virtual time is what the table of the
// simulated years says, from which it was copied.
func TestDocsFiguresOfFailovers(t *testing.T) {
	all := pages(t)
	measured := regexp.MustCompile(`"steady: calm", by virtual time: after a crash p50 [\d.]+ s, p99 [\d.]+ s, max ([\d.]+ s) \(([\d,]+)\), of a lease of 30 s; ` +
		`after a release p50 ([\d.]+ ms), p99 [\d.]+ ms, max ([\d.]+ ms) \(([\d,]+)\)`).FindStringSubmatch(all["docs/proof.md"])
	require.NotNil(t, measured)
	maxCrash, crashes, p50, maxRelease, releases := measured[1], measured[2], measured[3], measured[4], measured[5]
	for page, figures := range map[string][]string{
		"docs/guarantees.md": {
			fmt.Sprintf("max %s (%s); release to the next leader p50 %s,", maxCrash, crashes, p50), fmt.Sprintf("max %s (%s)", maxRelease, releases),
		},
		"docs/failures.md": {
			fmt.Sprintf("%s at most, in %s crashes in virtual time", maxCrash, crashes),
			fmt.Sprintf("%s at the median, %s at most (virtual time, %s)", p50, maxRelease, releases),
		},
	} {
		for _, figure := range figures {
			require.Contains(t, all[page], figure, page)
		}
	}
}
