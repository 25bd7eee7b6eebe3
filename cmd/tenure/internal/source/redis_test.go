package source

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestFollowOfALogThatIsGone: that changes may be missing is said once, also if the log stays empty
// for long, and what changes then is heard of.
func TestFollowOfALogThatIsGone(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", By: "test"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said []string
	taken := make(chan []tenure.Change, 10)
	var following sync.WaitGroup
	following.Go(func() { // ends with ctx; awaited below
		r := &Redis{Control: control, Client: client, Timeout: time.Minute}
		r.Follow(ctx, "1700000000000-0", func(changes []tenure.Change) { taken <- changes }, func(problem string) { said = append(said, problem) })
	})
	<-time.After(3*lookInterval + lookInterval/2) // so that it looks several times
	require.NoError(t, client.XAdd(ctx, &redis.XAddArgs{
		Stream: "shop:log", ID: "1700000000001-0", Values: []string{"event", "joined", "instances", "web-1"},
	}).Err())
	select {
	case changes := <-taken:
		require.Equal(t, "1700000000001-0", changes[0].ID)
	case <-ctx.Done():
		t.Error("it hears of nothing")
	}
	cancel()
	following.Wait()
	require.Equal(t, []string{missing}, said)
}
