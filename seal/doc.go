// Package seal holds the exact forms that other parts agree on: canonical JSON and digests, length-prefixed fields, ids made
// under a key, signatures of workers (HMAC) and of persons and writers (Ed25519), and the sealing of values for a tenant
// (HPKE over data keys, AES-256-GCM). It uses the standard library only and keeps nothing but keys.
//
// Read canonical.go, identity.go and sealer.go first. The bytes that these functions make are a contract: tests hold fixed
// vectors, and a change of bytes is a new version, never a correction.
package seal
