package zkconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

// Report is what the servers of a list answered, each asked on its own.
type Report struct {
	// Servers are in the order of the list.
	Servers []Server
	// Members are the voting servers of the ensemble, as the servers themselves say: host:quorum port:election port. Empty for a
	// single server, and where nobody has told.
	Members []string
}

// Server is what one server answered.
type Server struct {
	Address  string   // host:port, as in the settings
	Resolved []string // of the host's name
	// Err is why it can't be used: nil if it has given us a session, with our credentials.
	Err *batch.Error
	// Took is how long the session and one read took.
	Took time.Duration

	// What the server says of itself; empty where the word srvr isn't allowed.
	Version     string
	Mode        string  // standalone, leader, follower, observer
	Latency     float64 // mean over all requests since it started, in milliseconds
	Outstanding int64   // requests that wait
	Connections int64
}

// Limits from which a server counts as overloaded.
const (
	manyOutstanding = 100
	longLatency     = 100.0 // milliseconds
)

// Diagnose asks each server of the list who it is and how it is, all at once, and opens a session with each for a moment. It ends
// with ctx. Nothing is changed.
func Diagnose(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.complete(); err != nil {
		return Report{}, err
	}
	r := Report{Servers: make([]Server, len(cfg.Servers))}
	members := make([][]string, len(cfg.Servers))
	var wg sync.WaitGroup
	for i, address := range cfg.Servers {
		wg.Go(func() { r.Servers[i], members[i] = ask(ctx, &cfg, address) })
	}
	wg.Wait()
	for _, m := range members {
		if len(m) > 0 {
			r.Members = m
			break
		}
	}
	return r, nil
}

// Diagnose asks the servers of the Conn's list, as the function does.
func (c *Conn) Diagnose(ctx context.Context) (Report, error) { return Diagnose(ctx, c.cfg) }

func ask(ctx context.Context, cfg *Config, address string) (s Server, members []string) {
	s.Address = address
	ctx, cancel := context.WithTimeout(ctx, 2*cfg.ConnectTimeout)
	defer cancel()
	fail := func(f *failure) (Server, []string) {
		s.Err = newError(batch.Transient, f.code, fmt.Errorf("%s %s", address, f.text))
		return s, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		panic("zkconn: a server that was checked is not host:port: " + err.Error())
	}
	if cfg.Dial == nil {
		if s.Resolved, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return fail(explainDial(err, cfg.ConnectTimeout))
		}
	}
	begun := time.Now()
	data, f := glance(ctx, cfg, address)
	s.Took = time.Since(begun)
	if f == nil || f.code == batch.CodeZKNoAuth || f.code == batch.CodeZKOverloaded || f.code == batch.CodeZKNoAnswer {
		// Whoever refuses us, or keeps us waiting, may still say who it is.
		if answer, f := word(ctx, cfg, address, "srvr"); f == nil {
			s.parse(answer)
		}
	}
	if f != nil && f.code == batch.CodeZKNoAnswer && s.Mode != "" {
		f.text = fmt.Sprintf("says that it is a %s, and has not opened a session within %v: the leader may hang", s.Mode, cfg.ConnectTimeout)
	}
	if f != nil {
		return fail(f)
	}
	return s, parseMembers(data)
}

// glance opens a session, presents the credentials, reads the ensemble's configuration and closes the session.
func glance(ctx context.Context, cfg *Config, address string) (config []byte, f *failure) {
	conn, f := connect(ctx, cfg, address)
	if f != nil {
		return nil, f
	}
	defer hangUp(conn)
	deadline := time.Now().Add(cfg.ConnectTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	g := &generation{ctx: ctx}
	l := &line{Conn: conn, owner: &Conn{cfg: *cfg, now: time.Now}, gen: g, server: address, deadline: deadline}
	hello := make([]byte, 4, 64)
	hello = binary.BigEndian.AppendUint32(hello, 0)
	hello = binary.BigEndian.AppendUint64(hello, 0)
	hello = binary.BigEndian.AppendUint32(hello, uint32(cfg.SessionTimeout.Milliseconds()))
	hello = binary.BigEndian.AppendUint64(hello, 0)
	hello = binary.BigEndian.AppendUint32(hello, passwordBytes)
	hello = append(hello, make([]byte, passwordBytes)...)
	binary.BigEndian.PutUint32(hello, uint32(len(hello)-4))
	if _, err := conn.Write(hello); err != nil {
		return nil, l.explainHandshake(err, "asked for a session")
	}
	if _, _, f := l.greet(); f != nil {
		return nil, f
	}
	defer func() { _, _ = conn.Write(request(2, opClose, nil)) }()
	if f := l.authenticate(); f != nil {
		return nil, f
	}
	const path = "/zookeeper/config"
	body := binary.BigEndian.AppendUint32(nil, uint32(len(path)))
	body = append(append(body, path...), 0) // no watch
	if _, err := conn.Write(request(1, opGetData, body)); err != nil {
		return nil, l.explainHandshake(err, "read a node")
	}
	var size [4]byte
	if f := l.take(size[:], "read a node"); f != nil {
		return nil, f
	}
	n := binary.BigEndian.Uint32(size[:])
	const header, most = 16, 1 << 20
	if n < header || n > most {
		return nil, l.stranger(size[:])
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, l.explainHandshake(err, "read a node")
	}
	switch code := int32(binary.BigEndian.Uint32(answer[12:])); code {
	case 0:
	case errNeedsAuth:
		return nil, &failure{code: batch.CodeZKNoAuth, text: "takes requests from authenticated sessions only"}
	default:
		return nil, nil // older than the node, or not readable: it serves all the same
	}
	answer = answer[header:]
	if len(answer) < 4 {
		return nil, nil
	}
	length := int(int32(binary.BigEndian.Uint32(answer)))
	if length < 0 || length > len(answer)-4 {
		return nil, nil
	}
	return answer[4 : 4+length], nil
}

// parseMembers lists the voters in an ensemble's configuration: "server.1=host:2888:3888:participant;2181".
func parseMembers(config []byte) []string {
	var out []string
	for line := range bytes.Lines(config) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if !ok || !strings.HasPrefix(name, "server.") {
			continue
		}
		value, _, _ = strings.Cut(value, ";")
		if strings.HasSuffix(value, ":observer") {
			continue
		}
		out = append(out, strings.TrimSuffix(value, ":participant"))
	}
	slices.Sort(out)
	return out
}

