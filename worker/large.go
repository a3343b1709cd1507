package worker

import (
	"context"
	"sync"

	"gocloud.dev/blob"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// Large is where large payloads stand, as custody.large says. The bucket is opened when it is first needed: who only looks at items needs
// none. Call closing at the end.
func (p *Plan) Large() (large custody.Large, closing func()) {
	c := p.Config.Custody.Large
	if c.Bucket == "" {
		return custody.Large{}, func() {}
	}
	b := &lateBucket{url: c.Bucket}
	return custody.Large{Bucket: b, Over: c.Over.Bytes()}, b.close
}

// lateBucket is a bucket that is opened when it is first asked for something.
type lateBucket struct {
	url  string
	mu   sync.Mutex
	open *blob.Bucket
}

func (l *lateBucket) get(ctx context.Context) (objects, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		b, err := blob.OpenBucket(context.WithoutCancel(ctx), l.url)
		if err != nil {
			return objects{}, &pipeline.Error{Code: pipeline.CodePayloadUnavailable, Place: "custody.large.bucket", Text: "the bucket cannot be opened: " + err.Error(), Cause: err}
		}
		l.open = b
	}
	return objects{l.open}, nil
}

func (l *lateBucket) Put(ctx context.Context, name string, b []byte) error {
	o, err := l.get(ctx)
	if err != nil {
		return err
	}
	return o.Put(ctx, name, b)
}

func (l *lateBucket) Get(ctx context.Context, name string) ([]byte, error) {
	o, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return o.Get(ctx, name)
}

func (l *lateBucket) Delete(ctx context.Context, name string) error {
	o, err := l.get(ctx)
	if err != nil {
		return err
	}
	return o.Delete(ctx, name)
}

func (l *lateBucket) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		_ = l.open.Close() // objects are closed each
		l.open = nil
	}
}
