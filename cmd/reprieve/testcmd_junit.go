package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
)

// The report that build servers read.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitTrouble `xml:"failure"`
	Error   *junitTrouble `xml:"error"`
	Skipped *junitTrouble `xml:"skipped"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitTrouble struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"` // some readers refuse a report without it
	Text    string `xml:",chardata"`
}

func writeJUnit(file string, out tested) error {
	all := junitSuites{Tests: out.Tests}
	for _, s := range out.Suites {
		suite := junitSuite{Name: s.File, Tests: len(s.Tests)}
		total := 0.0
		for _, r := range s.Tests {
			total += r.Seconds
			c := junitCase{Name: r.Name, Class: s.Pipeline, File: s.File, Time: fmt.Sprintf("%.3f", r.Seconds)}
			switch {
			case r.Error != "":
				c.Error = &junitTrouble{Message: harmless(r.Error), Type: "error"}
				suite.Errors++
			case !r.OK:
				var what, text []string
				for _, d := range r.Differences {
					what = append(what, d.What)
					text = append(text, harmless(fmt.Sprintf("record %d %s %s", d.Record, d.Position, d.What)), "- "+harmless(d.Want), "+ "+harmless(d.Got+" "+d.Reason))
				}
				c.Failure = &junitTrouble{Message: harmless("not as expected: " + strings.Join(what, ", ")), Type: "difference", Text: strings.Join(text, "\n")}
				suite.Failures++
			}
			suite.Cases = append(suite.Cases, c)
		}
		suite.Time = fmt.Sprintf("%.3f", total)
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Suites = append(all.Suites, suite)
	}
	b, err := all.text()
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func (s *junitSuites) text() ([]byte, error) {
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append([]byte(xml.Header), append(b, '\n')...), nil
}
