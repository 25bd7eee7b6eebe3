//go:build !unix

package figures

import "time"

// CPU is the processor time that this process has used so far; here it is not told.
func CPU() time.Duration { return 0 }
