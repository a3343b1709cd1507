package kafka

import (
	"testing"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

func TestOnlySomeErrorsEndASource(t *testing.T) {
	for code, want := range map[client.ErrorCode]pipeline.Code{
		client.ErrAuthentication:           pipeline.CodeBrokerAuth,
		client.ErrSaslAuthenticationFailed: pipeline.CodeBrokerAuth,
		client.ErrGroupAuthorizationFailed: pipeline.CodeBrokerAuth,
		client.ErrUnknownTopicOrPart:       pipeline.CodeTopicMissing,
		client.ErrAllBrokersDown:           "",
		client.ErrTransport:                "",
		client.ErrTimedOut:                 "",
	} {
		s := &Source{place: "main", logs: newLogs(nil, "main")}
		if got := pipeline.CodeOf(s.judge(&fault{code: code, text: "x"}, "")); got != want {
			t.Errorf("%v ends the source with %q, want %q", code, got, want)
		}
	}
	s := &Source{place: "main", logs: newLogs(nil, "main")}
	if got := pipeline.CodeOf(s.judge(&fault{code: client.ErrFencedInstanceID, text: "x", fatal: true}, "")); got != pipeline.CodeBrokerFatal {
		t.Errorf("a fatal error gives %q", got)
	}
}
