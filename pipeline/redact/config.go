package redact

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// Config is the settings of the redact stage. The zero value looks for everything that is built in and masks it.
type Config struct {
	Detectors []string  `yaml:"detectors" doc:"What to look for everywhere: pan, cvv, authorization. Left out: all three." enum:"pan,cvv,authorization"`
	Actions   Actions   `yaml:"actions" doc:"What is done with what a detector found. Left out: mask."`
	Fields    []Field   `yaml:"fields" doc:"Fields that always go, by path or by member name."`
	Tags      []string  `yaml:"tags" doc:"Schema tags (confluent:tags) whose fields always go."`
	TagAction string    `yaml:"tag_action" doc:"What is done with tagged fields." default:"mask" enum:"mask,hash,tokenise,drop,last4"`
	Patterns  []Pattern `yaml:"patterns" doc:"Patterns of your own, looked for in every text."`
	Keep      []string  `yaml:"keep" doc:"Paths whose value the detectors leave alone: numbers that look like cards and are none."`
}

// Actions is what is done with what each detector found.
type Actions struct {
	PAN           string `yaml:"pan" doc:"For card numbers." default:"mask" enum:"mask,hash,tokenise,drop,last4"`
	CVV           string `yaml:"cvv" doc:"For card verification values, which may not be kept in any form." default:"mask" enum:"mask,drop"`
	Authorization string `yaml:"authorization" doc:"For credentials." default:"mask" enum:"mask,hash,tokenise,drop"`
}

// Field names leaves that always go. Exactly one of Path and Name is set.
type Field struct {
	Path   string `yaml:"path" doc:"JSON pointer; '*' stands for any one member or item, '**' for any number of them. A composite goes with all its leaves."`
	Name   string `yaml:"name" doc:"A member name, at any depth, also in documents inside strings; case, '_' and '-' do not matter."`
	Action string `yaml:"action" doc:"What is done." default:"mask" enum:"mask,hash,tokenise,drop,last4"`
}

// Pattern is a regular expression of the user's own.
type Pattern struct {
	Name   string `yaml:"name" doc:"What is found, for people." required:"true"`
	Match  string `yaml:"match" doc:"RE2 expression, at most 1,024 characters; it may not match an empty text." required:"true"`
	Action string `yaml:"action" doc:"What is done." default:"mask" enum:"mask,hash,tokenise,drop,last4"`
}

// Options is what a file does not hold.
type Options struct {
	HashKey   []byte           // secret of the actions hash and tokenise, at least 16 bytes
	HashKeyID string           // stands in hashes; "redact" if empty
	Identity  []*pipeline.Path // fields that identify the record: a secret in one of them is ERR_REDACT_IDENTITY
}

// Problem is one thing that is wrong in a Config. Path is below the stage's own: "fields[0].path".
type Problem struct {
	Path       string
	Code       pipeline.Code
	Text       string
	Suggestion string
}

// Bounds of what a file may ask for.
const (
	maxPatterns      = 64
	maxPatternLength = 1024
	maxFields        = 1024
	maxPatternText   = 256 << 10 // longer texts are refused while there are patterns: fail closed, bounded time
	minHashKey       = 16
)

// Detectors, as files spell them.
const (
	DetectPAN           = "pan"
	DetectCVV           = "cvv"
	DetectAuthorization = "authorization"
)

