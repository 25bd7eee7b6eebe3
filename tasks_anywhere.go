package tenure

import (
	"fmt"
	"hash/fnv"
)

// maxShards is how many roles tasks can be dealt out to.
const maxShards = 1000

// shard is the role that a task with Anywhere is dealt to. Every version must deal alike, or tasks
// move with an upgrade.
func shard(task string, shards int) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(task)) // never fails
	return fmt.Sprintf("tasks.%d", 1+sum.Sum32()%uint32(shards))
}
