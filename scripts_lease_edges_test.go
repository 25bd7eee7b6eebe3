package tenure

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
)

// What is a limit in the scripts is the same limit in the decisions: a token or a TTL that one of them believes the other believes too.
func TestLimitsOfTheScriptsAreThoseOfTheDecisions(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, s := range []*script{contract.acquire, contract.renew, contract.release, contract.leader} {
		for name, limit := range map[string]int64{
			"MAX_TOKEN": lease.MaxToken, "MAX_TTL": lease.MaxTTL.Milliseconds(), "CENTURY": century.Milliseconds(),
		} {
			require.Regexp(t, fmt.Sprintf(`(?m)^local %s = %d\s*(--.*)?$`, name, limit), s.source, s.name)
		}
	}
	const now = 1_700_000_000_000
	require.True(t, lease.SaneToken(now+century.Milliseconds(), now))
	require.False(t, lease.SaneToken(now+century.Milliseconds()+1, now))
}
