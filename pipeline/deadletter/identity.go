package deadletter

import (
	"slices"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// QuarantineID is the id of the item that these bytes of this event are for this consumer (CONTRACTS 2): the same event
// with the same bytes is always the same item, wherever it stands; without an event id the source position decides. A
// record that comes back with a verified id keeps that one: ask its trail first. value is what the source held, null as nil.
func QuarantineID(k *seal.IdentityKey, id pipeline.Identity, cluster string, at pipeline.Position, value []byte) pipeline.ID {
	digest := []byte(k.Digest(value))
	if id.EventID != "" {
		return pipeline.ID(k.QuarantineID([]byte("v1"), []byte(id.Consumer), []byte(id.Tenant), []byte(id.EventID), digest))
	}
	return pipeline.ID(k.QuarantineID([]byte("p1"), []byte(id.Consumer), []byte(cluster), []byte(at.Topic),
		strconv.AppendInt(nil, int64(at.Partition), 10), strconv.AppendInt(nil, at.Offset, 10), digest))
}

// Fingerprint is the stable identity of a cause: consumer, stage, class, code, and those params that the code declares as
// identifying, by name. Messages, ids, times, offsets and releases are not in it, so it is the same for every record that
// fails for this cause in every release. A declared param that the failure does not have is left out: a code that declares
// one more keeps the fingerprints of failures without it.
func Fingerprint(consumer string, f *pipeline.Failure) pipeline.ID {
	info := pipeline.Lookup(f.Code)
	names := slices.Clone(info.Identifying)
	slices.Sort(names)
	fields := make([][]byte, 0, 4+2*len(names))
	fields = append(fields, []byte(consumer), []byte(f.Stage), []byte(info.Class.String()), []byte(f.Code))
	for _, name := range names {
		for i := range f.Params {
			if f.Params[i].Name == name {
				fields = append(fields, []byte(name), []byte(f.Params[i].Value()))
				break
			}
		}
	}
	return pipeline.ID(seal.Fingerprint(fields...))
}
