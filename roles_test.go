package tenure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestP1P2_ManyRolesUnderFaults: two processes with so many roles that their renewals travel
// together, under drawn faults: no role is led twice at a time, a later term has a greater token,
// and in the calm each has a leader.
func TestP1P2_ManyRolesUnderFaults(t *testing.T) {
	const roles = driver.Few + 8
	for seed := range uint64(4) {
		if (testing.Short() || simnet.Race) && seed > 0 {
			break
		}
		inCluster(t, func(c *cluster) {
			r := rand.New(rand.NewPCG(seed, 7))
			within := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
			together := 0 // renewals by a call for many
			c.redis.Intercept(func(_, cmd string, args []string) string {
				if strings.EqualFold(cmd, "evalsha") {
					if keys, _ := strconv.Atoi(args[1]); keys > 5 && keys%3 == 0 && strings.HasSuffix(args[1+keys], ":term") {
						together += keys / 3
					}
				}
				return ""
			})
			for _, name := range []string{"a", "b"} {
				m := c.member(name)
				for i := range roles - 1 {
					_, err := m.AddRole(fmt.Sprint("role-", i), ElectionOptions{LeaseTTL: 10 * time.Second})
					require.NoError(c, err)
				}
				m.start()
			}
			role := func(m *instance) *Elector { return m.Roles()[r.IntN(roles)] }
			last := make([]int64, roles)
			look := func() (led int) {
				for i := range roles {
					leads := 0
					for _, m := range c.members {
						term, leading := m.Roles()[i].Term()
						if !leading {
							continue
						}
						leads++
						require.GreaterOrEqual(c, term.Token, last[i], "seed %d: role %d of %s", seed, i, m.name)
						last[i] = term.Token
					}
					require.LessOrEqual(c, leads, 1, "seed %d: role %d", seed, i)
					led += leads
				}
				return led
			}
			watch := func(d time.Duration) {
				for range d / (20 * time.Millisecond) {
					c.pass(20 * time.Millisecond)
					look()
				}
			}
			for range 60 {
				m := c.members[r.IntN(2)]
				switch r.IntN(9) {
				case 0, 1:
					c.net.Partition(m.name, simnet.Way(1+r.IntN(3)), within(15*time.Second))
				case 2:
					c.net.SetFaults(m.name, simnet.Faults{
						DelayRequest: r.Float64() / 4, DelayReply: r.Float64() / 4, DelayMin: time.Millisecond, DelayMax: time.Millisecond + within(12*time.Second),
						LoseRequest: r.Float64() / 10, LoseReply: r.Float64() / 10, Cut: r.Float64() / 10, Dribble: r.Float64() / 4,
						Tear: r.Float64() / 20, Duplicate: r.Float64() / 4, DuplicateWithin: within(12 * time.Second),
					})
				case 3:
					c.redis.ScriptFlush()
				case 4:
					c.redis.Pause(within(4 * time.Second))
				case 5:
					c.redis.Restart(true, within(8*time.Second))
				case 6:
					ctx, cancel := context.WithCancel(c.Context())
					cancel()
					_ = role(m).Resign(ctx) // asks, and does not wait
				case 7:
					c.redis.Del(role(m).loop.opts.leaseKey(m.opts.Namespace))
				case 8:
					role(m).SetEligible(r.IntN(2) == 0)
				}
				watch(within(6 * time.Second))
			}
			c.net.Heal("")
			c.net.SetFaults("", simnet.Faults{})
			for _, m := range c.members {
				for _, e := range m.Roles() {
					e.SetEligible(true)
				}
			}
			watch(40 * time.Second)
			require.Equal(c, roles, look(), "seed %d: in the calm", seed)
			require.Greater(c, together, 10*roles)
		})
	}
}
