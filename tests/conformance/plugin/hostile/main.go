// Command hostile is a plugin that misbehaves in every way that the suite knows. Before the handshake it does what its name says;
// afterwards what the value of a record says.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"reprieve.dev/plugins/sdk"
	"reprieve.dev/plugins/wire"
)

func main() {
	if early(filepath.Base(os.Args[0])) {
		return
	}
	serve(&liar{RepairTransformServer: sdk.NewServer(sdk.About{Name: "acme/hostile", Version: "1.0.0", View: true}, &villain{})})
}

// brokerStreams counts how often the host opened the way by which a plugin can flood it.
var brokerStreams atomic.Int64

// serve is sdk.ServeService by hand, with a broker that floods and a shutdown that never returns.
func serve(s wire.RepairTransformServer) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: wire.Protocol, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Protocol: {"transform": &served{server: s}}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(wire.MessageMost), grpc.MaxSendMsgSize(1<<30),
				grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
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
				}))...)
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

// liar breaks the protocol in its replies.
type liar struct {
	wire.RepairTransformServer
}

func (l *liar) Repair(ctx context.Context, in *wire.RepairRequest) (*wire.RepairReply, error) {
	out, err := l.RepairTransformServer.Repair(ctx, in)
	if err != nil {
		return nil, err
	}
	for i, e := range in.Envelopes {
		switch string(e.GetValue().GetValue()) {
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
