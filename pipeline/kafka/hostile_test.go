package kafka_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"reprieve.dev/pipeline"
)

// rawRecord is one record of a batch as it stands on the wire; count overrides how many headers it says it has.
func rawRecord(i int, key, value []byte, count int64, headers ...[2][]byte) []byte {
	bytes := func(b, v []byte) []byte {
		if v == nil {
			return binary.AppendVarint(b, -1)
		}
		return append(binary.AppendVarint(b, int64(len(v))), v...)
	}
	body := binary.AppendVarint(binary.AppendVarint([]byte{0}, int64(i)), int64(i))
	body = bytes(bytes(body, key), value)
	body = binary.AppendVarint(body, count)
	for _, h := range headers {
		body = bytes(bytes(body, h[0]), h[1])
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// rawBatch frames records with a right length and checksum, so that they reach the parser.
func rawBatch(n int, records []byte) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: 1_700_000_000_000,
		MaxTimestamp: 1_700_000_000_000, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: records}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// whole are records that are all right.
func whole() (records []byte, n int) {
	for i := range 5 {
		records = append(records, rawRecord(i, fmt.Append(nil, "key", i), []byte(strings.Repeat("value", i)), 2,
			[2][]byte{[]byte("name"), []byte("v")}, [2][]byte{[]byte("null"), nil})...)
	}
	return records, 5
}

func TestNoBytesOfARecordCrashTheClient(t *testing.T) {
	good, n := whole()
	type hostile struct {
		name    string
		n       int
		records []byte
		reads   bool // records come of it
	}
	cases := []hostile{
		{"as it should be", n, good, true},
		{"more headers than there are", 1, rawRecord(0, []byte("k"), []byte("v"), 100, [2][]byte{[]byte("a"), []byte("b")}), false},
		{"a billion headers", 1, rawRecord(0, []byte("k"), []byte("v"), 1<<30), false},
		{"fewer headers than none", 1, rawRecord(0, []byte("k"), []byte("v"), -7), false},
		{"a header without a name", 1, rawRecord(0, []byte("k"), []byte("v"), 1, [2][]byte{nil, []byte("b")}), false},
		{"a name with a zero byte and no text", 1, rawRecord(0, nil, nil, 1, [2][]byte{{'a', 0, 'b', 0xff}, {}}), true},
		{"a thousand headers", 1, rawRecord(0, nil, []byte{}, 1000, manyHeaders(1000)...), true},
		{"a length beyond the end", 1, append(binary.AppendVarint(nil, 1<<40), good[1:]...), false},
		{"more records than there are", 1000, good, false},
		{"nothing", 3, nil, false},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 25 {
		bad := append([]byte(nil), good...)
		for range 1 + i%4 {
			bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		}
		cases = append(cases, hostile{fmt.Sprintf("changed bytes %d", i), n, bad, false})
	}
	before := inventory()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, at := cluster(t, 1, kfake.SeedTopics(1, "hostile"), kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: rawBatch(c.n, c.records)}))
			s := open(t, newAdapter(at, nil), "hostile")
			read, ours := 0, false
			look := func() {
				switch ev, err := s.Poll(10 * time.Millisecond); e := ev.(type) {
				case pipeline.Assigned:
					ours = true
				case *pipeline.Batch:
					for i := range e.Recs {
						e.Recs[i].Clone() // every byte may be read
					}
					read += e.Len()
					e.Release()
				default:
					ours = ours || err != nil // it is said, and that is as good
				}
			}
			deadline(t, "an assignment, and records if there are any", func() bool { look(); return ours && (read >= c.n || !c.reads) })
			for range 15 {
				look()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if got := inventory(); got != before {
		t.Errorf("there is %s, before there was %s", got, before)
	}
}

func manyHeaders(n int) (out [][2][]byte) {
	for i := range n {
		out = append(out, [2][]byte{fmt.Append(nil, "h", i), fmt.Append(nil, i)})
	}
	return out
}
