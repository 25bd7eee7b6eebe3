package simnet

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// taskReply is how long a reply of the task scripts is: a verdict, Redis's time and the record.
const taskReply = 31

// Liar is a hook of a client that puts something else into the replies of the task scripts. It is
// safe for concurrent use.
type Liar struct {
	mu           sync.Mutex
	verdict, run string
	asked        int
}

// Lie sets the verdict and the ID of the run that replies have from now on, "" for the true one,
// and returns how many there were until now.
func (l *Liar) Lie(verdict, run string) (asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict, l.run = verdict, run
	return l.asked
}

// DialHook changes nothing.
func (l *Liar) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes what a script answers.
func (l *Liar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		l.change(cmd)
		return err
	}
}

// ProcessPipelineHook does the same with each of a pipeline.
func (l *Liar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			l.change(cmd)
		}
		return err
	}
}

func (l *Liar) change(cmd redis.Cmder) {
	reply, ok := cmd.(*redis.SliceCmd)
	if !ok || cmd.Err() != nil || len(reply.Val()) != taskReply {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	value := reply.Val()
	if l.verdict != "" {
		value[0] = l.verdict
	}
	if l.run != "" {
		value[5] = l.run
	}
	reply.SetVal(value)
}
