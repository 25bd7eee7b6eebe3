//go:build unix

package campaign

import (
	"testing"

	"github.com/tenure-go/tenure/internal/redistest"
)

func TestMain(m *testing.M) {
	Children()
	if redistest.RunChild() {
		return
	}
	m.Run()
}
