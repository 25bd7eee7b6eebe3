package contender

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaseNamespace is where the Lease object lies.
const leaseNamespace = "default"

func clientGoContender() Contender {
	return Contender{
		Name: "client-go", Module: "k8s.io/client-go",
		For:   "controllers in a Kubernetes cluster, where etcd keeps the Lease",
		Own:   "`IsLeader()`",
		Work:  "context of `OnStartedLeading`",
		Token: "not handed out: `leaseTransitions` and `resourceVersion` are in the Lease",
		New:   newClientGo, Kubernetes: true,
	}
}

type clientGoCandidate struct {
	work
	config  leaderelection.LeaderElectionConfig
	elector atomic.Pointer[leaderelection.LeaderElector]
}

func newClientGo(ctx context.Context, cfg Config) (Candidate, error) {
	leases, err := coordinationv1.NewForConfig(&rest.Config{
		Host: "http://" + cfg.Addr, UserAgent: cfg.ID, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		return nil, err
	}
	if _, err := leases.Leases(leaseNamespace).List(ctx, metav1.ListOptions{}); err != nil { // opens a connection
		return nil, err
	}
	c := new(clientGoCandidate)
	c.config = leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: leaseNamespace, Name: Key},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.ID},
		},
		LeaseDuration: cfg.TTL, RenewDeadline: cfg.TTL * 2 / 3, RetryPeriod: cfg.TTL / 3,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: c.begin,
			OnStoppedLeading: c.end,
		},
	}
	return c, nil
}

func (c *clientGoCandidate) Belief() Belief {
	elector := c.elector.Load()
	return Belief{Own: elector != nil && elector.IsLeader(), Work: c.on()}
}

// Run starts a new election after each lost one. RunOrDie would end the process instead.
func (c *clientGoCandidate) Run(ctx context.Context) {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(c.config)
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		c.elector.Store(elector)
		elector.Run(ctx)
	}
}