// Check returns every problem of c, in the order of its members. Codes: ERR_CONFIG_VALUE, ERR_CONFIG_MISSING,
// ERR_CONFIG_UNSAFE, ERR_PATH_INVALID.
func (c *Config) Check(o Options) []Problem {
	var ps []Problem
	add := func(path string, code pipeline.Code, suggestion, format string, args ...any) {
		ps = append(ps, Problem{path, code, fmt.Sprintf(format, args...), suggestion})
	}
	for i, d := range c.Detectors {
		if d != DetectPAN && d != DetectCVV && d != DetectAuthorization {
			add(fmt.Sprintf("detectors[%d]", i), pipeline.CodeConfigValue, "pan, cvv or authorization", "there is no detector %q", d)
		} else if slices.Contains(c.Detectors[:i], d) {
			add(fmt.Sprintf("detectors[%d]", i), pipeline.CodeConfigValue, "", "%q stands twice", d)
		}
	}
	action := func(path, name string, refused ...action) {
		a, ok := parseAction(name)
		switch {
		case !ok:
			add(path, pipeline.CodeConfigValue, "mask, hash, tokenise, drop or last4", "there is no action %q", name)
		case slices.Contains(refused, a):
			add(path, pipeline.CodeConfigUnsafe, "mask or drop", "%q would keep part of what may not be kept", name)
		case (a == actHash || a == actToken) && len(o.HashKey) < minHashKey:
			add(path, pipeline.CodeConfigMissing, "give the worker an identity key of at least 16 bytes", "%q needs a key", name)
		}
	}
	action("actions.pan", c.Actions.PAN)
	action("actions.cvv", c.Actions.CVV, actHash, actToken, actLast4)
	action("actions.authorization", c.Actions.Authorization, actLast4)
	if len(c.Fields) > maxFields {
		add("fields", pipeline.CodeConfigValue, "", "%d fields are more than %d", len(c.Fields), maxFields)
	}
	for i, f := range c.Fields {
		at := fmt.Sprintf("fields[%d]", i)
		switch {
		case f.Path == "" && f.Name == "":
			add(at, pipeline.CodeConfigMissing, "path: /customer/email", "a field needs a path or a name")
		case f.Path != "" && f.Name != "":
			add(at, pipeline.CodeConfigValue, "leave one out", "a field has a path or a name, not both")
		case f.Path != "":
			if _, err := pipeline.NewPath(f.Path); err != nil {
				add(at+".path", pipeline.CodePathInvalid, "/"+strings.ReplaceAll(strings.TrimPrefix(f.Path, "$."), ".", "/"), "%q is not a JSON pointer: it starts with '/'", f.Path)
				break
			}
			for _, id := range o.Identity {
				if matchPath(splitPath(f.Path), id.Text, true) {
					add(at+".path", pipeline.CodeConfigUnsafe, "leave it out, or use another identity field", "%q would change the identity field %q", f.Path, id.Text)
				}
			}
		default:
			for _, id := range o.Identity {
				if n := len(id.Segs); n > 0 && sameName(id.Segs[n-1], f.Name) {
					add(at+".name", pipeline.CodeConfigUnsafe, "use a path", "%q would change the identity field %q", f.Name, id.Text)
				}
			}
		}
		action(at+".action", f.Action)
	}
	for i, t := range c.Tags {
		if strings.TrimSpace(t) == "" {
			add(fmt.Sprintf("tags[%d]", i), pipeline.CodeConfigValue, "", "a tag is not empty")
		}
	}
	action("tag_action", c.TagAction)
	if len(c.Patterns) > maxPatterns {
		add("patterns", pipeline.CodeConfigValue, "", "%d patterns are more than %d", len(c.Patterns), maxPatterns)
	}
	for i, p := range c.Patterns {
		at := fmt.Sprintf("patterns[%d]", i)
		if p.Name == "" {
			add(at+".name", pipeline.CodeConfigMissing, "", "a pattern has a name")
		}
		if _, err := compilePattern(p.Match); err != nil {
			add(at+".match", pipeline.CodeConfigValue, "RE2 syntax; no look-around, no back-references", "%v", err)
		}
		action(at+".action", p.Action)
	}
	for i, k := range c.Keep {
		if _, err := pipeline.NewPath(k); err != nil || k == "" {
			add(fmt.Sprintf("keep[%d]", i), pipeline.CodePathInvalid, "/order/number", "%q is not a JSON pointer: it starts with '/'", k)
		}
	}
	return ps
}

func compilePattern(match string) (*regexp.Regexp, error) {
	if match == "" {
		return nil, fmt.Errorf("a pattern has an expression")
	}
	if len(match) > maxPatternLength {
		return nil, fmt.Errorf("the expression has %d characters, more than %d", len(match), maxPatternLength)
	}
	re, err := regexp.Compile(match)
	if err != nil {
		if s, ok := err.(*syntax.Error); ok {
			return nil, fmt.Errorf("%s: %q", s.Code, s.Expr)
		}
		return nil, err
	}
	if re.MatchString("") {
		return nil, fmt.Errorf("the expression matches an empty text, so it would match everywhere")
	}
	return re, nil
}

// sameName compares member names without regard to case, '_' and '-'.
func sameName(a, b string) bool {
	i, j := 0, 0
	for {
		for i < len(a) && (a[i] == '_' || a[i] == '-') {
			i++
		}
		for j < len(b) && (b[j] == '_' || b[j] == '-') {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		x, y := a[i], b[j]
		if x >= 'A' && x <= 'Z' {
			x += 'a' - 'A'
		}
		if y >= 'A' && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
		i, j = i+1, j+1
	}
}
