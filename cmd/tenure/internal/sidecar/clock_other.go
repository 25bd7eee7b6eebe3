//go:build unix && !linux

package sidecar

import "time"

// now is the wall clock, which all processes of this machine share. It must not be set back.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
