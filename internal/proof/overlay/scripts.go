package overlay

import (
	"os"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/redisstore"
)

// EnvScripts names the file with the scripts that a process runs with.
const EnvScripts = "TENURE_SCRIPTS"

// TakeScripts has this process run with the scripts of EnvScripts in place of the product's, if it
// is set: that is how broken scripts are tested without another build. It is for TestMain, in
// programs that import package tenure, and panics if it cannot.
func TakeScripts() {
	path := os.Getenv(EnvScripts)
	if path == "" {
		return
	}
	source, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	scripts := redisstore.MustLoad(string(source))
	*hook.Scripts = func() *redisstore.Scripts { return scripts }
}
