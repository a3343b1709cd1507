package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	gorunner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
)

// process is one running plugin.
type process struct {
	ref    string
	runner *runner
	conn   *grpc.ClientConn
	client wire.RepairTransformClient
	about  *wire.DescribeReply
	stdio  chan struct{}
	codec  *frugal
	served int // records

	calls  atomic.Int32 // that are on their way
	before atomic.Int64 // what it had computed when the last one ended, in ns
}

// start starts the program, shakes hands and asks what it is. Codes: ERR_PLUGIN_SANDBOX, ERR_PLUGIN_HANDSHAKE, ERR_PLUGIN_REFUSED.
func (h *Host) start(ctx context.Context, pkg *loaded) (_ *process, err error) {
	ref := pkg.Descriptor.Ref()
	r := &runner{spawner: h.spawner, program: pkg.sealed, diary: &diary{log: h.log.With("plugin", ref), redact: h.redact, words: h.wordsOf(ref)},
		own: pkg.Artifact.Env, spec: pkg.spec(h.o.Limits), chatter: &h.chatter}
	p := &process{ref: ref, runner: r, stdio: make(chan struct{}), codec: newFrugal()}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	start, cancel := context.WithTimeout(ctx, h.o.Start)
	defer cancel()
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{ProtocolVersion: wire.Protocol, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.Protocol: {}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true, StartTimeout: h.o.Start, Logger: hclog.NewNullLogger(), UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: h.room.dir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (gorunner.Runner, error) {
			r.env, r.dir = cmd.Env, dir
			return r, nil
		},
	})
	type answer struct {
		addr net.Addr
		err  error
	}
	started := make(chan answer, 1)
	go func() {
		addr, err := client.Start()
		started <- answer{addr, err}
	}()
	var a answer
	select {
	case a = <-started:
	case <-ctx.Done(): // the start ends by itself at its limit; kill what it has started by then
		a = <-started
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, p.startFailure(a.err, start.Err() != nil)
	}
	p.conn, err = grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.running.Dial(ctx, r.socket) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(int(h.o.Output)), grpc.MaxCallSendMsgSize(wire.MessageMost), grpc.ForceCodecV2(p.codec)),
		grpc.WithUnaryInterceptor(p.busy), grpc.WithMaxHeaderListSize(64<<10), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginHandshake, ref, "%w", err)
	}
	p.client = wire.NewRepairTransformClient(p.conn)
	go p.drainStdio(context.WithoutCancel(ctx))
	go p.watchRest()
	if p.about, err = p.client.Describe(start, &wire.DescribeRequest{}); err != nil {
		return nil, p.startFailure(errors.New("it does not say what it is: "+r.diary.clean(err.Error())), false)
	}
	if got := p.about.Name + "@" + p.about.Version; got != ref {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, ref, "the program says that it is %s", r.diary.clean(got)).With("build the program from the same version as plugin.yaml")
	}
	if what := p.delivers(pkg.Descriptor.Delivers); what != "" {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, ref, "the program says that it delivers %s, plugin.yaml says %s", r.diary.clean(what), strings.Join(pkg.Descriptor.Delivers, ", ")).
			With("let both say the same")
	}
	return p, nil
}

// delivers is what the program says that it delivers, if that is something else.
func (p *process) delivers(want []string) (other string) {
	got := p.about.Delivers
	if len(got) == 0 {
		got = []string{DeliversTransform}
	}
	a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if slices.Equal(a, b) {
		return ""
	}
	return strings.Join(a, ", ")
}

// startFailure says why a start failed, with what the plugin printed.
func (p *process) startFailure(err error, late bool) error {
	if pipeline.CodeOf(err) == pipeline.CodePluginSandbox {
		return err
	}
	r := p.runner
	r.mu.Lock()
	first := r.first
	r.mu.Unlock()
	if r.running != nil {
		r.running.Kill()
		<-r.running.Gone()
		r.drained.Wait()
	}
	switch {
	case late:
		return pipeline.Errorf(pipeline.CodePluginHandshake, p.ref, "it printed no handshake within the start limit").
			With("The plugin has to serve and print its handshake at once; the limit is sandbox.start in the worker file.")
	case first != "":
		return pipeline.Errorf(pipeline.CodePluginHandshake, p.ref, "it printed %q before the handshake", first).
			With("Standard output belongs to the protocol: print to standard error.")
	}
	text := r.diary.clean(err.Error())
	if r.running != nil && (strings.Contains(text, "exited before") || strings.Contains(text, "Failed to read any lines")) {
		text = "it ended before it served (" + r.exit() + ")"
	}
	if last := r.diary.last(); last != "" {
		text += fmt.Sprintf("; it last wrote %q", last)
	}
	return pipeline.Errorf(pipeline.CodePluginHandshake, p.ref, "%s", text)
}

// frameCosts is what a message that says nothing is counted as, in bytes.
const frameCosts = 1024

// drainStdio reads what go-plugin's own server keeps of standard output and standard error: without a reader such a plugin would
// hang once its pipe is full. The message is {channel = 1; data = 2}; its generated type is internal to go-plugin.
func (p *process) drainStdio(ctx context.Context) {
	defer close(p.stdio)
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/plugin.GRPCStdio/StreamStdio", grpc.MaxCallRecvMsgSize(1<<20))
	if err != nil || stream.SendMsg(&emptypb.Empty{}) != nil || stream.CloseSend() != nil {
		return // plugins in other languages have no such service
	}
	for {
		var m emptypb.Empty
		if stream.RecvMsg(&m) != nil {
			return
		}
		b := []byte(m.ProtoReflect().GetUnknown())
		p.runner.diary.count(frameCosts + len(b)) // an empty message costs the host as well
		out := false                              // the bytes are of standard output
		for len(b) > 0 {
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				break
			}
			b = b[n:]
			if num == 1 && typ == protowire.VarintType {
				channel, _ := protowire.ConsumeVarint(b)
				out = channel == 1
			}
			if num == 2 && typ == protowire.BytesType {
				data, n := protowire.ConsumeBytes(b)
				if n < 0 {
					break
				}
				if out {
					p.runner.chatter.Add(int64(len(data)))
				}
				p.runner.diary.line(data[:min(len(data), lineMost)], "stdio")
				b = b[n:]
				continue
			}
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				break
			}
			b = b[n:]
		}
	}
}

// gone tells whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.runner.running.Gone():
		return true
	default:
		return false
	}
}

// end kills the process and frees everything of it. It returns when nothing is left.
func (p *process) end() {
	if p.runner.running != nil {
		p.runner.running.Kill()
	}
	if p.conn != nil {
		p.conn.Close()
		<-p.stdio
	}
	p.runner.end()
}
