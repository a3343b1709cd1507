package main

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/worker"
)

// adopted is what adopt found in one topic.
type adopted struct {
	Topic    string           `json:"topic"`
	Messages int64            `json:"messages"`
	Dialects map[string]int64 `json:"dialects"`
	Classes  map[string]int64 `json:"classes"` // exception class or failure class -> letters
	Ages     map[string]int64 `json:"ages"`
	Oldest   string           `json:"oldest,omitempty"`
	Groups   map[string]int64 `json:"consumers,omitempty"` // who failed, where letters say so
	Unread   []unread         `json:"unread"`              // the first that could not be read as a letter
	Raw      int64            `json:"raw"`                 // messages without any known family of headers
	Known    bool             `json:"already_adopted"`
}

type unread struct {
	Position string `json:"position"`
	Why      string `json:"why"`
}

func (a *app) adoptCmd() *cobra.Command {
	var cluster, dialect, consumer string
	var dry bool
	c := &cobra.Command{
		Use: "adopt TOPIC...", Short: "Take dead-letter topics of other systems into custody",
		Long: "Adopt reads dead-letter topics that Kafka Connect, Kafka Streams, share groups, Spring, SmallRye, Karafka, Wolverine or others\n" +
			"write, counts their letters by dialect, cause and age, shows what it could not read, and names the topics under custody.adopt\n" +
			"of the worker file: the custodian takes them from then on. With --dry-run the file stays as it is. Nothing is written to Kafka.",
		Example: "  reprieve adopt connect-invoices-dlq --dry-run\n  reprieve adopt invoices-dlt --dialect spring --consumer invoice-service",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "name at least one topic")
			}
			plan, err := a.load(nil)
			if err != nil { // the pipelines may be elsewhere: they only tell which topics are our own
				plan, err = a.loadWorker()
			}
			if err != nil {
				return err
			}
			for _, own := range plan.Topics(1) {
				if slices.Contains(args, own.Topic) && own.Cluster == cluster {
					return pipeline.Errorf(pipeline.CodeUsage, own.Topic, "it is a topic of our own (%s): its letters are taken already, or it has none", own.What).
						With("name dead-letter topics of other systems")
				}
			}
			keys, err := worker.NewKeys(plan.Config.Keys)
			if err != nil {
				return err
			}
			kc, err := plan.Cluster(cluster)
			if err != nil {
				return err
			}
			found, err := a.lookAtLetters(c.Context(), kc, keys, dialect, args)
			if err != nil {
				return err
			}
			var missing []string
			for i := range found {
				found[i].Known = slices.ContainsFunc(plan.Config.Custody.Adopt, func(x config.Adopt) bool { return x.Topic == found[i].Topic && x.Cluster == cluster })
				if !found[i].Known {
					missing = append(missing, found[i].Topic)
				}
			}
			for _, ad := range found {
				if !dry && ad.Messages > 0 && ad.Raw == ad.Messages && dialect != deadletter.Raw {
					return pipeline.Errorf(pipeline.CodeLetterInvalid, ad.Topic, "none of its %s has headers of a dead letter that is known", many(ad.Messages, "message")).
						With("look at it with --dry-run; --dialect raw takes its messages into custody all the same")
				}
			}
			if !dry && len(missing) > 0 {
				if err := a.writeAdoption(missing, cluster, dialect, consumer); err != nil {
					return err
				}
			}
			out := struct {
				Topics  []adopted `json:"topics"`
				Written []string  `json:"written"`
			}{found, []string{}}
			if !dry {
				out.Written = append(out.Written, missing...)
			}
			return a.print(out, func(t *table) { a.adoptTable(t, found, dry, missing) })
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "main", "cluster of the topics, as the worker file names it")
	c.Flags().StringVar(&dialect, "dialect", "", "how the letters are spelled; found out by their headers if not said")
	c.Flags().StringVar(&consumer, "consumer", "", "group that failed, if the letters do not name it")
	c.Flags().BoolVar(&dry, "dry-run", false, "only count and show")
	return c
}

const mostUnread = 20

