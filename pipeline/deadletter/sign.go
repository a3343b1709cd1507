package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

const sigVersion = "v1;"

// signedText is what a signature covers: LP(destination topic, key, sha256(value), then name and value of every
// reprieve-* header and of the eight X- headers, sorted by name). reprieve-sig itself is left out, repeated names keep their
// order, and a null has the length ffffffff, so that null is not empty here either.
func signedText(topic string, key, value []byte, hs []pipeline.Header) []byte {
	room := len(topic) + len(key) + 128
	for i := range hs {
		room += len(hs[i].Name) + len(hs[i].Value) + 8
	}
	dst := seal.AppendLPText(make([]byte, 0, room), topic)
	dst = appendNullable(dst, key)
	dst = seal.AppendLPText(dst, seal.SHA256(value))
	var few [48]int
	idx := few[:0]
	for i := range hs {
		n := hs[i].Name
		if n != headerSig && (strings.HasPrefix(n, Prefix) || isDeath(n)) {
			idx = append(idx, i)
		}
	}
	slices.SortStableFunc(idx, func(a, b int) int { return strings.Compare(hs[a].Name, hs[b].Name) })
	for _, i := range idx {
		dst = seal.AppendLPText(dst, hs[i].Name)
		dst = appendNullable(dst, hs[i].Value)
	}
	return dst
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, ^uint32(0))
	}
	return seal.AppendLP(dst, b)
}

// signature is the value of reprieve-sig: "v1;kid;" and the base64url of the HMAC.
func signature(r *seal.Ring, msg []byte) []byte {
	kid, mac := r.Sign(msg)
	out := make([]byte, 0, len(sigVersion)+len(kid)+1+base64.RawURLEncoding.EncodedLen(len(mac)))
	out = append(append(append(out, sigVersion...), kid...), ';')
	return base64.RawURLEncoding.AppendEncode(out, mac)
}

// checkSignature tells whether sig, in the form that signature writes and no other, is one of msg.
func checkSignature(r *seal.Ring, sig, msg []byte) bool {
	rest, ok := bytes.CutPrefix(sig, []byte(sigVersion))
	if !ok || r == nil {
		return false
	}
	kid, text, ok := bytes.Cut(rest, []byte{';'})
	if !ok || len(text) > 128 {
		return false
	}
	mac, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err == nil && r.Verify(string(kid), msg, mac)
}

// sign appends reprieve-sig. Without a ring (try, which writes nothing) there is none.
func sign(m *pipeline.Message, r *seal.Ring) {
	if r == nil {
		return
	}
	msg := signedText(m.Topic, m.Key, m.Value, m.Headers)
	m.Headers = append(m.Headers, pipeline.Header{Name: headerSig, Value: signature(r, msg)})
}

// verify upholds INV-SIGN: exactly one reprieve-sig, valid for the topic that the record was read from and for all that it
// says. What it covers it covers with every repeat, so a second header of a name is no way around it.
func verify(topic string, rec *pipeline.Record, r *seal.Ring) bool {
	var sig []byte
	n := 0
	for i := range rec.Headers {
		if rec.Headers[i].Name == headerSig {
			sig = rec.Headers[i].Value
			n++
		}
	}
	if n != 1 || r == nil {
		return false
	}
	return checkSignature(r, sig, signedText(topic, rec.Key, rec.Value, rec.Headers))
}
