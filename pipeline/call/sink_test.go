package call_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
)

var _ pipeline.Sink = (*call.Sink)(nil)

func effect(url, key, body string, headers ...pipeline.Header) pipeline.Message {
	m := pipeline.Message{Topic: "pay", Partition: -1, Value: []byte(body),
		Headers: append(headers, pipeline.Header{Name: call.HeaderURL, Value: []byte(url)}, pipeline.Header{Name: call.HeaderKey, Value: []byte("t-" + body)})}
	if key != "" {
		m.Key = []byte(key)
	}
	return m
}

func TestEffectsOfAKeyAreMadeInOrderWhileOthersGoOn(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{}
	busy := map[string]bool{}
	open := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key, _, _ := strings.Cut(string(body), ":")
		mu.Lock()
		if busy[key] {
			t.Errorf("%s is called twice at once", key)
		}
		busy[key] = true
		mu.Unlock()
		if key == "slow" {
			<-open
		}
		mu.Lock()
		busy[key] = false
		seen[key] = append(seen[key], string(body))
		mu.Unlock()
		if r.Header.Get("Idempotency-Key") != "t-"+string(body) || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Traceparent") != "00-1" ||
			r.Header.Get(call.HeaderURL) != "" || r.Header.Get("Region") != "eu" {
			t.Errorf("headers: %v", r.Header)
		}
	})
	s := call.NewSink(t.Context(), call.SinkOptions{Effects: map[string]call.Effect{
		"pay": {Lanes: 256, Client: client(t, url, nil), Repeatable: true, ContentType: "application/json"}}})
	own := []pipeline.Header{{Name: "traceparent", Value: []byte("00-1")}, {Name: "region", Value: []byte("eu")}, {Name: "tracestate", Value: []byte("a\nb")}}
	slow := &pipeline.Sending{Owner: "slow"}
	for i := range 5 {
		slow.Msgs = append(slow.Msgs, effect(url, "slow", fmt.Sprintf("slow:%d", i), own...))
	}
	if err := s.Send(slow); err != nil {
		t.Fatal(err)
	}
	for i := range 8 { // some keys may share the lane of the slow one, all never do
		key := fmt.Sprint("k", i)
		quick := &pipeline.Sending{Owner: key, Msgs: []pipeline.Message{effect(url, key, key+":0", own...), effect(url, key, key+":1", own...)}}
		if err := s.Send(quick); err != nil {
			t.Fatal(err)
		}
	}
	first := <-s.Done()
	if first.Owner == "slow" {
		t.Error("the slow key came first")
	}
	close(open)
	for range 8 {
		if x := <-s.Done(); len(x.Bad) > 0 {
			t.Errorf("%v: %+v", x.Owner, x.Bad)
		}
	}
	want := []string{"slow:0", "slow:1", "slow:2", "slow:3", "slow:4"}
	if !slices.Equal(seen["slow"], want) {
		t.Errorf("%v", seen)
	}
	for i := range 8 {
		if key := fmt.Sprint("k", i); !slices.Equal(seen[key], []string{key + ":0", key + ":1"}) {
			t.Errorf("%v", seen)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEachRefusedEffectIsNamed(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "422":
			w.WriteHeader(422)
		case "500":
			w.WriteHeader(500)
		}
	})
	c := client(t, url, nil)
	for _, repeatable := range []bool{true, false} {
		s := call.NewSink(t.Context(), call.SinkOptions{Effects: map[string]call.Effect{"pay": {Stage: "route", Client: c, Repeatable: repeatable}}})
		x := &pipeline.Sending{Msgs: []pipeline.Message{effect(url, "a", "200"), effect(url, "b", "422"), effect(url, "c", "500"), effect("", "d", "200"),
			{Topic: "other", Key: []byte("e"), From: 4}, effect("http://evil.invalid/", "f", "200"), {Topic: "pay", Headers: []pipeline.Header{{Name: call.HeaderURL, Value: []byte(url)}}}}}
		for i := range x.Msgs {
			x.Msgs[i].From = int32(i)
		}
		if err := s.Send(x); err != nil {
			t.Fatal(err)
		}
		got := map[int]pipeline.Code{}
		last := -1
		for _, b := range (<-s.Done()).Bad {
			if b.Msg <= last || int(b.Failure.Index) != b.Msg || b.Failure.Stage != "route" && b.Msg != 4 {
				t.Errorf("%+v", b)
			}
			got[b.Msg], last = b.Failure.Code, b.Msg
		}
		want := map[int]pipeline.Code{1: pipeline.CodeHTTPRejected, 2: pipeline.CodeHTTPAmbiguous, 3: pipeline.CodeHTTPRequest, 4: pipeline.CodeHTTPRequest, 5: pipeline.CodeHTTPRequest}
		if repeatable {
			want[2], want[6] = pipeline.CodeHTTPUnavailable, pipeline.CodeHTTPRequest // no key: not repeatable after all
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("repeatable %v: %v, want %v", repeatable, got, want)
		}
	}
}

