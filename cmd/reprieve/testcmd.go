package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

// tested is what test answers.
type tested struct {
	OK     bool                 `json:"ok"`
	Tests  int                  `json:"tests"`
	Failed int                  `json:"failed"`
	Suites []worker.SuiteResult `json:"suites"`
}

func (a *app) testCmd() *cobra.Command {
	var only, junit string
	c := &cobra.Command{
		Use: "test [FILE|FOLDER...]", Short: "Run the tests of pipelines, without a broker and without effects",
		Long: "Test runs the records of *_test.yaml files through their pipelines, as try does, and compares the decision, code, class, topic,\n" +
			"headers and fields with what is expected. Without an argument it looks in the folders pipelines and tests beside the worker\n" +
			"file. Schemas and HTTP services are stood for by the file; the environment and secrets are not read, so that a test ends\n" +
			"the same everywhere. The exit code is 2 when a test fails.",
		Example: "  reprieve test\n  reprieve test tests/billing_test.yaml --run redact --junit report.xml",
		RunE: func(c *cobra.Command, args []string) error {
			o := worker.SuiteOptions{Worker: a.file, Files: a.options(), Kinds: worker.Kinds(), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: a.clock}
			if only != "" {
				re, err := regexp.Compile(only)
				if err != nil {
					return pipeline.Errorf(pipeline.CodeUsage, "--run "+only, "%w", err).With("write a regular expression that test names match")
				}
				o.Only = re.MatchString
			}
			files, err := a.suites(args)
			if err != nil {
				return err
			}
			out := tested{Suites: []worker.SuiteResult{}}
			var problems config.Problems
			for _, file := range files {
				s, ps := worker.LoadSuite(file, a.options())
				if len(ps) == 0 {
					var r worker.SuiteResult
					if r, ps = worker.RunSuite(c.Context(), s, o); len(ps) == 0 {
						out.Suites = append(out.Suites, r)
						out.Tests += len(r.Tests)
						out.Failed += r.Failed
					}
				}
				problems = append(problems, ps...)
			}
			if len(problems) > 0 {
				return problems
			}
			if out.Tests == 0 {
				return pipeline.Errorf(pipeline.CodeUsage, "--run "+only, "no test has such a name")
			}
			out.OK = out.Failed == 0
			if junit != "" {
				if err := writeJUnit(junit, out); err != nil {
					return pipeline.Errorf(pipeline.CodeEnvironmentTool, junit, "%w", err).With("name a file that can be written")
				}
			}
			if err := a.print(out, func(t *table) { printTested(t, out) }); err != nil {
				return err
			}
			if !out.OK {
				return silent(pipeline.ExitInput)
			}
			return nil
		},
	}
	c.Flags().StringVar(&only, "run", "", "only tests whose name matches this regular expression")
	c.Flags().StringVar(&junit, "junit", "", "also write a JUnit report to this file")
	return c
}

// suites are the test files of the arguments; folders are searched.
func (a *app) suites(args []string) ([]string, error) {
	where := args
	if len(args) == 0 {
		for _, dir := range []string{"pipelines", "tests"} {
			if dir = filepath.Join(filepath.Dir(a.file), dir); isFolder(dir) {
				where = append(where, dir)
			}
		}
	}
	var files []string
	for _, path := range where {
		if !isFolder(path) {
			files = append(files, path)
			continue
		}
		err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && worker.IsSuite(p) {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeInputInvalid, path, "%w", err)
		}
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if len(files) == 0 {
		return nil, pipeline.Errorf(pipeline.CodeUsage, strings.Join(where, ", "), "there is no test file").
			With("tests of pipelines/billing.yaml stand in a file like tests/billing_test.yaml")
	}
	return files, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func printTested(t *table, out tested) {
	for _, s := range out.Suites {
		t.line("%s (pipeline %s)", harmless(s.File), harmless(s.Pipeline))
		for _, r := range s.Tests {
			mark := "ok  "
			if !r.OK {
				mark = "FAIL"
			}
			t.line("  %s  %s", mark, harmless(r.Name))
			if r.Error != "" {
				t.line("          %s", harmless(r.Error))
			}
			last := -1
			for _, d := range r.Differences {
				if d.Record != last && d.Record > 0 {
					t.line("          record %d, %s", d.Record, harmless(d.Position))
				}
				last = d.Record
				t.line("            %s\n              - %s\n              + %s", harmless(d.What), harmless(d.Want), harmless(d.Got))
				if d.Reason != "" {
					t.line("                %s", harmless(d.Reason))
				}
			}
		}
	}
	if out.OK {
		t.line("%s", testCount(out.Tests)+" passed")
		return
	}
	t.line("%s", fmt.Sprintf("%d of %s failed (- expected, + got)", out.Failed, testCount(out.Tests)))
}

func testCount(n int) string {
	if n == 1 {
		return "1 test"
	}
	return fmt.Sprintf("%d tests", n)
}
