package worker

import (
	"crypto/sha256"
	"maps"
	"os"
	"slices"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/seal"
)

// contents is what the files of a plan held when it was read: a digest of each. Unlike the digests that decisions carry it sees the values
// of secrets, and the files that others only name: a rotated password and a new row of a table are changes too.
type contents map[string][]byte

func (c contents) note(path string, data []byte, err error) {
	if err == nil {
		sum := sha256.Sum256(data)
		c[path] = sum[:]
	}
}

// noting is opt, with every file noted that is read through it.
func (c contents) noting(opt config.Options) config.Options {
	read := opt.ReadFile
	opt.ReadFile = func(path string) ([]byte, error) {
		data, err := read(path)
		c.note(path, data, err)
		return data, err
	}
	return opt
}

func (c contents) digest() string {
	var parts [][]byte
	for _, path := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, []byte(path), c[path])
	}
	return seal.SHA256(seal.LP(parts...))
}

// Contents changes with every file that the plan was made of: what it says, and the schemas, tables, certificates, locks and secrets that
// it names. It is for telling whether anything changed, and nothing else.
func (p *Plan) Contents() string { return p.contents }

// named notes the files that the plan names and that are read when its parts are built.
func (p *Plan) named(c contents) {
	note := func(path string) {
		if path != "" {
			data, err := os.ReadFile(path)
			c.note(path, data, err)
		}
	}
	tls := func(t config.TLS, read func(string)) {
		for _, file := range []string{t.CA, t.Cert, t.Key} {
			read(file)
		}
	}
	if p.Config != nil {
		note(PluginOptions(p.File, p.Config.Sandbox, nil, nil).Lock)
		pem := func(file string) {
			if file != "" {
				data, err := p.pem("", file)
				c.note("worker: "+file, data, err)
			}
		}
		tls(p.Config.HTTP.TLS, pem)
		for _, r := range p.Config.Registries {
			tls(r.TLS, pem)
		}
		for _, properties := range p.Config.Clusters {
			for name, value := range properties {
				if strings.HasSuffix(name, ".location") {
					note(value)
				}
			}
		}
	}
	for _, pp := range p.Pipelines {
		read := func(name string) {
			if name != "" {
				data, err := pp.readFile(name)
				c.note(pp.File+": "+name, data, err)
			}
		}
		for _, s := range pp.Stages {
			switch set := s.Settings.(type) {
			case *stage.DecodeSettings:
				read(set.Schema)
				read(set.Reader)
				if set.Key != nil {
					read(set.Key.Schema)
				}
			case *stage.EnrichSettings:
				if set.Table != nil {
					read(set.Table.File)
				}
				if set.HTTP != nil {
					tls(set.HTTP.TLS, read)
				}
			case *stage.RouteSettings:
				for _, e := range set.Effects(s.Name) {
					tls(e.HTTP.TLS, read)
				}
			}
		}
	}
}
