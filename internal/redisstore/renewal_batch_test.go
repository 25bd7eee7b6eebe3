package redisstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// roundTrip is the longest on a network of simnet that nothing is wrong with.
const roundTrip = 4 * time.Millisecond

// TestRenewalsTravelTogether: what comes while four calls are on their way goes in one pipeline, at
// most 200 in each; one that comes alone goes alone; a script that the server does not know is
// loaded once.
func TestRenewalsTravelTogether(t *testing.T) {
	for _, many := range []int{1, 4, 5, 300, 1000} {
		synctest.Test(t, func(t *testing.T) {
			network := simnet.New(simnet.Options{Seed: 1})
			defer network.Close()
			network.NewServer(simnet.Addr, simnet.ServerOptions{})
			client := network.Client("a", nil)
			db := openStore(client, "ns")
			require.NoError(t, client.Ping(t.Context()).Err())
			ask := func() (took time.Duration) {
				began, done := time.Now(), make(chan error)
				for i := range many {
					role := db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "a", TTL: 10 * time.Second, Attempt: 10 * time.Second / 3})
					go func() { // ends with its answer
						ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
						defer cancel()
						reply, err := role.Renew(ctx, lease.Request{Nonce: "n", Token: int64(i + 1), HoldOff: time.Second, Draining: true})
						if err == nil && reply.Reason != "vanished" {
							err = fmt.Errorf("answered %+v", reply)
						}
						done <- err
					}()
				}
				for range many {
					require.NoError(t, <-done)
				}
				return time.Since(began)
			}
			first, second := ask(), ask()
			t.Logf("%d renewals: %v on a server that does not know the script, then %v", many, first, second)
			trips := 1 + (many-4+799)/800
			require.LessOrEqual(t, second, time.Duration(trips+2)*roundTrip)
			require.LessOrEqual(t, first, time.Duration(trips+6)*roundTrip)
		})
	}
}
