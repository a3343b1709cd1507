package seal

import "fmt"

// The codes of this package, as pipeline/codes.go spells them.
const (
	codeInput     = "ERR_INPUT_INVALID"
	codeKey       = "ERR_CONFIG_VALUE"
	codeRead      = "ERR_CONFIG_READ"
	codeUnsafe    = "ERR_CONFIG_UNSAFE"
	codeUnknown   = "ERR_KEY_UNKNOWN"
	codeSeal      = "ERR_SEAL_FAILED"
	codeOpen      = "ERR_SEAL_BROKEN"
	codeSignature = "ERR_SIGNATURE_INVALID"
)

// Error is a refusal of this package: a code of pipeline/codes.go, where, and one sentence without any secret or payload.
type Error struct {
	Code  string
	Place string // key id, file, or byte position; may be empty
	Text  string
	Cause error
}

// Error is "CODE place: text".
func (e *Error) Error() string {
	if e.Place == "" {
		return e.Code + ": " + e.Text
	}
	return e.Code + " " + e.Place + ": " + e.Text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ErrorCode is the code as text; pipeline.CodeOf reads it.
func (e *Error) ErrorCode() string { return e.Code }

func refuse(code, place, format string, args ...any) *Error {
	return &Error{Code: code, Place: place, Text: fmt.Sprintf(format, args...)}
}
