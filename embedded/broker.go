package embedded

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"reprieve.dev/pipeline"
)

// BrokerConfig says where a broker keeps its data and where it listens.
type BrokerConfig struct {
	Dir     string        // created if it is missing; only one broker may use it
	Port    int           // on 127.0.0.1; 0 is any free one
	Joining time.Duration // the longest that a group waits for a member to join again; 0 is 20 s, less than a usual session
	Configs map[string]string
	Log     *slog.Logger
}

// Broker is a single Kafka broker in this process. Topics, records, groups, offsets and transactions outlive Close.
type Broker struct {
	c    *kfake.Cluster
	addr string
	lock *os.File
}

// StartBroker starts a broker. Topics are created by an administrator only, as in production. Codes: ERR_ENVIRONMENT (the
// folder is in use or damaged, the port is taken).
func StartBroker(conf BrokerConfig) (*Broker, error) {
	if conf.Dir == "" {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, "embedded broker", "it needs a folder for its data").
			With("Name a folder; without one the broker would keep everything in memory.")
	}
	if err := os.MkdirAll(conf.Dir, 0o700); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "%w", err)
	}
	lock, err := lockFile(filepath.Join(conf.Dir, "broker.lock"))
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "the folder is in use by another broker: %w", err).
			With("Stop the other process, or name another folder.")
	}
	configs := map[string]string{"group.consumer.heartbeat.interval.ms": "500"}
	for k, v := range conf.Configs {
		configs[k] = v
	}
	opts := []kfake.Opt{
		kfake.DataDir(filepath.Join(conf.Dir, "data")),
		kfake.ClusterID("reprieve-embedded"),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(configs),
		kfake.WithLogger(brokerLog{conf.Log}),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return net.Listen(network, fmt.Sprintf("127.0.0.1:%d", conf.Port))
		}),
	}
	if conf.Port != 0 {
		opts = append(opts, kfake.Ports(conf.Port))
	} else {
		opts = append(opts, kfake.NumBrokers(1))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		_ = lock.Close()
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "the embedded broker does not start: %w", err).
			With("Choose another port or folder.")
	}
	// A member that dies while it joins may have no session that ends: its group waits for the rebalance timeout, five minutes,
	// which every later member begins anew, and those that wait meanwhile lose their own sessions.
	most := cmp.Or(conf.Joining, 20*time.Second)
	c.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		j := r.(*kmsg.JoinGroupRequest)
		j.RebalanceTimeoutMillis = min(j.RebalanceTimeoutMillis, int32(most.Milliseconds()))
		return nil, nil, false
	})
	return &Broker{c: c, addr: strings.Join(c.ListenAddrs(), ","), lock: lock}, nil
}

// Bootstrap is what goes into bootstrap.servers.
func (b *Broker) Bootstrap() string { return b.addr }

// Compact runs what a real broker's log cleaner does now and then.
func (b *Broker) Compact() { b.c.Compact() }

// ApplyRetention deletes what is older than its topic allows.
func (b *Broker) ApplyRetention() { b.c.ApplyRetention() }

// Close stops the broker and keeps its data.
func (b *Broker) Close() error {
	b.c.Close()
	return b.lock.Close()
}

// brokerLog passes on what an operator should see.
type brokerLog struct{ to *slog.Logger }

func (l brokerLog) Logf(level kfake.LogLevel, format string, args ...any) {
	if l.to == nil || level > kfake.LogLevelWarn {
		return
	}
	text := fmt.Sprintf(format, args...)
	if level == kfake.LogLevelError {
		l.to.Error(text, "part", "embedded broker")
		return
	}
	l.to.Debug(text, "part", "embedded broker")
}
