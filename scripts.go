package tenure

import (
	_ "embed"

	"github.com/tenure-go/tenure/internal/redisstore"
)

//go:embed scripts.lua
var scriptsLua string

// contract is what the embedded file says, loaded once.
var contract = redisstore.MustLoad(scriptsLua)
