//go:build cloud

package main

// Drivers of clouds, for keys.keeper.url and custody.retention.archive: go build -tags cloud. s3:// is tested with a
// server that speaks the API of S3; the others are built and not tested against their services.
import (
	_ "gocloud.dev/blob/azureblob"        // azblob://
	_ "gocloud.dev/blob/gcsblob"          // gs://
	_ "gocloud.dev/blob/s3blob"           // s3://
	_ "gocloud.dev/secrets/awskms"        // awskms://
	_ "gocloud.dev/secrets/azurekeyvault" // azurekeyvault://
	_ "gocloud.dev/secrets/gcpkms"        // gcpkms://
)
