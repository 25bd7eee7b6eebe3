package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// guard is for other systems.
func guard([]string) (int, bool) { return 0, false }

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run -- COMMAND...", Short: "Run a program only while this process leads (not on Windows)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("tenure run needs process groups and pipes that Windows does not have: embed the library, or run it in WSL")
		},
	}
}
