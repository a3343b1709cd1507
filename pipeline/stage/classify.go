package stage

import (
	"context"

	"reprieve.dev/pipeline"
)

// ClassifySettings of a classify stage.
type ClassifySettings struct {
	Policy string `yaml:"policy" required:"true" doc:"The policy file, from the folder of the pipeline file: its reject rules run here, its decide rules whenever a record failed."`
}

func classifyKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "classify", Phase: pipeline.PhaseClassify,
		Doc:      "Turns business rules over the record into failures, and checks that the topic may carry the record's tenant.",
		Settings: func() any { return &ClassifySettings{} },
		Build: func(_ any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
			id, err := resource[*Identity](env, ResourceIdentity, "")
			return &classify{env.Name, id}, nil, err
		},
	}
}

type classify struct {
	name string
	id   *Identity
}

// Process fails records that a rule of the batch's policy version refuses, or whose tenant the topic may not carry.
func (c *classify) Process(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		topic := b.TP.Topic
		if t := b.Recs[i].Trail; t != nil {
			topic = t.Original.Topic
		}
		if code, ok := c.id.Check(topic, &b.Recs[i], b.Views[i]); !ok {
			b.Fail(i, pipeline.Failure{Stage: c.name, Code: code})
			continue
		}
		if f, refused := b.Policy.Reject(b, i); refused {
			f.Stage = c.name
			b.Fail(i, f)
		}
	}
	return nil
}
