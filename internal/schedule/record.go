package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"
)

// Hash returns 16 hexadecimal digits that stand for the given parts in this order, the same in
// every process and version. It is stored beside a task's next slot: a task whose schedule hashes
// to something else starts with First.
//
// What belongs into it is what decides where the slots lie: the schedule's text. A change of what
// becomes of missed slots is no reason to forget which one is next.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		// The length first, so that {"ab", "c"} is not {"a", "bc"}.
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Backoff returns how long to wait before the attempt after the given one, which counts from 1
// (what is less counts as 1):
//
//	d = min(base · 2^(attempt-1), limit)
//	wait = d/2 + jitter · d/2
//
// The half that is fixed keeps a task from being hammered, the other half spreads tasks that failed
// together. jitter is a random number in [0, 1), supplied by the caller; what lies outside counts
// as the nearest bound. A base of zero or less is no wait; a limit of zero or less is none.
func Backoff(attempt int, base, limit time.Duration, jitter float64) time.Duration {
	if base <= 0 {
		return 0
	}
	if limit <= 0 {
		limit = math.MaxInt64
	}
	d := min(base, limit)
	for ; attempt > 1 && d < limit; attempt-- {
		if d > limit/2 {
			d = limit
		} else {
			d *= 2
		}
	}
	if !(jitter > 0) { // not a number neither
		jitter = 0
	}
	half := d / 2
	return d - half + min(time.Duration(min(jitter, 1)*float64(half)), half)
}
