package simnet

import (
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"
)

// AutoPipeliner is what a method of the client (AutoPipeline, AsyncAutoPipeline) returns. A version
// of go-redis that has no such method skips the test.
func AutoPipeliner(t *testing.T, client redis.UniversalClient, method string) redis.UniversalClient {
	t.Helper()
	made := reflect.ValueOf(client).MethodByName(method)
	if !made.IsValid() {
		t.Skipf("this version of go-redis has no %s", method)
	}
	results := made.Call(nil)
	if err, failed := reflect.TypeAssert[error](results[1]); failed {
		t.Fatal(err)
	}
	return results[0].Interface().(redis.UniversalClient)
}
