package main

import (
	_ "gocloud.dev/blob/fileblob"      // file://: a folder as an archive
	_ "gocloud.dev/secrets/hashivault" // hashivault://: Vault, OpenBao and what speaks their transit API
)
