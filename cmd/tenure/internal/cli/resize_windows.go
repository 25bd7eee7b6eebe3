package cli

import (
	"context"
	"os"
)

// resizes says nothing here: each frame asks for the size.
func resizes(context.Context) <-chan os.Signal { return nil }
