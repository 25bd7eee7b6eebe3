package tenurehttp

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var description []byte

// openAPI serves the description of all this.
func (h *Handler) openAPI(w http.ResponseWriter, _ *request) error {
	write(w, http.StatusOK, "application/json", description)
	return nil
}
