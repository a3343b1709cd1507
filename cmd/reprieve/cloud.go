//go:build cloud

package main

// Drivers of clouds, for keys.keeper.url: go build -tags cloud. They are built and not tested against their services.
import (
	_ "gocloud.dev/secrets/awskms"        // awskms://
	_ "gocloud.dev/secrets/azurekeyvault" // azurekeyvault://
	_ "gocloud.dev/secrets/gcpkms"        // gcpkms://
)
