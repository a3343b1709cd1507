package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

// files are the worker file and the pipeline files that a verb was given; without one, the folder pipelines beside the worker
// file.
func (a *app) files(args []string) worker.Files {
	f := worker.Files{Worker: a.file, Pipelines: args}
	if len(args) == 0 {
		f.Pipelines = []string{filepath.Join(filepath.Dir(a.file), "pipelines")}
	}
	return f
}

// load reads and checks the files. Problems are the error.
func (a *app) load(args []string) (*worker.Plan, error) {
	plan, ps := worker.Load(a.files(args), worker.Kinds(), a.optionsAt(a.file))
	if len(ps) > 0 {
		return nil, ps
	}
	return plan, nil
}

// loadWorker reads the worker file alone, for verbs that need no pipeline.
func (a *app) loadWorker() (*worker.Plan, error) {
	plan, ps := worker.Load(worker.Files{Worker: a.file}, worker.Kinds(), a.optionsAt(a.file))
	if len(ps) > 0 {
		return nil, ps
	}
	return plan, nil
}

// optionsAt reads ${file:PATH} from the folder of the worker file, so that a configuration can be used from anywhere.
func (a *app) optionsAt(file string) config.Options {
	o := a.options()
	dir := filepath.Dir(file)
	o.ReadFile = func(path string) ([]byte, error) {
		b, err := a.readFile(path)
		if err != nil && os.IsNotExist(err) && !filepath.IsAbs(path) {
			if again, err2 := a.readFile(filepath.Join(dir, path)); err2 == nil {
				return again, nil
			}
		}
		return b, err
	}
	return o
}

// checked is what check answers.
type checked struct {
	OK        bool              `json:"ok"`
	Problems  config.Problems   `json:"problems"`
	Pipelines []string          `json:"pipelines"`
	Effects   []worker.Effect   `json:"effects,omitempty"`
	Questions []worker.Question `json:"questions,omitempty"`
}

func (a *app) checkCmd() *cobra.Command {
	var strict, questions bool
	c := &cobra.Command{
		Use: "check [PIPELINE...]", Short: "Check files and name every problem at once",
		Long: "Check reads the worker file and the pipeline files (by default the folder pipelines beside it) and names every problem with\n" +
			"file, line, column, path and a suggestion, and every call to a service with what happens when its end is unknown. It needs\n" +
			"no broker. With --questions it also answers the seven questions to settle before a dead-letter path is enabled, and names\n" +
			"those that the files leave open; --strict makes an open one an error.",
		Example: "  reprieve check\n  reprieve check pipelines/billing.yaml --questions",
		RunE: func(_ *cobra.Command, args []string) error {
			plan, ps := worker.Load(a.files(args), worker.Kinds(), a.optionsAt(a.file))
			ps = ps.Sorted() // a policy that several pipelines name is read for each
			out := checked{OK: len(ps) == 0, Problems: ps}
			if ps == nil {
				out.Problems = config.Problems{}
			}
			open := 0
			for _, p := range plan.Pipelines {
				out.Pipelines = append(out.Pipelines, p.Config.Name)
				out.Effects = append(out.Effects, p.Effects()...)
				if len(ps) == 0 && (questions || strict) {
					for _, q := range p.Questions(plan.Config) {
						out.Questions = append(out.Questions, q)
						if q.Open != "" {
							open++
						}
					}
				}
			}
			if len(ps) > 0 {
				if a.format != "table" {
					if err := a.print(out, nil); err != nil {
						return err
					}
					return silent(pipeline.ExitInput)
				}
				return ps
			}
			err := a.print(out, func(t *table) {
				for _, p := range plan.Pipelines {
					t.line("%s: no problem (pipeline %s, %d stages, %s)", p.File, p.Config.Name, len(p.Stages), p.Digest[:19])
					for _, e := range p.Effects() {
						t.line("  calls %s: %s %s\n    %s", e.Name, e.Method, e.URL, e.Note)
					}
				}
				last := ""
				for _, q := range out.Questions {
					if q.Pipeline != last {
						t.line("\n%s: the seven questions", q.Pipeline)
						last = q.Pipeline
					}
					t.line("  %d. %s\n     %s", q.Number, q.Question, q.Answer)
					if q.Open != "" {
						t.line("     OPEN: %s", q.Open)
					}
				}
			})
			if err == nil && strict && open > 0 {
				return pipeline.Errorf(pipeline.CodeConfigOpen, a.file, "%s open", are(open, "question")).With("say in the files what is told above after OPEN")
			}
			return err
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "an open question is an error")
	c.Flags().BoolVar(&questions, "questions", false, "answer the seven questions")
	return c
}

// silent ends the program with an exit code after everything was printed.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit %d", int(s)) }

func (a *app) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use: "schema [pipeline | worker]", Short: "Print the JSON Schema of a file, for editors",
		Example:   "  reprieve schema pipeline > pipeline.schema.json",
		ValidArgs: []string{"pipeline", "worker"}, Args: atMostOne("the name of one schema"),
		RunE: func(c *cobra.Command, args []string) error {
			what := "pipeline"
			if len(args) > 0 {
				what = args[0]
			}
			root, kinds, err := schemaRoot(what)
			if err != nil {
				return err
			}
			b, err := config.Schema(root, kinds)
			if err != nil {
				return err
			}
			if a.format == "yaml" {
				return writeYAML(a.out, b)
			}
			_, err = fmt.Fprintln(a.out, string(b))
			return err
		},
	}
}

func schemaRoot(what string) (any, map[string]any, error) {
	switch what {
	case "pipeline":
		kinds := map[string]any{}
		for _, k := range worker.Kinds() {
			kinds[k.Name] = k.Settings()
		}
		return config.Pipeline{}, kinds, nil
	case "worker":
		return config.Worker{}, nil, nil
	}
	return nil, nil, pipeline.Errorf(pipeline.CodeUsage, "schema "+what, "there is no schema of that name").With("write pipeline or worker")
}
