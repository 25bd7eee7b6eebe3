package contender

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

func tenureContender() Contender {
	return Contender{
		Name: "tenure", Module: "github.com/tenure-go/tenure",
		For:   "leader election in Redis, with tasks and an instance registry on top",
		Own:   "`IsLeader()`",
		Work:  "context of the term",
		Token: "yes: `Term.Token`, strictly increasing",
		New:   newTenure,
	}
}

type tenureCandidate struct {
	work
	elector *tenure.Elector
	client  *redis.Client
}

func newTenure(ctx context.Context, cfg Config) (Candidate, error) {
	client, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	elector, err := tenure.NewElector(client, tenure.ElectorOptions{
		Namespace: Key, InstanceID: cfg.ID,
		Election: tenure.ElectionOptions{LeaseTTL: cfg.TTL, RenewInterval: cfg.TTL / 3},
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &tenureCandidate{elector: elector, client: client}, nil
}

func (c *tenureCandidate) Belief() Belief {
	return Belief{Own: c.elector.IsLeader(), Work: c.on()}
}

func (c *tenureCandidate) Run(ctx context.Context) {
	defer c.client.Close()
	_ = c.elector.Run(ctx, func(ctx context.Context, _ tenure.Term) error { // ends with ctx; its error is how
		c.begin(ctx)
		defer c.end()
		<-ctx.Done()
		return nil
	})
}
