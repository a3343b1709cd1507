// Command embed is an application with its own database that hands over what it cannot process: README.md tells the six steps.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"reprieve.dev/seal"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: embed FOLDER (with events.jsonl and key.pem; EMBED_API and EMBED_TOKEN say where Reprieve is)")
		os.Exit(2)
	}
	if err := work(context.Background(), os.Args[1], nil); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// work reads all events of the folder and sends all that is owed; at is told each step that was done.
func work(ctx context.Context, dir string, at func(step string)) error {
	signer, err := seal.ReadSigner(filepath.Join(dir, "key.pem"))
	if err != nil {
		return err
	}
	app, err := open(dir, client{url: os.Getenv("EMBED_API"), token: os.Getenv("EMBED_TOKEN"), signer: signer}, at)
	if err != nil {
		return err
	}
	defer app.db.Close()
	if err := app.consume(ctx); err != nil {
		return err
	}
	return app.relay(ctx)
}
