package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// The codes of problems, as pipeline/codes.go spells them.
const (
	CodeSyntax       = "ERR_CONFIG_SYNTAX"
	CodeUnknownKey   = "ERR_CONFIG_UNKNOWN_KEY"
	CodeDuplicateKey = "ERR_CONFIG_DUPLICATE_KEY"
	CodeType         = "ERR_CONFIG_TYPE"
	CodeValue        = "ERR_CONFIG_VALUE"
	CodeMissing      = "ERR_CONFIG_MISSING"
	CodeVariable     = "ERR_CONFIG_VARIABLE"
	CodeAlias        = "ERR_CONFIG_ALIAS"
	CodeDocument     = "ERR_CONFIG_DOCUMENT"
	CodeReference    = "ERR_CONFIG_REFERENCE"
	CodeUnsafe       = "ERR_CONFIG_UNSAFE"
	CodeRead         = "ERR_CONFIG_READ"
	CodeExpression   = "ERR_CONFIG_EXPRESSION" // of those who compile expressions
)

// Problem is one thing that is wrong in a file. Text is one sentence without a value that came from a variable; Suggestion
// says what to write instead and may be empty.
type Problem struct {
	File       string `json:"file"`
	Line       int    `json:"line"`   // from 1; 0 is the whole file
	Column     int    `json:"column"` // from 1, in characters
	Path       string `json:"path"`   // "stages[1].redact.fields[0].path"; empty is the whole file
	Code       string `json:"code"`
	Text       string `json:"text"`
	Suggestion string `json:"suggestion,omitempty"`
}

// String is "file:line:column: path: text (suggestion)"; what is not known is left out.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		b.WriteByte(':')
	}
	if p.Line > 0 {
		b.WriteString(strconv.Itoa(p.Line))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(p.Column))
		b.WriteByte(':')
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	if p.Suggestion != "" {
		b.WriteString(" (")
		b.WriteString(p.Suggestion)
		b.WriteByte(')')
	}
	return b.String()
}

// Problems is a list in file order. As an error use Err, because an empty list in an error is not nil.
type Problems []Problem

// Error is one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ErrorCode is the code of the first problem; pipeline.CodeOf reads it.
func (ps Problems) ErrorCode() string {
	if len(ps) == 0 {
		return ""
	}
	return ps[0].Code
}

// Err is nil for an empty list and the list otherwise.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Sorted returns the list in file order, each problem once: files in the order in which they first appear, then line, then
// column.
func (ps Problems) Sorted() Problems {
	if len(ps) == 0 {
		return nil
	}
	files := map[string]int{}
	seen := map[Problem]bool{}
	var out Problems
	for _, p := range ps {
		if _, ok := files[p.File]; !ok {
			files[p.File] = len(files)
		}
		if !seen[p] { // one anchored value is read at each of its aliases
			seen[p] = true
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return out
}
