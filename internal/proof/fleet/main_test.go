//go:build unix

package fleet

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

func TestMain(m *testing.M) {
	Children()
	if redistest.RunChild() {
		return
	}
	m.Run()
}
