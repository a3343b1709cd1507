package custody_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// taking runs a custodian until it has everything that the lab's topics hold now.
func (l *lab) taking() {
	l.t.Helper()
	k, src := l.custodian(l.Items)
	stop := run(k)
	l.passed(k)
	if err := stop(); err != nil {
		l.t.Fatal(err)
	}
	src.Close()
}

func (l *lab) putLetterOf(letter *deadletter.Letter, partition int32) int64 {
	l.t.Helper()
	m := &pipeline.Message{Topic: dlq}
	if err := deadletter.Append(m, letter, deadletter.Profiles{}, l.Ring); err != nil {
		l.t.Fatal(err)
	}
	return l.put(m, partition)
}

// A record that is dead-lettered 200 times, with a stack of 2,048 characters and one more attempt each time, is one item: what the ledger
// keeps of the item itself does not grow with the passes, and the stack stands once.
func TestCaseC29TwoHundredPassesAreOneItem(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		const passes = 200
		stack := strings.Repeat("at step in module billing/charge.go:100\n", 60)[:2048]
		var attempts []pipeline.Attempt
		for n := range passes {
			letter := l.Letter(7)
			attempts = append(attempts, pipeline.Attempt{N: n + 1, At: custodytest.Start.Add(time.Duration(n) * time.Second), Code: pipeline.CodeRegistryUnavailable})
			letter.Stack, letter.Attempts, letter.Decision.Attempt = stack, attempts, uint8(n+1)
			if n > 0 {
				letter.At = pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.retry"}, Offset: int64(n)}
			}
			letter.QuarantinedMS += int64(n) * 1000
			l.putLetterOf(letter, int32(n%2))
		}
		l.taking()
		l.taking() // and read again from the start by somebody new: nothing more
		shown := l.Show(t, l.Letter(7).Item)
		if n := l.count(""); n != 1 || shown.Item.Sightings != passes {
			t.Errorf("%d items, %d sightings", n, shown.Item.Sightings)
		}
		if got := len(shown.Stack); got == 0 || got > 2048 {
			t.Errorf("a stack of %d characters", got)
		}
		db := l.Store.SQL(t)
		for table, most := range map[string]int{"items": 1, "payloads": 1, "stacks": 1, "attempts": passes, "sightings": passes - 1} {
			var n int
			if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n > most {
				t.Errorf("%s has %d rows, want at most %d: %v", table, n, most, err)
			}
		}
		mustVerify(t, l.Env)
	})
}

// Dead-letter topics have partitions of their own: the ledger tells where the record stood from where its letter stands, whatever the
// counts, a null key included.
func TestCaseC31TheLedgerKeepsBothPartitions(t *testing.T) {
	data, err := os.ReadFile("testdata/c31_scenario.json")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Records []struct {
			Partition int32
			Key       *string
		}
	}
	if err := json.Unmarshal(data, &in); err != nil || len(in.Records) != 5 {
		t.Fatal(err)
	}
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		letters := make([]*deadletter.Letter, len(in.Records))
		stands := make([]pipeline.Position, len(in.Records))
		for i, r := range in.Records {
			letter := l.Letter(int64(i))
			letter.Original.Partition, letter.At.Partition = r.Partition, r.Partition
			letter.Key = nil
			if r.Key != nil {
				letter.Key = []byte(*r.Key)
			}
			letters[i] = letter
			p := max(pipeline.Partition(letter.Key, 2), 0) // two partitions for twelve
			stands[i] = pipeline.Position{TP: pipeline.TP{Topic: dlq, Partition: p}, Offset: l.putLetterOf(letter, p) - 1}
		}
		l.taking()
		for i, letter := range letters {
			it := l.Show(t, letter.Item).Item
			if it.Original.Partition != in.Records[i].Partition || it.Letter != stands[i] {
				t.Errorf("record %d: it stood at %s and its letter at %s, want partition %d and %s", i, it.Original, it.Letter, in.Records[i].Partition, stands[i])
			}
			if n := l.count(fmt.Sprintf("partition=%d offset=%d", in.Records[i].Partition, i)); n != 1 {
				t.Errorf("record %d: %d items by its partition", i, n)
			}
			b, err := l.Items.Open(l.Ctx, custodytest.Owner, letter.Item, "look")
			if err != nil || (b.Key == nil) != (letter.Key == nil) {
				t.Errorf("record %d: key %q, %v", i, b.Key, err)
			}
		}
	})
}

