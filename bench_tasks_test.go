//go:build unix

package tenure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// How late 10,000 tasks start that are due every ten seconds each, a thousand a second, and what
// that costs this process and Redis: shares of one core. The tasks do nothing. A slot counts from
// when it is due by Redis's clock, which is this machine's.
func BenchmarkTasks(b *testing.B) {
	const many, every, span = 10_000, 10 * time.Second, 30 * time.Second
	server := redistest.Start(b)
	rdb := server.Client(b)
	c, err := New(rdb, Options{Namespace: "tenure", InstanceID: "leader", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}})
	require.NoError(b, err)
	var mu sync.Mutex
	var late []time.Duration
	for n := range many {
		require.NoError(b, c.Tasks().Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(every), Run: func(_ context.Context, run TaskRun) error {
			behind := time.Since(run.Slot)
			mu.Lock()
			late = append(late, behind)
			mu.Unlock()
			return nil
		}}))
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }() // ends with cancel
	<-time.After(2*every + every/2)    // every task has its record, and has run once
	for b.Loop() {
		mu.Lock()
		late = late[:0]
		mu.Unlock()
		before, redisBefore := processTime(b), redisTime(b, server)
		<-time.After(span)
		spent, redisSpent := processTime(b)-before, redisTime(b, server)-redisBefore
		mu.Lock()
		slices.Sort(late)
		runs := len(late)
		require.NotEmpty(b, late)
		for name, share := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99, "max-ms": 1} {
			b.ReportMetric(float64(late[min(int(share*float64(runs)), runs-1)])/float64(time.Millisecond), name)
		}
		mu.Unlock()
		b.ReportMetric(float64(runs)/span.Seconds(), "runs/s")
		b.ReportMetric(float64(spent)/float64(span), "cores")
		b.ReportMetric(float64(redisSpent)/float64(span), "redis-cores")
	}
	b.ReportMetric(0, "ns/op")
	cancel()
	require.NoError(b, <-done)
}

// processTime is the processor time that this process has used.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// redisTime is the processor time that a server has used.
func redisTime(b *testing.B, server *redistest.Server) (spent time.Duration) {
	b.Helper()
	info := server.Info(b, "cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		require.NoError(b, err)
		spent += time.Duration(seconds * float64(time.Second))
	}
	return spent
}
