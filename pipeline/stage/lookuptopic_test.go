package stage_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/stage"
)

// feed is a Follower that a test gives records to.
type feed struct {
	t     *testing.T
	first [][2]string
	each  func(context.Context, *pipeline.Record) error
	open  bool
}

func (f *feed) Follow(cluster, topic string, each func(context.Context, *pipeline.Record) error) (pipeline.Close, error) {
	if cluster != "" || topic != "accounts" {
		f.t.Errorf("it follows %q on %q", topic, cluster)
	}
	f.each, f.open = each, true
	for _, row := range f.first {
		f.give(row[0], row[1])
	}
	return func() error { f.open = false; return nil }, nil
}

// give gives a record; a value of "" is a delete marker.
func (f *feed) give(key, value string) {
	r := pipeline.Record{Key: []byte(key), Value: []byte(value)}
	if value == "" {
		r.Value = nil
	}
	if err := f.each(f.t.Context(), &r); err != nil {
		f.t.Error(err)
	}
	clear(r.Key) // it was lent
	clear(r.Value)
}

func TestRowsOfATopicAreTheNewestOfEachKey(t *testing.T) {
	f := &feed{t: t, first: [][2]string{{"A-1", `{"tier":"silver"}`}, {"A-2", `{"tier":"bronze","limit":9007199254740993}`}, {"A-1", `{"tier":"gold"}`}}}
	l := newLane(t, `{table: {topic: accounts, by: /account, take: {tier: /tier}, missing: skip}}`, nil, f)
	l.want(`{"account":"A-1"}`, "tier=gold")
	l.want(`{"account":"A-2"}`, "tier=bronze")
	l.want(`{"account":"A-3"}`, "")
	f.give("A-3", `{"tier":"new"}`)
	l.want(`{"account":"A-3"}`, "tier=new")
	f.give("A-1", "")
	l.want(`{"account":"A-1"}`, "")
	f.give("A-2", `{"tier":`)
	l.want(`{"account":"A-2"}`, "") // what stood there before is not true any more
	f.give("", `{"tier":"nobody's"}`)
	l.want(`{"account":""}`, "")
}

func TestARecordWithoutARowFollowsTheDeclaredChoice(t *testing.T) {
	f := &feed{t: t, first: [][2]string{{"A-1", `{}`}}}
	l := newLane(t, `{table: {topic: accounts, by: key, take: {tier: /tier}}}`, nil, f)
	l.want(`{"account":"A-1"}`, "ERR_ENRICH_MISSING lookup=enrich what=no key")
	l = newLane(t, `{table: {topic: accounts, by: /account, take: {tier: /tier}}}`, nil, f)
	l.want(`{"account":"A-1"}`, "ERR_ENRICH_MISSING lookup=enrich what=/tier")
	l.want(`{"account":"A-2"}`, "ERR_ENRICH_MISSING lookup=enrich what=no entry")
}

func TestATableThatIsFullKeepsNoMoreRows(t *testing.T) {
	f := &feed{t: t}
	l := newLane(t, `{table: {topic: accounts, by: /account, take: {tier: /tier}, missing: skip}}`, nil, f)
	large := fmt.Sprintf(`{"tier":"%s"}`, bytes.Repeat([]byte("x"), 1<<19))
	for i := range 140 { // of 64 MiB
		f.give(fmt.Sprint("A-", i), large)
	}
	l.want(`{"account":"A-139"}`, "")
	for i := range 120 {
		f.give(fmt.Sprint("A-", i), `{"tier":"small"}`)
	}
	f.give("A-139", large)
	if got := l.run(`{"account":"A-139"}`)[0]; len(got) != len("tier=")+1<<19 {
		t.Errorf("rows that became small make no room: %.40q", got)
	}
	l.want(`{"account":"A-5"}`, "tier=small")
}

func TestARowThatNeedsASchemaWaitsForTheRegistry(t *testing.T) {
	f := &feed{t: t}
	layout := &pipeline.Layout{}
	for _, k := range stage.Kinds() {
		if k.Name != "enrich" {
			continue
		}
		_, shut, err := k.Build(&stage.EnrichSettings{Table: &stage.TableLookup{Topic: "accounts", Format: "avro", Registry: "main", By: "/account", Take: map[string]string{"tier": "/tier"}}},
			pipeline.Env{Name: "enrich", Layout: layout, Meter: noMeter{}, Resource: func(kind, name string) (any, error) {
				if kind == stage.ResourceRegistry {
					return absent{}, nil
				}
				return f, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		err = f.each(t.Context(), &pipeline.Record{Key: []byte("A-1"), Value: []byte{0, 0, 0, 0, 7, 2, 'x'}})
		if pipeline.CodeOf(err) != pipeline.CodeRegistryUnavailable {
			t.Errorf("the row is taken without its schema: %v", err)
		}
		if err := shut(); err != nil || f.open {
			t.Errorf("it is followed still: %v", err)
		}
	}
}

// absent is a registry that is down.
type absent struct{}

func (absent) ByID(context.Context, int32) (*codec.Schema, *pipeline.Failure) {
	return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable}
}
func (absent) ByGUID(context.Context, string) (*codec.Schema, *pipeline.Failure) {
	return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable}
}
