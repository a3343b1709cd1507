package custody

import (
	"context"
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// ListBucket is a Bucket that tells what it has.
type ListBucket interface {
	Bucket
	// List returns names that begin with prefix and come after the name after, in order, at most limit.
	List(ctx context.Context, prefix, after string, limit int) ([]string, error)
}

// BlobFallback keeps letters in a bucket, an object each: fallback/PIPELINE/ITEM/ID.
type BlobFallback struct{ bucket ListBucket }

// NewBlobFallback makes a store of an open bucket.
func NewBlobFallback(b ListBucket) BlobFallback { return BlobFallback{b} }

func spareFolder(pipelineName string) string { return "fallback/" + pipelineName + "/" }

func spareName(s *Spare) string { return spareFolder(s.Pipeline) + string(s.Item) + "/" + s.ID }

func refusedByBucket(name string, err error) error {
	return &pipeline.Error{Code: pipeline.CodeFallbackFailed, Place: name, Text: "the bucket: " + err.Error(), Cause: err}
}

// Put writes one object after the other. Codes: ERR_FALLBACK_FAILED.
func (b BlobFallback) Put(ctx context.Context, list []Spare) error {
	for i := range list {
		name := spareName(&list[i])
		if err := b.bucket.Put(ctx, name, seal.LP(strconv.AppendInt(nil, list[i].AtMS, 10), list[i].Bytes)); err != nil {
			return refusedByBucket(name, err)
		}
	}
	return nil
}

// List reads objects by their name. Codes: ERR_FALLBACK_FAILED, ERR_LEDGER_CORRUPT.
func (b BlobFallback) List(ctx context.Context, pipelineName string, after *Spare, limit int) (list []Spare, err error) {
	last := ""
	if after != nil {
		last = spareName(after)
	}
	names, err := b.bucket.List(ctx, spareFolder(pipelineName), last, limit)
	if err != nil {
		return nil, refusedByBucket(spareFolder(pipelineName), err)
	}
	size := 0
	for _, name := range names {
		if size >= listBytes {
			break
		}
		body, err := b.bucket.Get(ctx, name)
		if err != nil {
			return nil, refusedByBucket(name, err)
		}
		fields, perr := seal.ParseLP(body)
		item, id, ok := strings.Cut(strings.TrimPrefix(name, spareFolder(pipelineName)), "/")
		if perr != nil || len(fields) != 2 || !ok {
			return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, name, "it is not a letter of this version")
		}
		at, _ := strconv.ParseInt(string(fields[0]), 10, 64) // for people only
		size += len(fields[1])
		list = append(list, Spare{ID: id, Pipeline: pipelineName, Item: pipeline.ID(item), AtMS: at, Bytes: fields[1]})
	}
	return list, nil
}

// Drop deletes objects. Codes: ERR_FALLBACK_FAILED.
func (b BlobFallback) Drop(ctx context.Context, list []Spare) error {
	for i := range list {
		if err := b.bucket.Delete(ctx, spareName(&list[i])); err != nil {
			return refusedByBucket(spareName(&list[i]), err)
		}
	}
	return nil
}

// Erase deletes the objects of an item. Codes: ERR_FALLBACK_FAILED.
func (b BlobFallback) Erase(ctx context.Context, pipelineName string, item pipeline.ID) error {
	folder := spareFolder(pipelineName) + string(item) + "/"
	for {
		names, err := b.bucket.List(ctx, folder, "", 100)
		if err != nil {
			return refusedByBucket(folder, err)
		}
		for _, name := range names {
			if err := b.bucket.Delete(ctx, name); err != nil {
				return refusedByBucket(name, err)
			}
		}
		if len(names) < 100 {
			return nil
		}
	}
}

// Ready writes an object and deletes it. Codes: ERR_FALLBACK_FAILED.
func (b BlobFallback) Ready(ctx context.Context) error {
	const name = "fallback-probe"
	err := b.bucket.Put(ctx, name, []byte{1})
	if err == nil {
		err = b.bucket.Delete(ctx, name)
	}
	if err != nil {
		return refusedByBucket(name, err)
	}
	return nil
}
