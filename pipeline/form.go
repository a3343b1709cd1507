package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// TimeForm is how times are written in headers, the API and forms: RFC 3339 in UTC with 3 decimals.
const TimeForm = "2006-01-02T15:04:05.000Z"

// AppendForm appends the one record form (CONTRACTS 7) as one line of JSON without a newline. Offsets are text, so that no
// reader rounds them; bytes are text only when they are valid UTF-8.
func AppendForm(dst []byte, tp TP, r *Record) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendJSONText(dst, tp.Topic)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendInt(dst, int64(tp.Partition), 10)
	dst = append(dst, `,"offset":"`...)
	dst = strconv.AppendInt(dst, r.Offset, 10)
	dst = append(dst, '"')
	if r.TimeType != TimeNone {
		dst = append(dst, `,"timestamp":"`...)
		dst = time.UnixMilli(r.TimeMS).UTC().AppendFormat(dst, TimeForm)
		dst = append(dst, `","timestamp_type":"`...)
		dst = append(dst, r.TimeType.String()...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"key":`...)
	dst = AppendBytesForm(dst, r.Key)
	dst = append(dst, `,"value":`...)
	dst = AppendBytesForm(dst, r.Value)
	dst = append(dst, `,"headers":[`...)
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		dst = appendJSONText(dst, h.Name)
		dst = append(dst, ',')
		dst = AppendBytesForm(dst, h.Value)
		dst = append(dst, ']')
	}
	return append(dst, ']', '}')
}

// AppendBytesForm appends bytes: null, {"text": ...} when they are valid UTF-8, else {"base64": ...}.
func AppendBytesForm(dst, b []byte) []byte {
	switch {
	case b == nil:
		return append(dst, "null"...)
	case utf8.Valid(b):
		dst = append(dst, `{"text":`...)
		dst = appendJSONText(dst, string(b))
	default:
		dst = append(dst, `{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, b)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// appendJSONText writes a JSON string that reads back to exactly s; s must be valid UTF-8 (header names that are not are made so).
func appendJSONText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// form is the record form as it is read.
type form struct {
	Topic     string               `json:"topic"`
	Partition int32                `json:"partition"`
	Offset    json.RawMessage      `json:"offset"`
	Timestamp string               `json:"timestamp"`
	TimeType  string               `json:"timestamp_type"`
	Key       *bytesForm           `json:"key"`
	Value     *bytesForm           `json:"value"`
	Headers   [][2]json.RawMessage `json:"headers"`
}

type bytesForm struct {
	Text   *json.RawMessage `json:"text"`
	Hex    *string          `json:"hex"`
	Base64 *string          `json:"base64"`
}

// ParseForm reads one record. Topic, partition, offset, time and headers may be left out. Codes: ERR_INPUT_INVALID.
func ParseForm(line []byte) (TP, Record, error) {
	bad := func(format string, args ...any) (TP, Record, error) {
		return TP{}, Record{}, Errorf(CodeInputInvalid, "", format, args...)
	}
	var f form
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return bad(`it is not a record; write {"key": {"text": "..."}, "value": {"text": "..."}, "headers": [["name", {"text": "..."}]]}: %w`, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return bad("something stands behind the record")
	}
	r := Record{TimeType: TimeNone}
	var err error
	if len(f.Offset) > 0 {
		if r.Offset, err = strconv.ParseInt(strings.Trim(string(f.Offset), `"`), 10, 64); err != nil || r.Offset < 0 {
			return bad("offset %s is not a whole number of 0 or more", f.Offset)
		}
	}
	if f.Timestamp != "" {
		at, err := time.Parse(time.RFC3339, f.Timestamp)
		if err != nil {
			return bad("timestamp %q is not RFC 3339", f.Timestamp)
		}
		r.TimeMS, r.TimeType = at.UnixMilli(), TimeCreate
	}
	if f.TimeType != "" {
		t, ok := ParseTimeType(f.TimeType)
		if !ok {
			return bad("timestamp_type %q is none of create, log_append, none", f.TimeType)
		}
		r.TimeType = t
	}
	if r.Key, err = f.Key.bytes(); err != nil {
		return bad("key: %w", err)
	}
	if r.Value, err = f.Value.bytes(); err != nil {
		return bad("value: %w", err)
	}
	for i, h := range f.Headers {
		var name string
		var value *bytesForm
		if err := json.Unmarshal(h[0], &name); err != nil {
			return bad("header %d has no name", i)
		}
		if err := json.Unmarshal(h[1], &value); err != nil {
			return bad("header %d: %w", i, err)
		}
		b, err := value.bytes()
		if err != nil {
			return bad("header %d: %w", i, err)
		}
		r.Headers = append(r.Headers, Header{Name: name, Value: b})
	}
	return TP{Topic: f.Topic, Partition: f.Partition}, r, nil
}

func (b *bytesForm) bytes() ([]byte, error) {
	switch {
	case b == nil:
		return nil, nil
	case b.Text != nil && b.Hex == nil && b.Base64 == nil:
		var s string
		if err := json.Unmarshal(*b.Text, &s); err != nil {
			return nil, err
		}
		if strings.ContainsRune(s, utf8.RuneError) && !bytes.Contains(*b.Text, []byte("\uFFFD")) &&
			!bytes.Contains(bytes.ToLower(*b.Text), []byte(`\ufffd`)) {
			return nil, fmt.Errorf("text is not valid Unicode; write it as hex or base64")
		}
		return append([]byte{}, s...), nil
	case b.Hex != nil && b.Text == nil && b.Base64 == nil:
		out, err := hex.DecodeString(strings.ReplaceAll(*b.Hex, " ", ""))
		return append([]byte{}, out...), err
	case b.Base64 != nil && b.Text == nil && b.Hex == nil:
		out, err := base64.StdEncoding.DecodeString(*b.Base64)
		return append([]byte{}, out...), err
	}
	return nil, fmt.Errorf("write one of text, hex, base64")
}
