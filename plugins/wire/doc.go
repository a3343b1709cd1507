// Package wire is the protocol between the host and plugins: transform.proto, what is generated from it, and the words of the
// handshake. It is for both sides and imports neither.
//
// To generate again (protoc 3.21 or newer; versions of the generators in go.mod and in the generated files):
//
//	protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative transform.proto
package wire

// The handshake. The cookie keeps a person who starts a plugin by hand from waiting for something to happen; it is no secret.
const (
	CookieKey   = "REPRIEVE_PLUGIN"
	CookieValue = "repair-transform"
	Protocol    = 1 // major version of transform.proto
)

// Sizes of a batch.
const (
	BatchDefault = 64
	BatchMost    = 512
)

// What a report may hold; more breaks the protocol.
const (
	ChangedMost = 256
	NotesMost   = 16
	TextMost    = 512 // bytes of one path, note or reason
)

// MessageMost is how large a message a plugin has to accept, in bytes.
const MessageMost = 16 << 20
