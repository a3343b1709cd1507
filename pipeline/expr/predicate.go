package expr

import (
	"bytes"
	"strconv"
	"time"

	"reprieve.dev/pipeline"
)

// predicate is a condition without CEL: comparisons of single paths with constants under and, or, not.
type predicate struct{ root node }

// op is what a node does.
type op uint8

const (
	opConst op = iota
	opAnd
	opOr
	opNot
	opTruth // a bool by itself
	opHas
	opEq
	opNe
	opLt
	opLe
	opGt
	opGe
	opIn
	opStartsWith
	opEndsWith
	opContains
)

// node is one part of a predicate.
type node struct {
	op     op
	truth  truth
	kids   []node
	leaf   *leaf
	consts []operand
}

// leaf is the place that a comparison reads.
type leaf struct {
	root     root
	path     *pipeline.Path   // of the view
	arrays   []*pipeline.Path // places on the way that must be arrays, because the path indexes them
	parent   *leaf            // of has(): must exist
	header   string
	named    bool // header is set
	text     string
	missing  *EvalError
	mismatch *EvalError
}

// env is what a predicate reads. It stays on the stack.
type env struct {
	b *pipeline.Batch
	i int
	f *pipeline.Facts
}

// truth has three values, as in CEL: an error is absorbed by what decides without it.
type truth uint8

