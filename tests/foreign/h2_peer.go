// An HTTP/2 server without TLS that prints its port, and a client that reaches it through the proxy at the
// address on standard input. Prints "well" if everything arrived unchanged.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

const large = 1 << 20

var gone = make(chan bool)

func fail(format string, values ...any) {
	fmt.Printf(format+"\n", values...)
	os.Exit(1)
}

func serve(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		http.Error(w, r.Proto, 505)
		return
	}
	switch r.URL.Path {
	case "/until-gone":
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	case "/large":
		w.Write(bytes.Repeat([]byte("x"), large))
	case "/echo":
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(200)
		controller := http.NewResponseController(w)
		controller.EnableFullDuplex()
		controller.Flush()
		piece, sum := make([]byte, 10_000), 0
		for {
			n, err := r.Body.Read(piece)
			w.Write(piece[:n])
			controller.Flush()
			sum += n
			if err != nil {
				break
			}
		}
		w.Header().Set("X-Sum", strconv.Itoa(sum)+r.Trailer.Get("X-Requested"))
	default:
		fmt.Fprint(w, r.Method, " ", r.URL.Path, " ", r.Host)
	}
}

func main() {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go (&http.Server{Handler: http.HandlerFunc(serve), Protocols: &protocols}).Serve(listener)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	base := "http://" + strings.TrimSpace(line)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	get := func(path string) string {
		response, err := client.Get(base + path)
		if err != nil {
			fail("%s: %v", path, err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != 200 || response.ProtoMajor != 2 {
			fail("%s: %v %s %s %s", path, err, response.Status, response.Proto, body)
		}
		return string(body)
	}

	// Many concurrently.
	var all sync.WaitGroup
	for n := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			path := fmt.Sprintf("/%d", n)
			if got := get(path); got != "GET "+path+" "+strings.TrimPrefix(base, "http://") {
				fail("%s: %s", path, got)
			}
		}()
	}
	all.Wait()
	if got := get("/large"); got != strings.Repeat("x", large) {
		fail("/large: %d bytes", len(got))
	}

	// Both directions concurrently, with trailers.
	reader, writer := io.Pipe()
	request, _ := http.NewRequest("POST", base+"/echo", reader)
	request.Trailer = http.Header{"X-Requested": nil}
	response, err := client.Do(request)
	if err != nil {
		fail("/echo: %v", err)
	}
	piece := make([]byte, 50_000)
	for n := range 20 {
		sent := bytes.Repeat([]byte{byte(n)}, len(piece))
		go writer.Write(sent)
		if _, err := io.ReadFull(response.Body, piece); err != nil || !bytes.Equal(piece, sent) {
			fail("/echo: piece %d: %v", n, err)
		}
	}
	request.Trailer.Set("X-Requested", "!")
	writer.Close()
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		fail("/echo: %v, and %d bytes", err, len(rest))
	}
	if got := response.Trailer.Get("X-Sum"); got != "1000000!" {
		fail("/echo: the trailer says %q", got)
	}

	// A cancelled request, of which its server is told, and one after it.
	ctx, cancel := context.WithCancel(context.Background())
	request, _ = http.NewRequestWithContext(ctx, "GET", base+"/until-gone", nil)
	response, err = client.Do(request)
	if err != nil {
		fail("/until-gone: %v", err)
	}
	cancel()
	if _, err := io.ReadAll(response.Body); err == nil {
		fail("a request that was given up has ended well")
	}
	<-gone
	get("/last")
	fmt.Println("well")
}
