package sidecar

// executable is this program, also if its file was replaced meanwhile.
func executable() (string, error) { return "/proc/self/exe", nil }
