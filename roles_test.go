package tenure

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// TestRoles: who takes no part learns which roles there are, who leads each, and why nobody does.
func TestRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		roles, err := control.Roles(background)
		require.NoError(c, err)
		require.Equal(c, []RoleStatus{{}}, roles) // the default role, of which nothing is known

		a := c.member("a")
		_, err = a.AddRole("export", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start()
		c.until(time.Minute, func() bool { return len(a.leading(nil)) == 2 })
		c.pass(time.Minute) // the next heartbeat says so
		roles, err = control.Roles(background, "unheard")
		require.NoError(c, err)
		require.Len(c, roles, 3)
		require.Equal(c, RoleStatus{Role: "unheard"}, roles[2])
		for i, name := range []string{"", "export"} {
			r := roles[i]
			require.True(c, r.Led)
			require.Equal(c, name, r.Role)
			require.Equal(c, "a", r.Leader.InstanceID)
			require.Equal(c, a.Options().Election.LeaseTTL, r.LeaseTTL)
			require.InDelta(c, time.Minute, r.For, float64(3*time.Second))
		}
		_, err = control.Role(background, "a b")
		require.ErrorIs(c, err, ErrMisconfigured)

		require.NoError(c, a.Elector().Resign(background))
		r, err := control.Role(background, "")
		require.NoError(c, err)
		require.False(c, r.Led)
		require.Equal(c, "resigned", r.Last.Reason)
		require.Equal(c, "a", r.Last.InstanceID)
		require.Less(c, r.For, time.Second)
		require.Empty(c, r.Waiting) // a candidate may be granted it

		c.until(time.Minute, a.IsLeader)
		a.crash()
		c.pass(15 * time.Second)
		r, err = control.Role(background, "")
		require.NoError(c, err)
		require.False(c, r.Led)
		require.Equal(c, "lapsed", r.Last.Reason)
		require.Greater(c, r.For, time.Second)
		require.Less(c, r.For, 15*time.Second)
	})
}

// TestRoleSaysWhyNobodyLeads: each reason that the history of a lease has, and until when it holds.
func TestRoleSaysWhyNobodyLeads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		for _, given := range []struct {
			hash map[string]int64 // names in it that are times count from now
			heir string
			want WaitReason
			wait time.Duration
		}{
			{map[string]int64{"hold": 5000, "asked": 0}, "", WaitEmpty, 5 * time.Second},
			{map[string]int64{"hold": 5000, "token": -1, "armed": -30_000}, "", WaitHold, 5 * time.Second},
			{map[string]int64{"hold": 5000, "armed": -30_000}, "", WaitHold, 5 * time.Second},
			{map[string]int64{"token": -1, "until": 4000}, "", WaitVanished, 4 * time.Second},
			{map[string]int64{"token": -1, "until": 4000, "released": -1}, "", "", 0},
			{map[string]int64{"token": -1, "released": -1, "reserved": 2000}, "b", WaitReserved, 2 * time.Second},
			{map[string]int64{"token": -1, "released": -1, "reserved": 2000}, "", "", 0},
			{map[string]int64{"token": -1, "until": 0}, "", "", 0},
			{map[string]int64{"token": -1, "hold": -1, "released": -1}, "", "", 0},
		} {
			now := time.Now().UnixMilli()
			c.redis.Do(func(m *miniredis.Miniredis) {
				m.Del("tenure:leader:term")
				for name, n := range given.hash {
					if n < 0 {
						n = -n - now // below zero: a plain number
					}
					m.HSet("tenure:leader:term", name, strconv.FormatInt(now+n, 10))
				}
				if given.heir != "" {
					m.HSet("tenure:leader:term", "heir", given.heir)
				}
			})
			r, err := control.Role(background, "")
			require.NoError(c, err)
			require.Equal(c, given.want, r.Waiting, given)
			require.InDelta(c, given.wait, r.Wait, float64(100*time.Millisecond), given)
		}
	})
}
