package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

// report is one line from a member to the demo.
type report struct {
	Member string `json:"member"`
	Kind   string `json:"kind"` // acquired, ended, task, led, gone, said
	Token  int64  `json:"token,omitempty"`
	Text   string `json:"text,omitempty"`
	From   int64  `json:"from,omitempty"` // led: it led at an instant between these two, in ns of this host's wall clock
	To     int64  `json:"to,omitempty"`
}

// Member is one of the three processes: an ordinary service with one leader-only task, over the
// Redis at an address.
func Member(ctx context.Context, id, address string) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()

	coordinator, err := tenure.New(client, tenure.Options{
		Namespace:  Namespace,
		InstanceID: id,
		Election:   tenure.ElectionOptions{LeaseTTL: leaseTTL},
		Registry:   tenure.RegistryOptions{HeartbeatInterval: time.Second, SweepInterval: time.Second, DriftedAfter: 4 * time.Second, DownAfter: 12 * time.Second},
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		r.Member = id
		if err := out.Encode(r); err != nil {
			os.Exit(1) // the demo is gone
		}
	}
	if err := coordinator.Tasks().Register(tenure.Task{
		Name:     "report",
		Schedule: tenure.Every(time.Second),
		Run: func(_ context.Context, run tenure.TaskRun) error {
			tell(report{Kind: "task", Token: run.Token, Text: run.Slot.UTC().Format(time.TimeOnly)})
			return nil
		},
	}); err != nil {
		return err
	}
	coordinator.Observe(func(e tenure.Event) {
		switch e.Type {
		case tenure.EventTermBegan:
			tell(report{Kind: "acquired", Token: e.Token})
		case tenure.EventTermEnded:
			tell(report{Kind: "ended", Token: e.Token, Text: e.Err.Error()})
		}
	})

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with standard input, that is with the demo
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == "resign" {
				_ = coordinator.Elector().Resign(ctx)
			}
		}
	}()
	var watching sync.WaitGroup
	watching.Go(func() { watchBelief(ctx, coordinator, tell) }) // ends with ctx
	defer watching.Wait()
	defer cancel()
	return coordinator.Run(ctx)
}

// watchBelief reports when this process was seen to lead, so that the demo can tell whether two
// ever believed at once.
func watchBelief(ctx context.Context, coordinator *tenure.Coordinator, tell func(report)) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		from := time.Now()
		if term, leading := coordinator.Elector().Term(); leading { // at an instant between from and now
			tell(report{Kind: "led", Token: term.Token, From: from.UnixNano(), To: time.Now().UnixNano()})
		}
	}
}