// Null stays null and zero bytes stay zero bytes in the ledger, in what is opened, in the bytes that a redrive would send, and in an
// export, for key, value and headers alike.
func TestCaseC32NullStaysNullInTheLedger(t *testing.T) {
	data, err := os.ReadFile("testdata/c32_records.json")
	if err != nil {
		t.Fatal(err)
	}
	var records []struct {
		Key   *string `json:"key_hex"`
		Value *string `json:"value_hex"`
	}
	if err := json.Unmarshal(data, &records); err != nil || len(records) != 5 {
		t.Fatal(err)
	}
	bytesOf := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := hex.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{}, b...)
	}
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		var letters []*deadletter.Letter
		for i, r := range records {
			letter := l.Letter(int64(i))
			letter.Key, letter.Value = bytesOf(r.Key), bytesOf(r.Value)
			letter.Headers = []pipeline.Header{{Name: "null"}, {Name: "empty", Value: []byte{}}, {Name: "text", Value: []byte("null")}}
			letter.DigestFaithful = pipeline.Digest(l.Identity.Digest(letter.Value))
			letters = append(letters, letter)
			l.putLetterOf(letter, 0)
		}
		l.taking()
		mustVerify(t, l.Env)
		for i, letter := range letters {
			opened, err := l.Items.Open(l.Ctx, custodytest.Owner, letter.Item, "look")
			if err != nil {
				t.Fatal(err)
			}
			faithful, err := l.Items.Faithful(l.Ctx, l.Show(t, letter.Item).Item)
			if err != nil || !faithful.Faithful {
				t.Fatal(err)
			}
			for what, b := range map[string]custody.Bytes{"opened": opened, "faithful": faithful} {
				if d := cmp.Diff([]any{letter.Key, letter.Value, letter.Headers}, []any{b.Key, b.Value, b.Headers}); d != "" {
					t.Errorf("record %d, %s: %s", i, what, d)
				}
			}
			var out bytes.Buffer
			if _, err := l.Items.Export(l.Ctx, custodytest.Owner, selection(t, "id="+string(letter.Item)), custody.ExportOptions{Payloads: true, Reason: "look"}, &out); err != nil {
				t.Fatal(err)
			}
			var line struct{ Record json.RawMessage }
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			_, back, err := pipeline.ParseForm(line.Record)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]any{letter.Key, letter.Value, letter.Headers}, []any{back.Key, back.Value, back.Headers}); d != "" {
				t.Errorf("record %d, exported: %s", i, d)
			}
		}
	})
}

// Whatever of a lot cannot be read, each message has its own error and the others go in, once, also when the lot is read again.
func TestCaseC34OneBadLetterNeverFailsItsLot(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		for n := int64(100); n < 110; n++ {
			switch n {
			case 103: // nobody of ours signed it, and it says that we did
				m := &pipeline.Message{Topic: dlq}
				letter := l.Letter(n)
				if err := deadletter.Append(m, letter, deadletter.Profiles{}, l.Ring); err != nil {
					t.Fatal(err)
				}
				m.Value = append(bytes.Clone(m.Value), '!')
				l.put(m, 0)
			case 107: // a range stands for many records
				letter := l.Letter(n)
				letter.Kind = deadletter.KindRange
				l.putLetterOf(letter, 0)
			default:
				l.putLetterOf(l.Letter(n), 0)
			}
		}
		l.taking()
		l.taking()
		for n := int64(100); n < 110; n++ {
			want := int64(1)
			if n == 103 || n == 107 {
				want = 0
			}
			if got := l.count("id=" + string(l.Letter(n).Item)); got != want {
				t.Errorf("offset %d: %d items, want %d", n, got, want)
			}
		}
		var raw int
		db := l.Store.SQL(t)
		if err := db.QueryRow("SELECT count(*) FROM raw_messages WHERE code = '" + string(pipeline.CodeNotYet) + "' AND message_offset = 7").Scan(&raw); err != nil || raw != 1 {
			t.Errorf("%d messages are kept as the range: %v", raw, err)
		}
		if n := l.count("flag=forged"); n != 1 {
			t.Errorf("%d items are marked forged", n)
		}
		var next int64
		if err := db.QueryRow("SELECT next FROM intake_offsets WHERE topic = '" + dlq + "' AND partition = 0").Scan(&next); err != nil || next != 10 {
			t.Errorf("the ledger goes on at %d: %v", next, err)
		}
		mustVerify(t, l.Env)
	})
}
