package store

import (
	"regexp"
	"slices"
	"strings"
)

// What names are made of.
var (
	// IDPattern is that of an instance ID, and of a Namespace or LeaderKey without a hash tag.
	IDPattern = pattern(`A-Za-z0-9._:-`, 128)
	// RolePattern is that of a role, and of a task.
	RolePattern = pattern(`A-Za-z0-9._-`, 128)
	// TagPattern finds a hash tag.
	TagPattern = regexp.MustCompile(`\{[A-Za-z0-9._:-]+\}`)
	// IncarnationPattern is that of an incarnation, and of the status of an instance.
	IncarnationPattern = pattern(`A-Za-z0-9_-`, 64)
	// CommandIDPattern is that of the ID of a command.
	CommandIDPattern = IncarnationPattern
)

// ReservedRoles are names whose lease key would be one that belongs to the lease of the default
// role.
var ReservedRoles = []string{"since", "term", "terms", "events"}

// IsRole reports whether a role can have that name.
func IsRole(name string) bool {
	return RolePattern.MatchString(name) && !slices.Contains(ReservedRoles, name)
}

// IsDots reports whether a name is a segment of a path that no URL can have: whoever reads one
// takes it out.
func IsDots(name string) bool { return name == "." || name == ".." }

// IsKey reports whether a Namespace or LeaderKey can be called so: the characters of an ID and at
// most one hash tag.
func IsKey(name string) bool {
	bare := name
	if tag := TagPattern.FindString(name); tag != "" {
		bare = strings.Replace(name, tag, tag[1:len(tag)-1], 1)
	}
	return IDPattern.MatchString(bare) && len(name) <= 128
}
