package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
)

func (a *app) pluginInstallCmd() *cobra.Command {
	var noLock bool
	var level string
	var from plugins.Source
	c := &cobra.Command{
		Use: "install PATH|URL", Short: "Install a plugin from a folder, an archive or a registry, and pin it",
		Long: "Install starts the plugin once in the sandbox, compares what it says it is with plugin.yaml, copies both to the plugin folder of\n" +
			"the worker file, and pins name, version, digests, protocol and level in plugins.lock. The same version with other bytes is\n" +
			"refused: a version never changes. PATH is the folder that holds plugin.yaml, or a tar or tar.gz of it, or an OCI image layout\n" +
			"(a folder with oci-layout and index.json, or a tar of it), of which --digest names the manifest. A URL is https://, with --digest,\n" +
			"or oci://HOST/NAME@sha256:DIGEST; nothing is fetched without --online.",
		Example: "  reprieve plugin install examples/plugin-go\n  reprieve plugin install fix-dates-1.2.0.tar.gz --digest sha256:9f86...\n" +
			"  reprieve plugin install fix-dates-oci.tar --digest sha256:9f86...\n" +
			"  reprieve plugin install oci://registry.example.com/acme/fix-dates@sha256:9f86... --online",
		Args: exactly(1, "a folder that holds plugin.yaml, an archive or a URL"),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			from.Place, from.Client = args[0], &http.Client{Timeout: 5 * time.Minute}
			dir, done, err := from.Open(c.Context())
			if err != nil {
				return err
			}
			defer done()
			h, err := plugins.Open(c.Context(), o)
			if err != nil {
				return err
			}
			defer h.Close()
			pkg, did, err := h.Install(c.Context(), dir)
			if err != nil {
				return err
			}
			out := struct {
				Ref    string          `json:"ref"`
				Folder string          `json:"folder"`
				Digest pipeline.Digest `json:"digest"`
				Level  string          `json:"level"` // it was started at
				Pinned string          `json:"pinned,omitempty"`
			}{pkg.Descriptor.Ref(), pkg.Dir, pkg.Digest, did.Level, ""}
			if !noLock {
				l, err := pin(o, pkg, level)
				if err != nil {
					return err
				}
				out.Pinned = l.String()
			}
			return a.print(out, func(t *table) {
				t.line("%s installed in %s", out.Ref, out.Folder)
				t.line("it ran at level %s; digest %s", out.Level, out.Digest)
				if out.Pinned != "" {
					t.line("pinned at level %s or better in %s", out.Pinned, o.Lock)
				} else {
					t.line("not pinned: it may not run before reprieve plugin lock %s", out.Ref)
				}
			})
		},
	}
	c.Flags().StringVar(&from.Digest, "digest", "", "sha256:... of the archive, or of the manifest in an image layout; required for what is fetched")
	c.Flags().BoolVar(&from.Online, "online", false, "fetch it over the network")
	c.Flags().BoolVar(&noLock, "no-lock", false, "install only; do not pin")
	c.Flags().StringVar(&level, "level", "", "least level to pin: restricted or isolated; default: the author's")
	return c
}
