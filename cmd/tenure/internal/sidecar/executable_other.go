//go:build unix && !linux

package sidecar

import "os"

func executable() (string, error) { return os.Executable() }
