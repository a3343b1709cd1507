package main

import _ "gocloud.dev/secrets/hashivault" // hashivault://: Vault, OpenBao and what speaks their transit API
