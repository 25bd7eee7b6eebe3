package deploy_test

import (
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/stretchr/testify/require"
)

// TestCompose: the file is a valid Compose project whose paths and grace periods fit.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"compose/compose.yaml"}, cli.WithName("shop"))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	shop, redis := project.Services["shop"], project.Services["redis"]
	require.Equal(t, "service_healthy", shop.DependsOn["redis"].Condition)
	require.NotNil(t, redis.HealthCheck)
	require.FileExists(t, redis.Volumes[0].Source, "the users of Redis")
	require.FileExists(t, shop.Build.Context+"/"+shop.Build.Dockerfile)
	require.GreaterOrEqual(t, time.Duration(*shop.StopGracePeriod), 30*time.Second)
	require.Equal(t, password, *shop.Environment["SHOP_REDIS_PASSWORD"])
}
