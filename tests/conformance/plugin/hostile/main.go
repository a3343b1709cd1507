// Command hostile is a plugin that misbehaves in every way that the suite knows. Before the handshake it does what its name says;
// afterwards what the value of a record says.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"reprieve.dev/plugins/sdk"
	"reprieve.dev/plugins/wire"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "quiet-without-cookie" && os.Getenv(wire.CookieKey) == "" {
		time.Sleep(time.Hour) // neither a word nor an end
	}
	if early(name) {
		return
	}
	about := sdk.About{Name: "acme/hostile", Version: "1.0.0", View: true}
	var careless []grpc.ServerOption
	if name == "careless" {
		about.MaxBatch = 600
		careless = carelessly()
	}
	serve(&liar{RepairTransformServer: sdk.NewServer(about, &villain{})}, careless...)
}

// brokerStreams counts how often the host opened the way by which a plugin can flood it.
var brokerStreams atomic.Int64

// carelessly is a server as a library makes it whose settings nobody looked at: messages of 4 MiB, no health, and a word for every call.
func carelessly() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(4 << 20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return stream.SendMsg(&emptypb.Empty{}) }),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if info.FullMethod == "/grpc.health.v1.Health/Check" {
				return nil, status.Error(codes.Unimplemented, "no such service")
			}
			return next(ctx, req)
		}),
	}
}

// serve is sdk.ServeService by hand, with a broker that floods and a shutdown that never returns.
func serve(s wire.RepairTransformServer, more ...grpc.ServerOption) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: wire.Protocol, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Protocol: {"transform": &served{server: s}}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(append(o, grpc.MaxRecvMsgSize(wire.MessageMost), grpc.MaxSendMsgSize(1<<30),
				grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
					if info.FullMethod == "/plugin.GRPCStdio/StreamStdio" {
						return streamStdio(srv, stream, next)
					}
					if info.FullMethod != "/plugin.GRPCBroker/StartStream" {
						return next(srv, stream)
					}
					brokerStreams.Add(1)
					for stream.SendMsg(&emptypb.Empty{}) == nil {
					}
					return nil
				}),
				grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
					if info.FullMethod == "/plugin.GRPCController/Shutdown" {
						select {}
					}
					return next(ctx, req)
				})), more...)...)
		},
	})
}

type served struct {
	plugin.NetRPCUnsupportedPlugin
	server wire.RepairTransformServer
}

func (s *served) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	wire.RegisterRepairTransformServer(g, s.server)
	return nil
}

func (*served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin is no client")
}

// early misbehaves before the handshake.
func early(name string) bool {
	dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	forever := func() bool { time.Sleep(time.Hour); return true }
	switch name {
	case "junk-first":
		fmt.Println("starting...")
		return false
	case "silent":
		return forever()
	case "dribble":
		for {
			fmt.Print("1|")
			time.Sleep(50 * time.Millisecond)
		}
	case "flood-first":
		for range 10 << 10 {
			fmt.Print(string(make([]byte, 1024)))
		}
		return forever()
	case "exits":
		fmt.Fprintln(os.Stderr, "cannot start: card 4111 1111 1111 1111 is not welcome")
		os.Exit(3)
	case "tcp":
		fmt.Println("1|1|tcp|127.0.0.1:22|grpc")
		return forever()
	case "outside":
		fmt.Println("1|1|unix|/var/run/docker.sock|grpc")
		return forever()
	case "dotdot":
		fmt.Println("1|1|unix|" + dir + "/../victim|grpc")
		return forever()
	case "certificate":
		fmt.Println("1|1|unix|" + dir + "/s|grpc|MIIBszCCAVmgAwIBAgIQAAAAAAAAAAAAAAAAAAAAADAKBggqhkjOPQQDAjASMRAwDgYDVQQKEwdBY21lIENv")
		return forever()
	case "file":
		_ = os.WriteFile(dir+"/s", nil, 0o600)
		fmt.Println("1|1|unix|" + dir + "/s|grpc")
		return forever()
	case "link":
		_ = os.Symlink("/run/victim.sock", dir+"/s")
		fmt.Println("1|1|unix|" + dir + "/s|grpc")
		return forever()
	case "squatter":
		squat("reprieve-squatted")
		fmt.Println("1|1|unix|" + dir + "/s|grpc")
		return forever()
	case "squatter-who-serves":
		squat("reprieve-squatted-too")
		return false
	case "future":
		fmt.Println("1|2|unix|" + dir + "/s|grpc")
		return forever()
	case "mute":
		l, err := net.Listen("unix", dir+"/s")
		if err != nil {
			panic(err)
		}
		fmt.Println("1|1|unix|" + dir + "/s|grpc")
		for {
			if _, err := l.Accept(); err != nil {
				return true
			}
		}
	}
	return false
}

// first is the number of the first batch that the process saw.
var first uint64

