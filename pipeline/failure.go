package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Class is what kind of failure it is. The set is closed.
type Class uint8

// The seven classes. ClassNone belongs to codes that are not about a record.
const (
	ClassNone Class = iota
	Transient
	Payload
	Domain
	Authorization
	ConsumerDefect
	Ambiguous
	Resource
)

var classNames = [...]string{"none", "transient", "payload", "domain", "authorization", "consumer_defect", "ambiguous", "resource"}

// String is the class as files, headers and the API spell it.
func (c Class) String() string { return classNames[c] }

// ClassNames are the names of all classes.
func ClassNames() []string { return slices.Clone(classNames[1:]) }

// ParseClass reads what String writes.
func ParseClass(s string) (Class, bool) {
	for i, n := range classNames {
		if n == s && i != 0 {
			return Class(i), true
		}
	}
	return ClassNone, false
}

// ThreeWay is the coarser view: "poison", "transient" or "rejection".
func (c Class) ThreeWay() string {
	switch c {
	case Transient, Ambiguous:
		return "transient"
	case Domain, Authorization:
		return "rejection"
	}
	return "poison"
}

// Code names a failure or a refusal for programs: ERR_AREA_CONDITION. Class, default action, text and remedy follow from it
// (Lookup).
type Code string

// Param is one typed detail of a failure. Text is set unless IsInt.
type Param struct {
	Name  string
	Text  string
	Int   int64
	IsInt bool
}

// Str makes a text param. The text must not hold payload bytes.
func Str(name, text string) Param { return Param{Name: name, Text: text} }

// Int makes a number param.
func Int[N ~int | ~int32 | ~int64 | ~uint32](name string, n N) Param {
	return Param{Name: name, Int: int64(n), IsInt: true}
}

// Value is the param as text.
func (p Param) Value() string {
	if p.IsInt {
		return strconv.FormatInt(p.Int, 10)
	}
	return p.Text
}

// Failure says why one record cannot go on. It is data, not an error: it never stops the loop. Class, retryable, default
// action and remedy follow from Code; reason text and fingerprint are made from Code and Params, never from an error string.
type Failure struct {
	Index      int32
	Stage      string
	Code       Code
	Params     []Param
	RetryAfter int64  // ms that the dependency asked for; 0 is not said
	Unasked    bool   // nothing of the record reached the dependency: it is not the record that it failed on
	Origin     string // foreign exception class, when a consumer reported one
	Stack      string // bounded; only of a caught panic
	Cause      error  // for restricted evidence only
}

// Reason is one sentence made from the code's text and the params, without payload bytes: "datum ends early (at=17, want=8)".
func (f *Failure) Reason() string {
	var b strings.Builder
	b.WriteString(Lookup(f.Code).Text)
	for i, p := range f.Params {
		if i == 0 {
			b.WriteString(" (")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(p.Name)
		b.WriteByte('=')
		b.WriteString(p.Value())
	}
	if len(f.Params) > 0 {
		b.WriteByte(')')
	}
	return b.String()
}

// Error is about us, not about a record: something was refused or cannot go on. It has a code, the place and a remedy.
type Error struct {
	Code   Code
	Place  string // file:line, topic/partition/offset, URL, id: where to look
	Text   string // what happened, one sentence
	Remedy string // what to do; the code's own if empty
	Cause  error
}

// Errorf makes an Error; with %w the cause is kept.
func Errorf(code Code, place, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Place: place, Text: err.Error(), Cause: errors.Unwrap(err)}
}

// Error is "CODE place: text".
func (e *Error) Error() string {
	if e.Place == "" {
		return string(e.Code) + ": " + e.Text
	}
	return string(e.Code) + " " + e.Place + ": " + e.Text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Fix is the remedy to print.
func (e *Error) Fix() string {
	if e.Remedy != "" {
		return e.Remedy
	}
	return Lookup(e.Code).Remedy
}

// With sets the remedy and returns e.
func (e *Error) With(remedy string) *Error {
	e.Remedy = remedy
	return e
}

// CodeOf returns the code of the first Error in err's chain, or "". Errors of config and seal, which import nothing of ours,
// tell their code through ErrorCode.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		return Code(e.ErrorCode())
	}
	return ""
}
