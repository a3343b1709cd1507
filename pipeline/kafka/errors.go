package kafka

import (
	"context"
	"errors"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// codeOf sorts the client's errors about us by what a person has to do.
func codeOf(e clientError) pipeline.Code {
	switch e.Code() {
	case client.ErrUnknownTopicOrPart, client.ErrUnknownTopic, client.ErrUnknownPartition, client.ErrUnknownTopicID:
		return pipeline.CodeTopicMissing
	case client.ErrAuthentication, client.ErrSaslAuthenticationFailed, client.ErrTopicAuthorizationFailed,
		client.ErrGroupAuthorizationFailed, client.ErrClusterAuthorizationFailed, client.ErrUnsupportedSaslMechanism,
		client.ErrTransactionalIDAuthorizationFailed, client.ErrSsl, client.ErrSecurityDisabled:
		return pipeline.CodeBrokerAuth
	case client.ErrInvalidArg, client.ErrInvalidConfig, client.ErrConflict:
		return pipeline.CodeBrokerConfig
	case client.ErrFenced, client.ErrProducerFenced, client.ErrInvalidProducerEpoch:
		return pipeline.CodeTxFenced
	case client.ErrAllBrokersDown, client.ErrTransport, client.ErrResolve, client.ErrTimedOut, client.ErrTimedOutQueue,
		client.ErrWaitCoord, client.ErrRequestTimedOut, client.ErrCoordinatorNotAvailable, client.ErrNotCoordinator,
		client.ErrCoordinatorLoadInProgress, client.ErrBrokerNotAvailable, client.ErrNetworkException,
		client.ErrDestroy:
		return pipeline.CodeBrokerUnreachable
	}
	return pipeline.CodeBrokerFatal
}

// credentials tells whether brokers refuse who we are, as against one thing that we ask for.
func credentials(e clientError) bool {
	switch e.Code() {
	case client.ErrAuthentication, client.ErrSaslAuthenticationFailed, client.ErrUnsupportedSaslMechanism, client.ErrSsl:
		return true
	}
	return false
}

// failed wraps an error of the client. Its text never holds a payload or a password.
func failed(err error, place, doing string) *pipeline.Error {
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		return e
	}
	code := pipeline.CodeBrokerFatal
	if e, ok := errors.AsType[clientError](err); ok {
		code = codeOf(e)
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code = pipeline.CodeBrokerUnreachable
	}
	return &pipeline.Error{Code: code, Place: place, Text: doing + ": " + err.Error(), Cause: err}
}

// sendCode sorts the refusal of one message.
func sendCode(e clientError, m *pipeline.Message) pipeline.Code {
	switch e.Code() {
	case client.ErrMsgSizeTooLarge, client.ErrInvalidMsgSize, client.ErrRecordListTooLarge:
		return pipeline.CodeTooLarge
	case client.ErrUnknownTopicOrPart, client.ErrUnknownTopic, client.ErrUnknownPartition, client.ErrTopicException,
		client.ErrUnknownTopicID:
		return pipeline.CodeSendTopicMissing
	case client.ErrTopicAuthorizationFailed, client.ErrClusterAuthorizationFailed,
		client.ErrTransactionalIDAuthorizationFailed, client.ErrAuthentication, client.ErrSaslAuthenticationFailed:
		return pipeline.CodeSendDenied
	case client.ErrMsgTimedOut, client.ErrTimedOut, client.ErrTimedOutQueue, client.ErrRequestTimedOut,
		client.ErrPurgeQueue, client.ErrPurgeInflight:
		return pipeline.CodeSendTimeout
	case client.ErrInvalidRecord, client.ErrInvalidMsg: // older brokers answer the second, which looks like line noise
		if m.Key == nil {
			return pipeline.CodeSendKeyless
		}
	}
	return pipeline.CodeSendFailed
}

// refusal is the failure of one message. Topic is the identifying param; sizes and the broker's code help a person.
func refusal(err error, m *pipeline.Message) pipeline.Failure {
	e, ok := errors.AsType[clientError](err)
	if !ok {
		return pipeline.Failure{Index: m.From, Stage: "send", Code: pipeline.CodeSendFailed,
			Params: []pipeline.Param{pipeline.Str("topic", m.Topic)}, Cause: err}
	}
	f := pipeline.Failure{Index: m.From, Stage: "send", Code: sendCode(e, m), Cause: err,
		Params: []pipeline.Param{pipeline.Str("topic", m.Topic), pipeline.Str("client", e.Code().String())}}
	if f.Code == pipeline.CodeTooLarge {
		f.Params = append(f.Params, pipeline.Int("bytes", size(m)))
	}
	return f
}

// condemns tells whether a broker refuses a whole produce batch for the sake of some of its messages.
func condemns(err error) bool {
	e, ok := errors.AsType[clientError](err)
	if !ok {
		return false
	}
	switch e.Code() {
	case client.ErrMsgSizeTooLarge, client.ErrInvalidMsgSize, client.ErrRecordListTooLarge, client.ErrInvalidRecord,
		client.ErrInvalidDifferentRecord, client.ErrInvalidMsg:
		return true
	}
	return false
}

// size is what a message takes at least on the wire.
func size(m *pipeline.Message) int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value) + 2
	}
	return n
}
