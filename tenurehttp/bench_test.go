package tenurehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

const (
	benchPages   = 200             // that are open: each follows the events, and reads as the page does
	benchPace    = 2 * time.Second // between two snapshots of a page
	benchSoonest = 250 * time.Millisecond
	benchTasks   = 14
	benchRuns    = 30 // of each task
)

// BenchmarkReads is what a read takes on one handler while 200 pages are open and something changes
// each second: each page follows the events, and reads a snapshot every two seconds and after each
// event. It is real HTTP over loopback; the clients are in the same process.
func BenchmarkReads(b *testing.B) {
	for _, count := range []int{10, 10_000} {
		b.Run(fmt.Sprint("instances=", count), func(b *testing.B) {
			server := redistest.Start(b)
			c := benchCluster(b, server.Client(b), count)
			h, err := tenurehttp.New(c, tenurehttp.Options{})
			require.NoError(b, err)
			site := httptest.NewServer(h)
			b.Cleanup(func() { h.Close(); site.CloseClientConnections(); site.Close() })
			readers := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * benchPages}}
			b.Cleanup(readers.CloseIdleConnections)
			p := newPages(b, readers, site.URL+"/api/cluster/")
			require.Eventually(b, func() bool { return p.reads() > 3*benchPages }, patience, 10*time.Millisecond)
			p.forget() // what the first reads of all took: the connections are made, and the first snapshot is

			taken := make(map[string][]time.Duration)
			documents := []string{"status", "instances", "snapshot"}
			for b.Loop() {
				for _, document := range documents {
					taken[document] = append(taken[document], p.read(document))
					time.Sleep(5 * time.Millisecond) // a bounded poll: a reader, not a flood
				}
			}
			taken["page"] = p.stop()
			for document, took := range taken {
				slices.Sort(took)
				for _, percent := range []int{50, 99} {
					b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", document, percent))
				}
			}
		})
	}
}

// benchCluster is a leader among so many instances, with tasks that have run.
func benchCluster(b *testing.B, rdb *redis.Client, count int) *tenure.Coordinator {
	b.Helper()
	c, err := tenure.New(rdb, tenure.Options{
		Namespace: "shop", InstanceID: "bench", Election: tenure.ElectionOptions{Safety: tenure.SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}},
		Registry: tenure.RegistryOptions{DriftedAfter: time.Hour, DownAfter: 2 * time.Hour},
	})
	require.NoError(b, err)
	names := make([]string, benchTasks)
	for i := range names {
		names[i] = fmt.Sprint("task-", i)
		require.NoError(b, c.Tasks().Register(tenure.Task{Name: names[i], Schedule: tenure.Every(100 * time.Millisecond), History: benchRuns, Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // ends with stop
	b.Cleanup(func() { stop(); running.Wait() })
	now := time.Now().UnixMilli()
	for page := range slices.Chunk(make([]struct{}, count-1), 1000) {
		pipe := rdb.Pipeline()
		for range page {
			count--
			id := fmt.Sprintf("web-%05d", count)
			pipe.HSet(b.Context(), "shop:instances", id, fmt.Sprintf(`{"instance_id":"%s","started_at":%d,"last_heartbeat":%d,"status":"active","worker_count":4,"incarnation":"0123456789abcdef",`+
				`"version":"v41","address":"https://%s.shop:8443","load":{"cpu":0.25,"memory":0.5,"jobs":3},"metadata":{"zone":"eu-central-1a"}}`, id, now/1000-3600, now/1000, id))
			pipe.ZAdd(b.Context(), "shop:beats", redis.Z{Score: float64(now), Member: id})
		}
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
	}
	for _, name := range names {
		require.Eventually(b, func() bool {
			runs, err := c.Tasks().Runs(b.Context(), name, benchRuns)
			return err == nil && len(runs) == benchRuns
		}, patience, 50*time.Millisecond)
		require.NoError(b, c.Tasks().Pause(b.Context(), name, "measured"))
	}
	changes, end := context.WithCancel(b.Context())
	var changing sync.WaitGroup
	changing.Go(func() { // ends with end
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-tick.C:
				rdb.XAdd(changes, &redis.XAddArgs{Stream: "shop:log", MaxLen: 1000, Values: []string{"event", "recovered", "instances", "web-00001"}})
			case <-changes.Done():
				tick.Stop()
				return
			}
		}
	})
	b.Cleanup(func() { end(); changing.Wait() })
	return c
}

// pages are open pages.
type pages struct {
	*testing.B
	client *http.Client
	url    string
	cancel context.CancelFunc
	open   sync.WaitGroup

	mu    sync.Mutex
	taken []time.Duration
}

func newPages(b *testing.B, client *http.Client, url string) *pages {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pages{B: b, client: client, url: url, cancel: cancel}
	for i := range benchPages {
		heard := make(chan struct{}, 1)
		p.open.Go(func() { p.listen(ctx, heard) }) // ends with ctx
		p.open.Go(func() {                         // ends with ctx
			for wait := benchPace * time.Duration(i) / benchPages; ; wait = benchPace {
				select {
				case <-time.After(wait):
				case <-heard:
				case <-ctx.Done():
					return
				}
				took := p.read("snapshot")
				p.mu.Lock()
				p.taken = append(p.taken, took)
				p.mu.Unlock()
				select {
				case <-time.After(benchSoonest):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	b.Cleanup(func() { p.stop() })
	return p
}

func (p *pages) reads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

func (p *pages) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = nil
}

// stop closes the pages, and says what their reads took.
func (p *pages) stop() []time.Duration {
	p.cancel()
	p.open.Wait()
	return p.taken
}

// listen follows the events.
func (p *pages) listen(ctx context.Context, heard chan<- struct{}) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"events", nil)
	if err != nil {
		p.Error(err)
		return
	}
	answer, err := p.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			p.Error(err)
		}
		return
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "event: ") {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	}
}

// read is what one read takes, to the last byte.
func (p *pages) read(document string) time.Duration {
	began := time.Now()
	answer, err := p.client.Get(p.url + document)
	if err != nil {
		p.Error(err)
		return 0
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		p.Error(answer.Status, err)
	}
	return time.Since(began)
}
