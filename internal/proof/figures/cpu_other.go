//go:build !unix

package figures

import "time"

// CPU is the processor time that this process has used so far; not known on this system.
func CPU() time.Duration { return 0 }
