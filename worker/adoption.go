package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/stage"
)

// adoptedIdentity compiles where the names of an adopted topic's records stand; nil if the file says nothing of it. Codes:
// ERR_PATH_INVALID.
func adoptedIdentity(a config.Adopt) (*stage.Identity, error) {
	if a.Tenant.From == "" && a.Identity == (config.Identity{}) {
		return nil, nil
	}
	c := stage.IdentityConfig{EventID: a.Identity.EventID, Entity: a.Identity.Entity, BusinessID: a.Identity.BusinessID, IdempotencyToken: a.Identity.Token,
		Version: a.Identity.Version, Allow: a.Tenant.Allow}
	switch a.Tenant.From {
	case "payload":
		c.Tenant = a.Tenant.Path
	case "header":
		c.Tenant = "header:" + a.Tenant.Header
	case "topic":
		c.Tenant = "topic"
	case "fixed":
		c.Fixed = a.Tenant.Value
	}
	return stage.NewIdentity(c)
}

// identify reads names of foreign letters. Payloads are looked into as JSON: of any other form nothing but headers is read.
func identify(ctx context.Context, id *stage.Identity) func(string, *pipeline.Record) pipeline.Identity {
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "json"}, nil)
	if err != nil {
		panic(err) // it has no setting and asks no registry
	}
	scratch := codec.NewScratch()
	return func(topic string, r *pipeline.Record) pipeline.Identity {
		scratch.Reset()
		var v pipeline.View
		if len(id.Paths()) > 0 && len(r.Value) > 0 {
			if view, f := dec.Decode(ctx, scratch, r.Value, r.Headers); f == nil {
				v = view
			}
		}
		return id.Identify(topic, r, v)
	}
}

// checkAdopted finds what is wrong with what the file says of adopted topics.
func checkAdopted(w *config.Worker, doc *config.Doc) (ps config.Problems) {
	for i, a := range w.Custody.Adopt {
		path := "custody.adopt[" + strconv.Itoa(i) + "]"
		if _, err := adoptedIdentity(a); err != nil {
			ps = append(ps, doc.Problem(path+".identity", config.CodeValue, err.Error(), "write a path like /event_id, or header:NAME"))
		}
		if _, known := w.Custody.Retention.Data[a.Data]; a.Data != "" && !known {
			ps = append(ps, doc.Problem(path+".data", config.CodeReference, "data class "+strconv.Quote(a.Data)+" is not defined in custody.retention.data",
				cmp.Or(config.Nearest(a.Data, slices.Sorted(maps.Keys(w.Custody.Retention.Data))), "define it under custody.retention.data")))
		}
		if a.Redrive != "" {
			ps = append(ps, notYet(doc.At(path+".redrive"), "", "redrives of adopted letters"))
		}
	}
	return ps
}