func TestFullSinkTakesNothing(t *testing.T) {
	open := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-open })
	s := call.NewSink(t.Context(), call.SinkOptions{MaxInFlight: 3, Effects: map[string]call.Effect{"pay": {Client: client(t, url, nil)}}})
	large := func(n int) *pipeline.Sending {
		x := &pipeline.Sending{}
		for i := range n {
			x.Msgs = append(x.Msgs, effect(url, fmt.Sprint(i), "x"))
		}
		return x
	}
	if err := s.Send(large(5)); err != nil { // alone, it is taken whatever its size
		t.Fatal(err)
	}
	if err := s.Send(large(1)); err != pipeline.ErrFull {
		t.Errorf("%v", err)
	}
	close(open)
	<-s.Done()
	if err := s.Send(large(0)); err != nil {
		t.Errorf("%v", err)
	}
	<-s.Done()
	if err := s.Send(large(3)); err != nil {
		t.Errorf("%v", err)
	}
	<-s.Done()
}

// A slow key fills its lane: what needs that lane is not taken, what needs another is.
func TestAFullLaneHoldsBackItsKeysOnly(t *testing.T) {
	open := make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "slow" {
			<-open
		}
	})
	c := client(t, url, nil)
	s := call.NewSink(t.Context(), call.SinkOptions{Depth: 2, Effects: map[string]call.Effect{"pay": {Client: c, Lanes: 4}, "tell": {Client: c, Lanes: 4}}})
	one := func(topic, key, body string) *pipeline.Sending {
		m := effect(url, key, body)
		m.Topic = topic
		return &pipeline.Sending{Owner: topic + key, Msgs: []pipeline.Message{m}}
	}
	taken := 0
	for s.Send(one("pay", "k", "slow")) == nil {
		if taken++; taken > 4 {
			t.Fatal("the lane has no end")
		}
	}
	if err := s.Send(one("tell", "k", "quick")); err != nil {
		t.Fatalf("a lane of another effect: %v", err)
	}
	<-s.Done()
	others := 0
	for i := range 32 { // some of these keys share the lane
		if s.Send(one("pay", fmt.Sprint(i), "quick")) == nil {
			others++
			<-s.Done()
		}
	}
	if others == 0 {
		t.Error("every key waits for the slow one")
	}
	close(open)
	for range taken {
		<-s.Done()
	}
	if err := s.Send(one("pay", "k", "quick")); err != nil {
		t.Errorf("after it went on: %v", err)
	}
	<-s.Done()
}

func TestCloseWaitsForCallsInWork(t *testing.T) {
	open := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-open })
	s := call.NewSink(t.Context(), call.SinkOptions{Effects: map[string]call.Effect{"pay": {Client: client(t, url, nil)}}})
	if err := s.Send(&pipeline.Sending{Msgs: []pipeline.Message{effect(url, "a", "x")}}); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithCancel(t.Context())
	end()
	if err := s.Close(short); pipeline.CodeOf(err) != pipeline.CodeDrainTimeout {
		t.Errorf("%v", err)
	}
	close(open)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if x := <-s.Done(); len(x.Bad) > 0 {
		t.Errorf("%+v", x.Bad)
	}
}
