package worker

import (
	"context"
	"errors"
	"io"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// mostArchived is the largest object that is read back.
const mostArchived = 256 << 20

// Archive opens the bucket of custody.retention.archive; nil if it names none. closing is never nil. Codes: ERR_ARCHIVE_FAILED.
func (p *Plan) Archive(ctx context.Context) (bucket custody.Bucket, closing func(), err error) {
	url := p.Config.Custody.Retention.Archive
	if url == "" {
		return nil, func() {}, nil
	}
	b, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return nil, func() {}, &pipeline.Error{Code: pipeline.CodeArchiveFailed, Place: "custody.retention.archive", Text: "the bucket cannot be opened: " + err.Error(), Cause: err}
	}
	return objects{b}, func() { _ = b.Close() }, nil // objects are closed each
}

// objects is a bucket of gocloud.dev/blob.
type objects struct{ b *blob.Bucket }

func (o objects) Put(ctx context.Context, name string, b []byte) error {
	kind := "application/octet-stream"
	if strings.HasSuffix(name, ".json") {
		kind = "application/json"
	}
	return o.b.WriteAll(ctx, name, b, &blob.WriterOptions{ContentType: kind})
}

func (o objects) Get(ctx context.Context, name string) ([]byte, error) {
	r, err := o.b.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, &pipeline.Error{Code: pipeline.CodePayloadMissing, Place: name, Text: "the object is not in the bucket", Cause: err}
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, mostArchived))
}

func (o objects) List(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	all := o.b.List(&blob.ListOptions{Prefix: prefix})
	for len(names) < limit {
		obj, err := all.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if obj.Key > after {
			names = append(names, obj.Key)
		}
	}
	return names, nil
}

func (o objects) Delete(ctx context.Context, name string) error {
	if err := o.b.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}
