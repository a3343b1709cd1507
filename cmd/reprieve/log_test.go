package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"reprieve.dev/config"
)

// The worker file says how log lines look, unless a flag or a variable does.
func TestLogLinesFollowTheWorkerFile(t *testing.T) {
	file := config.Log{Level: "warn", Format: "json"}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		info bool // lines of that level are written
		json bool
	}{
		"the file":               {nil, nil, false, true},
		"a flag for the level":   {nil, []string{"--log-level", "info"}, true, true},
		"a flag for the form":    {nil, []string{"--log-format", "text"}, false, false},
		"variables for both":     {map[string]string{"REPRIEVE_LOG_LEVEL": "info", "REPRIEVE_LOG_FORMAT": "text"}, nil, true, false},
		"a flag over a variable": {map[string]string{"REPRIEVE_LOG_LEVEL": "error"}, []string{"--log-level", "info"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &app{err: &out, env: func(k string) (string, bool) { v, ok := c.env[k]; return v, ok }}
			fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
			fs.StringVar(&a.logLevel, "log-level", a.envOr("REPRIEVE_LOG_LEVEL", "info"), "")
			fs.StringVar(&a.logFormat, "log-format", a.envOr("REPRIEVE_LOG_FORMAT", "text"), "")
			if err := fs.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			a.logAs(file, fs)
			log := a.log()
			log.Info("low")
			log.Error("high")
			got := out.String()
			if strings.Contains(got, "low") != c.info || !strings.Contains(got, "high") || strings.Contains(got, `{"time"`) != c.json {
				t.Errorf("%s", got)
			}
		})
	}
}
