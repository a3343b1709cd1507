package stage

import (
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
)

// newClient makes the client of a service: o.Target, a name, stands in its metrics; files of certificates count from the folder
// of the pipeline file. Codes: ERR_CONFIG_READ, ERR_CONFIG_VALUE.
func newClient(env pipeline.Env, o call.Options, headers map[string]config.Secret, tls config.TLS) (*call.Client, error) {
	o.Headers, o.Observe = map[string]string{}, observe(env, o.Target)
	for name, v := range headers {
		o.Headers[name] = v.Reveal()
	}
	for _, f := range []struct {
		to   *string
		file string
	}{{&o.CA, tls.CA}, {&o.Cert, tls.Cert}, {&o.Key, tls.Key}} {
		if f.file != "" {
			pem, err := resource[[]byte](env, ResourceFile, f.file)
			if err != nil {
				return nil, err
			}
			*f.to = string(pem)
		}
	}
	return call.New(o, env.Clock)
}

// observe counts the calls to a target by result and measures them.
func observe(env pipeline.Env, target string) func(string, time.Duration) {
	took := env.Meter.Histogram("reprieve_http_call_seconds", "Time of calls to HTTP services.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "pipeline", env.Pipeline, "target", target)
	return func(result string, d time.Duration) {
		env.Meter.Counter("reprieve_http_calls_total", "Calls to HTTP services by result.",
			"pipeline", env.Pipeline, "target", target, "result", result).Add(1)
		took.Observe(d.Seconds())
	}
}
