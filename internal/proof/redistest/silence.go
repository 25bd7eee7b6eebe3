package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Silence keeps go-redis from reporting every connection that it loses.
func Silence() { redis.SetLogger(silent{}) }

type silent struct{}

// Printf says nothing.
func (silent) Printf(context.Context, string, ...any) {}
