package embedded_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"reprieve.dev/embedded"
)

// A worker that is killed while it joins must not keep its group: the next one gets its partitions, however often that happens.
func TestAMemberThatDiesWhileItJoinsIsForgotten(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir(), Joining: 1500 * time.Millisecond, Configs: map[string]string{"group.min.session.timeout.ms": "100"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	first := &member{c: dial(t, b)}
	if err := first.join(ctx, "v1"); err != nil {
		t.Fatal(err)
	}
	// The next ones wait for the first, which does not join again, and die meanwhile. An answer to the dead starts a session or
	// does not, as it happens: of so many, some have none.
	const many = 16
	var killed [many]*member
	answers := make(chan error, many)
	for i := range killed {
		killed[i] = &member{c: dial(t, b)}
		go func() { answers <- killed[i].join(ctx, "v1") }()
	}
	asks := kadm.NewClient(dial(t, b))
	for {
		groups, err := asks.DescribeGroups(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		if len(groups["g"].Members) == 1+many {
			break
		}
	}
	for _, m := range killed {
		m.c.Close()
	}
	for range killed {
		<-answers
	}

	third := &member{c: dial(t, b)}
	for _, version := range []string{"v1", "v2", "v3"} {
		err := third.join(ctx, version)
		for errors.Is(err, kerr.UnknownMemberID) { // this test was slower than its session
			third.id = ""
			err = third.join(ctx, version)
		}
		if err != nil {
			t.Fatalf("joining with %s: %v", version, err)
		}
	}
}

// member joins a group as a client does, without its heartbeats.
type member struct {
	c  *kgo.Client
	id string
}

func (m *member) join(ctx context.Context, version string) error {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = "g", m.id, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 3000, 300_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte(version)
	r.Protocols = append(r.Protocols, p)
	answer, err := r.RequestWith(ctx, m.c)
	if err != nil {
		return err
	}
	if m.id == "" {
		m.id = answer.MemberID
		if errors.Is(kerr.ErrorForCode(answer.ErrorCode), kerr.MemberIDRequired) {
			return m.join(ctx, version)
		}
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}
