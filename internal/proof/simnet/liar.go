package simnet

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// taskReply is how long a reply of the task scripts is: a verdict, Redis's time and the record.
const taskReply = 32

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

// change changes a reply, which is a list or, if a shortcut has answered, its elements in one text.
func (l *Liar) change(cmd redis.Cmder) {
	reply, ok := cmd.(*redis.Cmd)
	if !ok || cmd.Err() != nil {
		return
	}
	text, isText := reply.Val().(string)
	value, _ := reply.Val().([]any)
	if isText {
		for line := range strings.SplitSeq(text, "\n") {
			value = append(value, line)
		}
	}
	if len(value) != taskReply {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.verdict != "" {
		value[0] = l.verdict
	}
	if l.run != "" {
		value[5] = l.run
	}
	if reply.SetVal(value); isText {
		lines := make([]string, len(value))
		for i, line := range value {
			lines[i], _ = line.(string)
		}
		reply.SetVal(strings.Join(lines, "\n"))
	}
}
