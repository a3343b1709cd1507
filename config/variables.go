package config

import (
	"fmt"
	"strings"
)

// Options is what a file may read from outside. A nil function means that nothing is there.
type Options struct {
	Env      func(name string) (string, bool)  // ${NAME}
	ReadFile func(path string) ([]byte, error) // ${file:PATH}
	Plain    bool                              // no variables: a dollar sign stands for itself, as in a canonical form
}

const (
	maxVariableFile = 1 << 20
	maxExpanded     = 4 << 20 // of one file, all variables together
)

// expansion is a scalar after its variables.
type expansion struct {
	text     string
	variable bool // at least one variable was read
	fromFile bool
}

// variableError says what is wrong with a variable, without any value.
type variableError struct{ text, suggestion string }

// expand substitutes the variables of one scalar: ${NAME}, ${NAME:-default} and ${NAME:default} (unset or empty takes the
// default), ${NAME:?message} (unset or empty is refused with the message), ${file:PATH} (one line break at the end is
// dropped), $$ for a dollar sign. Any other dollar sign stands for itself. What was put in is not looked at again
// (INV-CONFIG-VALUE).
func expand(s string, opt Options) (expansion, *variableError) {
	if opt.Plain {
		return expansion{text: s}, nil
	}
	var out expansion
	var b strings.Builder
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 || at == len(s)-1 {
			b.WriteString(s)
			out.text = b.String()
			return out, nil
		}
		b.WriteString(s[:at])
		switch s[at+1] {
		case '$':
			b.WriteByte('$')
			s = s[at+2:]
			continue
		case '{':
		default:
			b.WriteByte('$')
			s = s[at+1:]
			continue
		}
		end := strings.IndexByte(s[at:], '}')
		if end < 0 {
			return out, &variableError{"a variable has no closing brace", "write ${NAME}, or $${ for the two characters"}
		}
		text, fromFile, err := lookup(s[at+2:at+end], opt)
		if err != nil {
			return out, err
		}
		if b.WriteString(text); b.Len() > maxExpanded {
			return out, &variableError{"the values of variables are larger than 4 MiB", "large values do not belong in this file"}
		}
		out.variable = true
		out.fromFile = out.fromFile || fromFile
		s = s[at+end+1:]
	}
}

// lookup resolves what stands between the braces.
func lookup(inner string, opt Options) (text string, fromFile bool, fail *variableError) {
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		text, fail = readVariable(path, opt)
		return text, true, fail
	}
	n := 0
	for n < len(inner) && isNameByte(inner[n], n == 0) {
		n++
	}
	name, rest := inner[:n], inner[n:]
	switch {
	case strings.Contains(rest, "${"):
		return "", false, &variableError{
			fmt.Sprintf("the default of variable %s holds another variable", name),
			"variables are not nested: set the variable itself"}
	case name == "" || rest != "" && rest[0] != ':':
		return "", false, &variableError{"it is not the name of a variable",
			"a name has letters, digits and _: ${NAME}, ${NAME:-default}, ${NAME:?message} or ${file:PATH}; write $${ for the two characters"}
	case name == "env" && rest != "":
		return "", false, &variableError{"variables are named without a prefix", "write ${" + strings.TrimPrefix(rest, ":") + "}"}
	}
	set, ok := "", false
	if opt.Env != nil {
		set, ok = opt.Env(name)
	}
	if ok && (set != "" || rest == "") {
		return set, false, nil
	}
	switch {
	case rest == "":
		return "", false, &variableError{fmt.Sprintf("variable %s is not set", name),
			fmt.Sprintf("set it, or give it a default: ${%s:-...}", name)}
	case strings.HasPrefix(rest, ":?"):
		message := strings.TrimSpace(rest[2:])
		if message == "" {
			message = "it is required"
		}
		return "", false, &variableError{fmt.Sprintf("variable %s is not set: %s", name, message), "set it"}
	case strings.HasPrefix(rest, ":-"):
		return rest[2:], false, nil
	}
	return rest[1:], false, nil
}

func readVariable(path string, opt Options) (string, *variableError) {
	if path == "" {
		return "", &variableError{"${file:} names no file", "write ${file:PATH}"}
	}
	if opt.ReadFile == nil {
		return "", &variableError{fmt.Sprintf("file %s cannot be read: files are not read here", path), ""}
	}
	data, err := opt.ReadFile(path)
	switch {
	case err != nil:
		return "", &variableError{fmt.Sprintf("file %s cannot be read", path), "check that it exists and may be read by this user"}
	case len(data) > maxVariableFile:
		return "", &variableError{fmt.Sprintf("file %s is larger than 1 MiB", path), "a value comes from a small file"}
	}
	text := strings.TrimSuffix(string(data), "\n") // editors and secret stores end a file with one
	return strings.TrimSuffix(text, "\r"), nil
}

func isNameByte(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9'
}