const (
	isFalse truth = iota
	isTrue
	isError
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

func (p *predicate) eval(e *env) (bool, error) {
	t, err := p.root.eval(e)
	if err != nil {
		return false, err
	}
	return t == isTrue, nil
}

// eval returns isError exactly when err is not nil. The errors are made beforehand.
func (n *node) eval(e *env) (truth, *EvalError) {
	switch n.op {
	case opConst:
		return n.truth, nil
	case opAnd, opOr:
		decides := isFalse
		if n.op == opOr {
			decides = isTrue
		}
		var first *EvalError
		for i := range n.kids {
			t, err := n.kids[i].eval(e)
			if t == decides {
				return t, nil
			}
			if err != nil && first == nil {
				first = err
			}
		}
		if first != nil {
			return isError, first
		}
		return isTrue - decides, nil
	case opNot:
		t, err := n.kids[0].eval(e)
		if err != nil {
			return isError, err
		}
		return isTrue - t, nil
	case opHas:
		return n.leaf.has(e)
	}
	var buf digitBuffer
	v, err := n.leaf.read(e, &buf)
	if err != nil {
		return isError, err
	}
	return n.compare(&v)
}

func (n *node) compare(v *operand) (truth, *EvalError) {
	switch n.op {
	case opTruth:
		if v.kind != kindBool {
			return isError, n.leaf.mismatch
		}
		return truthOf(v.i != 0), nil
	case opEq:
		return truthOf(equal(v, &n.consts[0])), nil
	case opNe:
		return truthOf(!equal(v, &n.consts[0])), nil
	case opIn:
		for i := range n.consts {
			if equal(v, &n.consts[i]) {
				return isTrue, nil
			}
		}
		return isFalse, nil
	case opStartsWith, opEndsWith, opContains:
		if v.kind != kindString {
			return isError, n.leaf.mismatch
		}
		text := n.consts[0].s
		switch n.op {
		case opStartsWith:
			return truthOf(bytes.HasPrefix(v.s, text)), nil
		case opEndsWith:
			return truthOf(bytes.HasSuffix(v.s, text)), nil
		}
		return truthOf(bytes.Contains(v.s, text)), nil
	}
	c, ok := order(v, &n.consts[0])
	if !ok {
		return isError, n.leaf.mismatch
	}
	switch n.op {
	case opLt:
		return truthOf(c < 0), nil
	case opLe:
		return truthOf(c <= 0), nil
	case opGt:
		return truthOf(c > 0), nil
	}
	return truthOf(c >= 0), nil
}

// read finds the value, or says why there is none. The result is returned by value: buf stays on the caller's stack.
func (l *leaf) read(e *env, buf *digitBuffer) (operand, *EvalError) {
	if !l.viewed(e) {
		return l.variable(e)
	}
	v, err := l.value(e)
	if err != nil {
		return operand{}, err
	}
	o := fromValue(v, buf)
	if o.kind == kindBad {
		return operand{}, l.mismatch
	}
	return o, nil
}

// viewed tells whether the leaf is of the view, or of a key that was decoded.
func (l *leaf) viewed(e *env) bool {
	return l.root == rootView || l.root == rootKey && e.b.KeyView(e.i) != nil
}

// value reads the view.
func (l *leaf) value(e *env) (pipeline.Value, *EvalError) {
	view := e.b.Views[e.i]
	if l.root == rootKey {
		view = e.b.KeyView(e.i)
	}
	if view == nil {
		if len(l.path.Segs) == 0 {
			return pipeline.Value{}, nil // null
		}
		return pipeline.Value{}, l.missing
	}
	for _, p := range l.arrays {
		if v, ok := view.Get(p); !ok || v.Kind != pipeline.KindArray {
			return pipeline.Value{}, l.missing
		}
	}
	v, ok := view.Get(l.path)
	if !ok {
		if len(l.path.Segs) == 0 {
			return pipeline.Value{Kind: pipeline.KindRecord}, nil
		}
		return pipeline.Value{}, l.missing
	}
	return v, nil
}

// has is true when the place exists, null included, and an error when what would hold it does not exist or cannot be asked.
func (l *leaf) has(e *env) (truth, *EvalError) {
	if l.root == rootHeaders {
		own, added := headersOf(e.b, e.i)
		_, ok := lastHeader(own, added, l.header)
		return truthOf(ok), nil
	}
	var buf digitBuffer
	if v, err := l.value(e); err == nil {
		if fromValue(v, &buf).kind == kindBad {
			return isError, l.mismatch
		}
		return isTrue, nil
	}
	holder, err := l.parent.value(e)
	if err != nil {
		return isError, err
	}
	if k := fromValue(holder, &buf).kind; k == kindList || k == kindBad {
		return isError, l.mismatch
	}
	return isFalse, nil
}

// variable reads everything that is not in the view.
func (l *leaf) variable(e *env) (operand, *EvalError) {
	if e.f != nil {
		return fact(l.root, e.f), nil
	}
	r := &e.b.Recs[e.i]
	switch l.root {
	case rootHeaders:
		if !l.named {
			return operand{kind: kindMap}, nil
		}
		own, added := headersOf(e.b, e.i)
		v, ok := lastHeader(own, added, l.header)
		if !ok {
			return operand{}, l.missing
		}
		return bytesOrNull(v), nil
	case rootKey:
		return bytesOrNull(r.Key), nil
	case rootTopic:
		return fromString(e.b.TP.Topic), nil
	case rootPartition:
		return operand{kind: kindInt, i: int64(e.b.TP.Partition)}, nil
	case rootOffset:
		return operand{kind: kindInt, i: r.Offset}, nil
	case rootTimestamp:
		if o := fromTime(r.TimeMS, 1000); o.kind == kindTime {
			return o, nil
		}
	}
	return operand{}, l.mismatch
}

func bytesOrNull(b []byte) operand {
	if b == nil {
		return operand{kind: kindNull}
	}
	return operand{kind: kindString, s: b}
}

func boolean(b bool) operand {
	if b {
		return operand{kind: kindBool, i: 1}
	}
	return operand{kind: kindBool}
}

func fact(r root, f *pipeline.Facts) operand {
	switch r {
	case rootCode:
		return fromString(string(f.Code))
	case rootClass:
		return fromString(f.Class.String())
	case rootThreeWay:
		return fromString(f.Class.ThreeWay())
	case rootStage:
		return fromString(f.Stage)
	case rootAttempt:
		return operand{kind: kindInt, i: int64(f.Attempt)}
	case rootRung:
		return operand{kind: kindInt, i: int64(f.Rung)}
	case rootAge:
		return durationOf(ageOf(f))
	case rootRetryAfter:
		return durationOf(milliseconds(f.RetryAfter))
	case rootRetryable:
		return boolean(pipeline.Lookup(f.Code).Retryable())
	case rootSchema:
		return fromString(f.Schema)
	case rootTenant:
		return fromString(f.Tenant)
	case rootTopic:
		return fromString(f.Topic)
	case rootRelease:
		return fromString(f.Release)
	case rootLane:
		return fromString(laneName(f.Lane))
	case rootRedriven:
		return boolean(f.Redriven)
	case rootHealthy:
		return boolean(!f.Unhealthy)
	}
	return operand{kind: kindBad}
}

// appendText appends the value of a bare path (Val.Append).
func (l *leaf) appendText(dst []byte, e *env) ([]byte, bool, error) {
	if l.viewed(e) {
		v, err := l.value(e)
		if err != nil {
			return dst, false, err
		}
		if v.Kind == pipeline.KindDecimal {
			var buf digitBuffer
			neg, digits := twosDigits(v.Bytes, &buf)
			return appendScaled(dst, neg, digits, v.Int), true, nil
		}
	}
	var buf digitBuffer
	o, err := l.read(e, &buf)
	if err != nil {
		return dst, false, err
	}
	switch o.kind {
	case kindNull:
		return dst, false, nil
	case kindBool:
		return strconv.AppendBool(dst, o.i != 0), true, nil
	case kindInt:
		return strconv.AppendInt(dst, o.i, 10), true, nil
	case kindUint:
		return strconv.AppendUint(dst, o.u, 10), true, nil
	case kindDec:
		return append(dst, o.s...), true, nil // the text itself, 1.10 and 1E400 included
	case kindFloat:
		return strconv.AppendFloat(dst, o.f, 'g', -1, 64), true, nil
	case kindString, kindBytes:
		return append(dst, o.s...), true, nil
	case kindTime:
		return time.Unix(o.i, o.ns).UTC().AppendFormat(dst, timeLayout), true, nil
	}
	return dst, false, l.mismatch
}

// timeLayout is RFC 3339 in UTC with milliseconds (CONTRACTS 1).
const timeLayout = "2006-01-02T15:04:05.000Z"
