package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// mask is what a secret prints as, whatever it holds and however it is printed.
const mask = "***"

// Secret is a text that is never printed: every fmt verb, JSON, YAML, text and slog show ***, also inside other values
// (INV-CONFIG-SECRET). Reveal is the only way to it.
type Secret struct {
	text *string // a pointer: fmt cannot call methods of unexported fields and would print a string
}

// NewSecret makes a secret.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text. Hand it to what needs it and keep it nowhere.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero tells whether nothing, or an empty text, was set.
func (s Secret) IsZero() bool { return s.text == nil || *s.text == "" }

// Equal tells whether both hold the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// String is ***.
func (s Secret) String() string { return mask }

// GoString is ***.
func (s Secret) GoString() string { return mask }

// Format writes *** for every verb.
func (s Secret) Format(f fmt.State, _ rune) { f.Write([]byte(mask)) }

// MarshalText is ***; JSON and maps use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// MarshalJSON is "***".
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalYAML is ***.
func (s Secret) MarshalYAML() (any, error) { return mask, nil }

// LogValue is ***.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mask) }

// UnmarshalConfig reads any scalar as text. Codes: ERR_CONFIG_TYPE.
func (s *Secret) UnmarshalConfig(n Node) Problems {
	if n.value != nil {
		n.value.secret = true // from here on no problem, dump or digest shows it
	}
	text, ok := n.Text()
	if !ok {
		return Problems{n.Problem("", CodeType, "text is wanted here", "write ${NAME} or ${file:PATH}")}
	}
	*s = NewSecret(text)
	return nil
}

func (s *Secret) configScalar() {}

func (s Secret) configSchema() map[string]any {
	return map[string]any{"type": []any{"string", "number", "boolean"}}
}

// secretName tells whether a key of a free mapping (client properties, HTTP headers) holds a secret by its name.
func secretName(key string) bool {
	k := fold(key)
	for _, word := range [...]string{"password", "passwd", "secret", "token", "apikey", "accesskey", "privatekey", "keypem",
		"authorization", "credential", "userinfo", "jaasconfig", "passphrase", "cookie"} {
		if strings.Contains(k, word) {
			return true
		}
	}
	return false
}

// Properties are settings that go to a client library by their own names ("sasl.password"). Printing masks those whose name
// says that they are secret.
type Properties map[string]string

// Masked is a copy to print.
func (p Properties) Masked() map[string]string {
	out := make(map[string]string, len(p))
	for k, v := range p {
		if secretName(k) {
			v = mask
		}
		out[k] = v
	}
	return out
}

// String is the masked form.
func (p Properties) String() string { return fmt.Sprint(p.Masked()) }

// GoString is the masked form.
func (p Properties) GoString() string { return fmt.Sprintf("%#v", p.Masked()) }

// Format writes the masked form for every verb.
func (p Properties) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), p.Masked())
}

// MarshalJSON is the masked form.
func (p Properties) MarshalJSON() ([]byte, error) { return json.Marshal(p.Masked()) }

// MarshalYAML is the masked form.
func (p Properties) MarshalYAML() (any, error) { return p.Masked(), nil }

// LogValue is the masked form.
func (p Properties) LogValue() slog.Value { return slog.AnyValue(p.Masked()) }
