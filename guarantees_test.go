package tenure_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

func TestGuarantees(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	c, err := tenure.New(rdb, tenure.Options{Namespace: "shop"})
	require.NoError(t, err)
	inSeconds := func(d time.Duration) float64 { return d.Seconds() }

	g := c.Guarantees()
	require.Equal(t, c.Elector().Guarantees(), g)
	require.InDelta(t, 0.1+1/7.5+1.0/15+0.1, g.Leading, 1e-9, "a renewal every 10 s, a check every 7.5, a heartbeat every 15, a sweep every 10")
	require.InDelta(t, 1.0/15+1/7.5+1.0/15, g.Following, 1e-9, "an acquire every 15 s, a check, a heartbeat")
	require.InDelta(t, 0.01, g.ClockRate, 1e-12)
	g.Leading, g.Following, g.ClockRate = 0, 0, 0
	require.Equal(t, tenure.Guarantees{
		LeaseTTL: 30 * time.Second, Belief: 29698 * time.Millisecond, Cancel: 29098 * time.Millisecond,
		OutageTolerance: 10875 * time.Millisecond, CrashFailover: 30050 * time.Millisecond,
		HandOver: 20 * time.Millisecond, HandOverUnheard: 16500 * time.Millisecond, Yield: time.Second, TransferWait: 35 * time.Second,
		LossFailover: 48500 * time.Millisecond, FirstElection: 32 * time.Second,
	}, g)

	mailer, err := c.AddRole("mailer", tenure.ElectionOptions{LeaseTTL: 3 * time.Second, Safety: tenure.SafetyOptions{
		HoldOff: 5 * time.Second, FailoverMargin: time.Second / 2, RestartGuard: -1,
	}})
	require.NoError(t, err)
	g = mailer.Guarantees()
	require.Equal(t, "mailer", g.Role)
	require.InDelta(t, 1, g.Leading, 1e-9, "the process is counted with the default role")
	require.Equal(t, 1650*time.Millisecond+5*time.Second+time.Second/2+2*time.Second, g.LossFailover)
	require.Equal(t, 250*time.Millisecond, g.FirstElection, "no guard: the roll-call alone")

	text, err := json.Marshal(g)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	require.InDelta(t, inSeconds(g.OutageTolerance), fields["outage_tolerance_seconds"], 1e-9)
	require.InDelta(t, 3.5, fields["transfer_wait_seconds"], 1e-9)
	require.Len(t, fields, 15, "%s", text)

	alone, err := tenure.NewElector(rdb, tenure.ElectorOptions{Namespace: "shop", Election: tenure.ElectionOptions{LeaseTTL: 4 * time.Second}})
	require.NoError(t, err)
	require.InDelta(t, 1/2.0+1/2.5, alone.Guarantees().Following, 1e-9, "an acquire every 2 s, a check every 2.5")

	local, err := tenure.NewStandalone(tenure.Options{})
	require.NoError(t, err)
	require.Zero(t, local.Guarantees(), "there is no lease that could end")
}

// The bounds are in the log from the start.
func TestGuaranteesAreLogged(t *testing.T) {
	var log strings.Builder
	c, err := tenure.New(redis.NewClient(&redis.Options{Addr: "localhost:1"}), tenure.Options{
		Namespace: "shop", FailFast: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.Error(t, c.Run(t.Context()))
	require.Regexp(t, `level=INFO msg="takes part in the election" instance=\S+ lease_ttl=30s outage_tolerance=10.875s crash_failover=30.05s hand_over=20ms `+
		`loss_failover=48.5s clock_rate=0.01\n`, log.String())
}
