//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// resizes says when the terminal has another size.
func resizes(ctx context.Context) <-chan os.Signal {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(resized) })
	return resized
}