// parse takes what it knows from the answer to srvr.
func (s *Server) parse(answer string) {
	for line := range strings.Lines(answer) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch name {
		case "Zookeeper version":
			s.Version, _, _ = strings.Cut(value, ",")
		case "Mode":
			s.Mode = value
		case "Latency min/avg/max":
			if parts := strings.Split(value, "/"); len(parts) == 3 {
				s.Latency, _ = strconv.ParseFloat(parts[1], 64)
			}
		case "Outstanding":
			s.Outstanding, _ = strconv.ParseInt(value, 10, 64)
		case "Connections":
			s.Connections, _ = strconv.ParseInt(value, 10, 64)
		}
	}
}

// Findings says what is right and wrong with the servers and their ensemble: one finding for each server, in the order of the
// list, then those about the ensemble.
func (r Report) Findings() []doctor.Finding {
	serving := 0
	for _, s := range r.Servers {
		if s.Err == nil {
			serving++
		}
	}
	var out []doctor.Finding
	for _, s := range r.Servers {
		out = append(out, s.findings(serving > 0)...)
	}
	if serving == 0 {
		return out
	}
	return append(out, r.ensemble()...)
}

func (s Server) findings(others bool) []doctor.Finding {
	subject := "zookeeper " + s.Address
	if s.Err != nil {
		f := doctor.Finding{Level: doctor.Error, Subject: subject, Code: s.Err.Code, Text: strings.TrimPrefix(s.Err.Err.Error(), s.Address+" "), Remedy: s.Err.Remedy}
		if others && s.Err.Code != batch.CodeZKNotZK && s.Err.Code != batch.CodeZKNoAuth {
			f.Level = doctor.Warn // we work with the others
		}
		return []doctor.Finding{f}
	}
	who := "serves"
	if s.Mode != "" {
		who += " as " + s.Mode
	}
	if s.Version != "" {
		number, _, _ := strings.Cut(s.Version, "-")
		who += ", version " + number
	}
	out := []doctor.Finding{{Subject: subject, Text: fmt.Sprintf("%s, answers in %s", who, rounded(s.Took))}}
	if s.Took > slowAnswer || s.Outstanding >= manyOutstanding || s.Latency >= longLatency {
		out = append(out, doctor.Finding{
			Level: doctor.Warn, Subject: subject, Code: batch.CodeZKOverloaded, Remedy: remedies[batch.CodeZKOverloaded],
			Text: fmt.Sprintf("overloaded: a session took %s, %d requests wait, requests take %.0f ms on average", rounded(s.Took), s.Outstanding, s.Latency),
		})
	}
	if v, ok := parseVersion(s.Version); ok {
		if text, tooOld := v.complaint(); text != "" {
			f := doctor.Finding{Level: doctor.Warn, Subject: subject, Code: batch.CodeZKVersion, Text: text, Remedy: remedies[batch.CodeZKVersion]}
			if tooOld {
				f.Level = doctor.Error
			}
			out = append(out, f)
		}
	}
	return out
}

// ensemble judges the number of servers.
func (r Report) ensemble() []doctor.Finding {
	warn := func(format string, args ...any) doctor.Finding {
		return doctor.Finding{
			Level: doctor.Warn, Subject: "zookeeper ensemble", Code: batch.CodeZKEnsemble, Text: fmt.Sprintf(format, args...), Remedy: remedies[batch.CodeZKEnsemble],
		}
	}
	n := len(r.Members)
	if n == 0 {
		for _, s := range r.Servers {
			if s.Mode == "standalone" {
				return []doctor.Finding{warn("a single server: while it is away, nothing can be written, and its disk is the only copy")}
			}
		}
		n = len(r.Servers)
	}
	survives := (n - 1) / 2
	var out []doctor.Finding
	switch {
	case n == 1:
		return []doctor.Finding{warn("a single server: while it is away, nothing can be written, and its disk is the only copy")}
	case n%2 == 0:
		out = append(out, warn("%d servers: an even number, which survives the loss of %d, as %d would", n, survives, n-1))
	default:
		out = append(out, doctor.Finding{Subject: "zookeeper ensemble", Text: fmt.Sprintf("%d servers: survives the loss of %d", n, survives)})
	}
	if len(r.Servers) < n && len(r.Members) > 0 {
		f := warn("zookeeper.servers names %d of the ensemble's %d servers", len(r.Servers), n)
		f.Remedy = "name all of them, so that we find those that are left when others are away"
		out = append(out, f)
	}
	return out
}
