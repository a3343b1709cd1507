package main

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"reprieve.dev/embedded"
)

// addresses are where the embedded servers listen.
type addresses struct {
	Bootstrap string `json:"bootstrap"`
	Registry  string `json:"registry"`
}

// embeddedCmd runs the broker and the registry of the demo in a process of their own. They end when standard input closes, so
// that they never outlive who started them.
func (a *app) embeddedCmd() *cobra.Command {
	var dir string
	var port int
	c := &cobra.Command{
		Use: "embedded", Short: "Run the embedded broker and registry until standard input closes (for demos, not for production)", Hidden: true,
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: filepath.Join(dir, "broker"), Port: port, Log: a.log()})
			if err != nil {
				return err
			}
			defer b.Close()
			r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: filepath.Join(dir, "registry"), Log: a.log()})
			if err != nil {
				return err
			}
			defer r.Close()
			if err := json.NewEncoder(a.out).Encode(addresses{b.Bootstrap(), r.URL()}); err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(c.Context())
			go func() {
				_, _ = io.Copy(io.Discard, a.in) // returns when it closes
				cancel()
			}()
			<-ctx.Done()
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", ".embedded", "folder of their data")
	c.Flags().IntVar(&port, "port", 0, "port of the broker; any free one if 0")
	return c
}
