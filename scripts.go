package tenure

import (
	_ "embed"
	"sync"

	"github.com/tenure-go/tenure/internal/redisstore"
)

//go:embed scripts.lua
var scriptsLua string

// contract is what the embedded file says. It is loaded for the first client: no program waits for
// it that only imports this package.
var contract = sync.OnceValue(func() *redisstore.Scripts { return redisstore.MustLoad(scriptsLua) })