// lookAtLetters reads the topics to their present end.
func (a *app) lookAtLetters(ctx context.Context, c kafka.Cluster, keys worker.Keys, dialect string, topics []string) ([]adopted, error) {
	log, err := kafka.NewLog(c, nil)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var out []adopted
	for _, topic := range topics {
		info, err := log.Info(ctx, topic)
		if err != nil {
			return nil, err
		}
		ad := adopted{Topic: topic, Dialects: map[string]int64{}, Classes: map[string]int64{}, Ages: map[string]int64{}, Groups: map[string]int64{}, Unread: []unread{}}
		oldest := int64(0)
		for _, p := range slices.Sorted(maps.Keys(info.Partitions)) {
			r := info.Partitions[p]
			tp := pipeline.TP{Topic: topic, Partition: p}
			all := func(yield func(int64) bool) {
				for off := r.First; off < r.Next && yield(off); off++ {
				}
			}
			err := log.Read(ctx, tp, all, func(b *pipeline.Batch) error {
				defer b.Release()
				for i := range b.Recs {
					rec := &b.Recs[i]
					if deadletter.IsProbe(rec) {
						continue
					}
					if oldest == 0 || rec.TimeMS < oldest {
						oldest = rec.TimeMS
					}
					a.countLetter(&ad, dialect, tp, rec, keys)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		ad.Oldest = stamp(oldest)
		out = append(out, ad)
	}
	return out, nil
}

func (a *app) countLetter(ad *adopted, dialect string, tp pipeline.TP, rec *pipeline.Record, keys worker.Keys) {
	ad.Messages++
	ad.Ages[ageClass(a.clock().Sub(time.UnixMilli(rec.TimeMS)))]++
	l, err := deadletter.ParseAs(dialect, tp.Topic, rec, keys.Ring)
	at := pipeline.Position{TP: tp, Offset: rec.Offset}.String()
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case l.Dialect == deadletter.Raw:
		ad.Raw++
		why = "no family of headers that is known"
	}
	if why != "" {
		if len(ad.Unread) < mostUnread {
			ad.Unread = append(ad.Unread, unread{at, why})
		}
		if err != nil {
			ad.Dialects["unread"]++
			return
		}
	}
	ad.Dialects[l.Dialect]++
	if class := cmp.Or(l.Exception, string(l.Failure.Code)); class != "" {
		ad.Classes[class]++
	}
	if l.Identity.Consumer != "" {
		ad.Groups[l.Identity.Consumer]++
	}
}

func ageClass(d time.Duration) string {
	switch day := 24 * time.Hour; {
	case d < day:
		return "under 1d"
	case d < 7*day:
		return "1d to 7d"
	case d < 30*day:
		return "7d to 30d"
	}
	return "over 30d"
}

func (a *app) adoptTable(t *table, found []adopted, dry bool, missing []string) {
	for _, ad := range found {
		t.line("%s: %d messages, oldest %s", harmless(ad.Topic), ad.Messages, cmp.Or(ad.Oldest, "none"))
		for _, part := range []struct {
			name   string
			counts map[string]int64
		}{{"dialect", ad.Dialects}, {"cause", ad.Classes}, {"consumer", ad.Groups}, {"age", ad.Ages}} {
			names := slices.SortedFunc(maps.Keys(part.counts), func(x, y string) int {
				return cmp.Or(cmp.Compare(part.counts[y], part.counts[x]), cmp.Compare(x, y))
			})
			for i, n := range names {
				if i == 10 {
					t.row("  "+part.name, "... "+strconv.Itoa(len(names)-10)+" more", "")
					break
				}
				t.row("  "+part.name, n, part.counts[n])
			}
		}
		for _, u := range ad.Unread {
			t.row("  not read", u.Position, u.Why)
		}
		if more := ad.Raw + ad.Dialects["unread"] - int64(len(ad.Unread)); more > 0 {
			t.row("  not read", "... and "+num(more)+" more", "")
		}
	}
	switch {
	case len(missing) == 0:
		t.line("\nthe worker file names all of them already")
	case dry:
		t.line("\nnothing was changed; without --dry-run they are named under custody.adopt of %s", a.file)
	default:
		t.line("\nnamed under custody.adopt of %s; the custodian takes them at its next start", a.file)
	}
}

// writeAdoption names the topics under custody.adopt of the worker file; comments and order of the file stay.
func (a *app) writeAdoption(topics []string, cluster, dialect, consumer string) error {
	text, err := a.readFile(a.file)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeConfigRead, a.file, "%w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return pipeline.Errorf(pipeline.CodeConfigSyntax, a.file, "the file cannot be changed").With("add the topics under custody.adopt by hand")
	}
	list := member(member(doc.Content[0], "custody", yaml.MappingNode), "adopt", yaml.SequenceNode)
	for _, topic := range topics {
		n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, kv := range [][2]string{{"cluster", cluster}, {"topic", topic}, {"dialect", dialect}, {"consumer", consumer}} {
			if kv[1] != "" {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: kv[0]}, &yaml.Node{Kind: yaml.ScalarNode, Value: kv[1]})
			}
		}
		list.Content = append(list.Content, n)
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return pipeline.Errorf(pipeline.CodeInternal, a.file, "%w", err)
	}
	half := a.file + ".new"
	if err := os.WriteFile(half, buf.Bytes(), 0o644); err != nil {
		return pipeline.Errorf(pipeline.CodeConfigRead, half, "%w", err)
	}
	if err := os.Rename(half, a.file); err != nil {
		return pipeline.Errorf(pipeline.CodeConfigRead, a.file, "%w", err)
	}
	return nil
}

// member is the value of a key of a mapping; it is added if it is missing.
func member(n *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	v := &yaml.Node{Kind: kind}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, v)
	return v
}