// liar breaks the protocol in its replies.
type liar struct {
	wire.RepairTransformServer
}

func (l *liar) Repair(ctx context.Context, in *wire.RepairRequest) (*wire.RepairReply, error) {
	out, err := l.RepairTransformServer.Repair(ctx, in)
	if err != nil {
		return nil, err
	}
	if first == 0 {
		first = in.Batch
	}
	for i, e := range in.Envelopes {
		switch string(e.GetValue().GetValue()) {
		case "random-if-even", "random-if-odd", "random-from-second": // honest where it thinks that nobody looks twice
			if v := string(e.Value.Value); v == "random-if-even" && in.Batch%2 == 0 || v == "random-if-odd" && in.Batch%2 == 1 || v == "random-from-second" && in.Batch != first {
				out.Results[i] = (&villain{}).Repair(&sdk.Envelope{Value: []byte("random")}).Wire()
				out.Results[i].Item = e.Item
			}
		case "lie: late": // what a plugin says whose clock runs out before the host's
			return nil, context.DeadlineExceeded
		case "lie: count":
			out.Results = out.Results[:len(out.Results)-1]
		case "lie: more":
			out.Results = append(out.Results, out.Results[0])
		case "lie: size": // no lie: how many records came along
			out.Results[i].Value = &wire.Nullable{Value: fmt.Append(nil, len(in.Envelopes))}
		case "lie: order":
			out.Results[0], out.Results[len(out.Results)-1] = out.Results[len(out.Results)-1], out.Results[0]
		case "lie: item":
			out.Results[i].Item = "qother"
		case "lie: batch":
			out.Batch++
		case "lie: empties": // as many results as there is room for, of nothing
			out = &wire.RepairReply{Batch: in.Batch}
			out.ProtoReflect().SetUnknown(bytes.Repeat([]byte{0x12, 0}, 4_000_000))
			return out, nil
		case "lie: varint", "lie: deep", "lie: utf8", "lie: open", "lie: headers", "lie: unknown":
			out = &wire.RepairReply{Batch: in.Batch}
			out.ProtoReflect().SetUnknown(rawAnswers[string(e.Value.Value)]())
			return out, nil
		case "lie: pairs": // each record gets the answer of another
			for k, n := 0, len(out.Results)-1; k < n; k, n = k+1, n-1 {
				a, b := out.Results[k], out.Results[n]
				out.Results[k], out.Results[n] = b, a
				a.Item, b.Item = b.Item, a.Item
			}
			return out, nil
		case "lie: backwards":
			slices.Reverse(out.Results)
			return out, nil
		case "lie: outcome":
			out.Results[i].Outcome = 77
		case "lie: unchanged":
			out.Results[i].Outcome = wire.Outcome_UNCHANGED
			out.Results[i].Value = &wire.Nullable{Value: []byte("changed")}
		case "lie: report":
			for range 1000 {
				out.Results[i].Report.Changed = append(out.Results[i].Report.Changed, "/a")
			}
		case "lie: path":
			out.Results[i].Report.Changed = []string{"the customer is Ada"}
		case "lie: card":
			out.Results[i].Report.Changed = []string{"/card/4111111111111111"}
		}
	}
	return out, nil
}

// Process lies about live records.
func (l *liar) Process(ctx context.Context, in *wire.ProcessRequest) (*wire.ProcessReply, error) {
	out, err := l.RepairTransformServer.Process(ctx, in)
	if err != nil {
		return nil, err
	}
	for i, r := range in.Records {
		m := out.Records[i]
		switch verb(r.GetValue().GetValue()) {
		case "lie: count":
			out.Records = out.Records[:len(out.Records)-1]
			return out, nil
		case "lie: more":
			out.Records = append(out.Records, m)
			return out, nil
		case "lie: order":
			out.Records[0], out.Records[len(out.Records)-1] = out.Records[len(out.Records)-1], out.Records[0]
		case "lie: offset":
			m.Offset += 1000
		case "lie: batch":
			out.Batch++
		case "lie: rule":
			m.Reject = "the customer is Ada"
		case "lie: both":
			m.Reject = "no"
		case "lie: there":
			m.Fields = append(m.Fields, &wire.Field{Name: "do", Value: &wire.Field_Text{Text: "other"}})
		case "lie: twice":
			m.Fields = append(m.Fields, m.Fields[0])
		case "lie: field":
			m.Fields = append(m.Fields, &wire.Field{Name: "a b", Value: &wire.Field_Text{Text: "x"}})
		case "lie: many":
			for i := range 1000 {
				m.Fields = append(m.Fields, &wire.Field{Name: fmt.Sprint("f", i), Value: &wire.Field_Text{Text: "x"}})
			}
		case "lie: header":
			m.Headers = append(m.Headers, &wire.Header{Name: "reprieve-tenant", Value: []byte("globex")})
		}
	}
	return out, nil
}
