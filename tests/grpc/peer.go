// A gRPC server and client, made with Go's library.
//
//	grpc_peer serve        prints its port, then the method of each waiting call, or why a call was cancelled;
//	                       each line of standard input is the status of the health service from then on
//	grpc_peer ask ADDRESS  runs the commands on standard input, and prints one line for each
//
// Messages are plain bytes, so no code has to be generated.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Size of each message of a list, in bytes.
const piece = 8 << 10

// The window of a stream. A fixed one keeps the library from measuring the connection and growing it.
const window = 64 << 10

// text is a message of plain text; other messages are those of the health service.
type codec struct{}

type text struct{ string }

func (codec) Name() string { return "proto" }

func (codec) Marshal(message any) ([]byte, error) {
	if plain, ok := message.(*text); ok {
		return []byte(plain.string), nil
	}
	return proto.Marshal(message.(proto.Message))
}

func (codec) Unmarshal(bytes []byte, message any) error {
	if plain, ok := message.(*text); ok {
		plain.string = string(bytes)
		return nil
	}
	return proto.Unmarshal(bytes, message.(proto.Message))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Number of list messages that windows have let the server send.
var sent atomic.Int64

func answer(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if method == "/test/refuse" {
		return status.Error(codes.PermissionDenied, "not for you")
	}
	var asked text
	if err := stream.RecvMsg(&asked); err != nil {
		return err
	}
	switch method {
	case "/test/unary":
		return stream.SendMsg(&asked)
	case "/test/fail":
		stream.SetHeader(metadata.Pairs("x-begun", "yes"))
		if err := stream.SendMsg(&asked); err != nil {
			return err
		}
		stream.SetTrailer(metadata.Pairs("x-sum", "7", "x-bytes-bin", "\x00\xff"))
		return status.Error(codes.FailedPrecondition, "100 % \"wrong\",\nand more")
	case "/test/list":
		count, err := strconv.Atoi(asked.string)
		fail(err)
		for n := range count {
			if err := stream.SendMsg(&text{fmt.Sprintf("%d:%s", n, strings.Repeat("x", piece))}); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	case "/test/sent":
		return stream.SendMsg(&text{strconv.FormatInt(sent.Load(), 10)})
	case "/test/silent":
		fmt.Println(method)
		<-stream.Context().Done()
		return stream.Context().Err()
	case "/test/echo", "/test/echo-too":
		for {
			if err := stream.SendMsg(&asked); err != nil {
				return err
			}
			if err := stream.RecvMsg(&asked); err == io.EOF {
				return nil
			} else if err != nil {
				fmt.Printf("%s: %v\n", method, stream.Context().Err())
				return err
			}
		}
	}
	return status.Error(codes.Unimplemented, method)
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	server := grpc.NewServer(grpc.ForceServerCodec(codec{}), grpc.UnknownServiceHandler(answer))
	state := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			value := grpc_health_v1.HealthCheckResponse_ServingStatus_value[lines.Text()]
			state.SetServingStatus("", grpc_health_v1.HealthCheckResponse_ServingStatus(value))
		}
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	fail(server.Serve(listener))
}

// Describes how a call ended.
func ended(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "OK"
	}
	return fmt.Sprintf("%v %q", status.Code(err), status.Convert(err).Message())
}

type call struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

func ask(address string) {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(16*window))
	fail(err)
	open := map[string]call{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := append(strings.SplitN(lines.Text(), " ", 3), "", "")
		what, name, rest := words[0], words[1], words[2]
		stream := open[name]
		switch what {
		case "call": // METHOD TEXT: a call with one message each way
			var said text
			var header, trailer metadata.MD
			err := connection.Invoke(context.Background(), "/test/"+name, &text{rest}, &said,
				grpc.Header(&header), grpc.Trailer(&trailer))
			fmt.Println(ended(err), said.string, header.Get("x-begun"), trailer.Get("x-sum"))
		case "within": // METHOD TIME: the same, with this deadline
			time, err := time.ParseDuration(rest)
			fail(err)
			ctx, cancel := context.WithTimeout(context.Background(), time)
			err = connection.Invoke(ctx, "/test/"+name, &text{}, &text{})
			cancel()
			fmt.Println(ended(err))
		case "open": // NAME METHOD: a call with any number of messages each way
			ctx, cancel := context.WithCancel(context.Background())
			both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
			stream, err := connection.NewStream(ctx, both, "/test/"+rest)
			open[name] = call{stream, cancel}
			fmt.Println(ended(err))
		case "send": // NAME TEXT
			fmt.Println(ended(stream.SendMsg(&text{rest})))
		case "receive": // NAME
			var said text
			if err := stream.RecvMsg(&said); err != nil {
				fmt.Printf("ended %s %s %x\n", ended(err), stream.Trailer().Get("x-sum"), stream.Trailer().Get("x-bytes-bin"))
			} else {
				fmt.Println(said.string)
			}
		case "list": // NAME: all remaining messages, numbered from 0
			count := 0
			for {
				var said text
				if err = stream.RecvMsg(&said); err != nil {
					break
				}
				if !strings.HasPrefix(said.string, strconv.Itoa(count)+":x") {
					err = fmt.Errorf("message %d begins %.20q", count, said.string)
					break
				}
				count++
			}
			fmt.Println(count, ended(err))
		case "finish": // NAME: no more messages to the server
			fmt.Println(ended(stream.CloseSend()))
		case "cancel": // NAME
			stream.cancel()
			fmt.Println("OK")
		default:
			fail(fmt.Errorf("%q is nothing that can be asked", what))
		}
	}
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve()
	case len(os.Args) == 3 && os.Args[1] == "ask":
		ask(os.Args[2])
	default:
		fail(errors.New("say 'serve', or 'ask ADDRESS'"))
	}
}
