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
			trips, spaced := 1+(many-4+799)/800, time.Duration(0)
			if many > manyRoles {
				spaced = spacing
			}
			require.LessOrEqual(t, second, time.Duration(trips+2)*roundTrip+spaced)
			require.LessOrEqual(t, first, time.Duration(trips+6)*roundTrip+spaced)
		})
	}
}

// TestRenewalsOfManyRolesAreSpaced: what comes within 20 ms of the last pipeline waits for that
// long and travels together, unless its bound is near. The renewals of few roles, and acquires,
// wait for nothing.
func TestRenewalsOfManyRolesAreSpaced(t *testing.T) {
	for _, tt := range []struct {
		name          string
		roles         int
		bound         time.Duration
		acquire       bool
		least, most   int // calls and pipelines on the wire
		longest, pace time.Duration
	}{
		{name: "few", roles: manyRoles, bound: time.Second, least: 40, most: 40, longest: roundTrip, pace: 5 * time.Millisecond},
		{name: "many", roles: manyRoles + 1, bound: time.Second, least: 9, most: 12, longest: spacing + 2*roundTrip, pace: 5 * time.Millisecond},
		{name: "in a hurry", roles: manyRoles + 1, bound: hurry - time.Millisecond, least: 40, most: 40, longest: roundTrip, pace: 5 * time.Millisecond},
		{name: "acquires", roles: manyRoles + 1, bound: time.Second, acquire: true, least: 40, most: 40, longest: roundTrip, pace: 5 * time.Millisecond},
		{name: "far apart", roles: manyRoles + 1, bound: time.Second, least: 40, most: 40, longest: roundTrip, pace: spacing + time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
				for i := range 2 * manyRoles { // asked for by a Control
					_, err := db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:other", i), Holder: "a", TTL: time.Second}).Leader(t.Context())
					require.NoError(t, err)
				}
				leases := make([]*Lease, tt.roles)
				for i := range leases {
					leases[i] = db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "a", TTL: 10 * time.Second}) // the hook is of this client
				}
				ask := func(l *Lease) time.Duration {
					ctx, cancel := context.WithTimeout(context.Background(), tt.bound)
					defer cancel()
					began := time.Now()
					var err error
					if tt.acquire {
						_, err = l.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Second})
					} else {
						_, err = l.Renew(ctx, lease.Request{Nonce: "n", Token: 7, HoldOff: time.Second, Draining: true})
					}
					if err != nil {
						t.Error(err)
					}
					return time.Since(began)
				}
				for _, l := range leases { // one counts from its first renewal
					ask(l)
				}
				time.Sleep(time.Second) // in virtual time
				sent.mu.Lock()
				sent.sizes = nil
				sent.mu.Unlock()
				took := make(chan time.Duration, 40)
				for i := range 40 {
					go func() { took <- ask(leases[i%len(leases)]) }() // ends with its answer
					time.Sleep(tt.pace)                                // in virtual time
				}
				for range 40 {
					require.LessOrEqual(t, <-took, tt.longest)
				}
				batches := sent.all()
				require.GreaterOrEqual(t, len(batches), tt.least)
				require.LessOrEqual(t, len(batches), tt.most)
			})
		})
	}
}
