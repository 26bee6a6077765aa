package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

// fault is what is wrong at one address.
type fault struct {
	code         batch.Code
	text, remedy string
	handshake    bool // it may have been the TLS handshake that failed
}

func newFault(code batch.Code, text, remedy string) *fault {
	return &fault{code: code, text: text, remedy: remedy}
}

// answered is what one address tells once it has let us in.
type answered struct {
	versions *kversion.Versions
	meta     *kmsg.MetadataResponse
}

// minMetadata is the version of the Metadata request that carries topic ids: Kafka 2.8.
const minMetadata = 10

// probe asks one address step by step, so that the first step that fails names what is wrong: name, connection, TLS,
// protocol, authentication.
func (c *checker) probe(ctx context.Context, addr string) (*answered, *fault) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if f := c.connect(ctx, addr); f != nil {
		return nil, f
	}
	client, err := kgo.NewClient(append(slices.Clip(c.e.opts), kgo.SeedBrokers(addr), kgo.RequestRetries(1))...)
	if err != nil {
		return nil, newFault(batch.CodeConfiguration, err.Error(), "correct the client's options")
	}
	defer client.Close()
	// A question about no topic needs no right, but authentication.
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := meta.RequestWith(ctx, client)
	if err != nil {
		return nil, c.refusal(err)
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.ClientSoftwareName, versions.ClientSoftwareVersion = "tridentd", "doctor"
	vresp, err := versions.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(vresp.ErrorCode)
	}
	if err != nil {
		return nil, c.refusal(err)
	}
	return &answered{versions: kversion.FromApiVersionsResponse(vresp), meta: resp}, nil
}

// connect makes a connection as the client would, and asks what the other end speaks.
func (c *checker) connect(ctx context.Context, addr string) *fault {
	dial := c.e.client.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	// Half of the time is left for finding out what it is that doesn't answer.
	dialling, stop := context.WithTimeout(ctx, checkTimeout/2)
	defer stop()
	conn, err := dial(dialling, "tcp", addr)
	if err != nil {
		f := dialFault(err)
		if f.code == batch.CodeTimeout {
			f.text += limit(ctx)
		}
		if c.e.cfg.TLS.enabled() && f.handshake && c.plain(ctx, addr) {
			return &fault{code: doctor.CodeTLS, text: "the listener doesn't speak TLS, and tls is set", remedy: "switch tls off, or name the broker's TLS listener"}
		}
		return f
	}
	reply, err := exchangeVersions(dialling, conn)
	conn.Close() //nolint:errcheck // it has served
	if err == nil && speaksKafka(reply) {
		return nil
	}
	if what := c.identify(ctx, addr, reply); what != "" {
		f := newFault(doctor.CodeNotKafka, "nothing that speaks Kafka there: "+what, "correct the address or the port")
		if what == speaksTLS {
			f = newFault(doctor.CodeTLS, "the listener speaks TLS, and tls isn't set", "switch tls on, or name a listener without it")
		}
		return f
	}
	switch {
	case err == nil:
		return newFault(doctor.CodeNotKafka, fmt.Sprintf("nothing that speaks Kafka there: something answers %q", start(reply)), "correct the address or the port")
	case timedOut(err):
		return newFault(batch.CodeTimeout, "takes connections, and doesn't answer"+limit(ctx), "see what holds the broker up, or correct the address")
	default:
		return newFault(
			doctor.CodeNotKafka, "closes the connection at the first request: "+plainText(err),
			"check that a broker's listener is there, and meant for this way of connecting (TLS or not)",
		)
	}
}

// limit says how long was waited, unless that was cut short by the end of the whole check.
func limit(ctx context.Context) string {
	if d, ok := ctx.Deadline(); ok && time.Until(d) < checkTimeout/4 {
		return ""
	}
	return fmt.Sprintf(" within %s", checkTimeout/2)
}

// exchangeVersions sends the first request of Kafka's protocol and returns the beginning of the answer.
func exchangeVersions(ctx context.Context, conn net.Conn) ([]byte, error) {
	if d, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(d); err != nil {
			return nil, err
		}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 0
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(DefaultClientID)).AppendRequest(nil, req, correlation)); err != nil {
		return nil, err
	}
	buf := make([]byte, 512)
	n, err := io.ReadAtLeast(conn, buf, 10)
	if n > 0 && (err == io.ErrUnexpectedEOF || timedOut(err)) {
		err = nil
	}
	return buf[:n], err
}

// correlation is the id of the probe's request, by which its answer is known.
const correlation = 0x7d0c

// speaksKafka tells whether this is the beginning of an answer to the probe.
func speaksKafka(reply []byte) bool {
	return len(reply) >= 8 && binary.BigEndian.Uint32(reply) >= 10 && binary.BigEndian.Uint32(reply[4:]) == correlation
}

const speaksTLS = "TLS"

// identify names what answers at an address that doesn't speak Kafka; empty if it doesn't say.
func (c *checker) identify(ctx context.Context, addr string, reply []byte) string {
	switch {
	case bytes.HasPrefix(reply, []byte("HTTP/")):
		return "a web server answers"
	case bytes.HasPrefix(reply, []byte("SSH-")):
		return "an SSH server answers"
	case len(reply) >= 2 && reply[0] == 0x15 && reply[1] == 0x03: // an alert
		return speaksTLS
	}
	if said := c.ask(ctx, addr, "srvr"); bytes.Contains(said, []byte("Zookeeper version")) || bytes.Contains(said, []byte("whitelist")) {
		return "ZooKeeper answers"
	}
	if said := c.ask(ctx, addr, "GET / HTTP/1.0\r\n\r\n"); bytes.HasPrefix(said, []byte("HTTP/")) {
		return "a web server answers"
	}
	if !c.e.cfg.TLS.enabled() && c.handshakes(ctx, addr) {
		return speaksTLS
	}
	return ""
}

// askTimeout bounds each attempt at naming what answers.
const askTimeout = 500 * time.Millisecond

// ask sends a few bytes on a bare connection and returns the beginning of what comes back.
func (c *checker) ask(ctx context.Context, addr, text string) []byte {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	defer conn.Close() //nolint:errcheck // it has served
	if d, ok := ctx.Deadline(); ok && conn.SetDeadline(d) != nil {
		return nil
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return nil
	}
	buf := make([]byte, 256)
	n, _ := conn.Read(buf) // what came counts
	return buf[:n]
}

// handshakes tells whether the listener takes part in a TLS handshake.
func (c *checker) handshakes(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent: it only names what is there
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close() //nolint:errcheck // it has served
		return true
	}
	_, alert := errors.AsType[tls.AlertError](err)
	return alert
}

// plain tells whether a broker answers without TLS.
func (c *checker) plain(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it has served
	reply, err := exchangeVersions(ctx, conn)
	return err == nil && speaksKafka(reply)
}

// dialFault names why no connection came about.
func dialFault(err error) *fault {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	host, isHost := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isDNS:
		return &fault{code: doctor.CodeUnresolved, text: fmt.Sprintf("the name %s isn't known here: %s", dns.Name, dns.Err), remedy: "correct the host name, or this machine's name resolution"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &fault{code: doctor.CodeRefused, text: "nothing listens there", remedy: "start the broker, or correct the address"}
	case isUnknown:
		return &fault{code: doctor.CodeTLS, text: "its certificate isn't trusted: " + unknown.Error(), remedy: "give the certificate authority as tls.ca_file"}
	case isHost:
		return &fault{code: doctor.CodeTLS, text: "its certificate is for another name: " + host.Error(), remedy: "dial it by a name that the certificate has, or set tls.server_name"}
	case isInvalid:
		return &fault{code: doctor.CodeTLS, text: "its certificate isn't valid: " + invalid.Error(), remedy: "renew the broker's certificate, or set this machine's clock right"}
	case isRecord:
		return &fault{code: doctor.CodeTLS, text: "the listener doesn't speak TLS, and tls is set", remedy: "switch tls off, or name the broker's TLS listener"}
	case isOp && op.Op == "remote error":
		return &fault{
			code: doctor.CodeTLS, text: "it ends the TLS handshake: " + op.Err.Error(),
			remedy: "give the certificate that the broker asks for (tls.cert_file, tls.key_file), or another that it trusts",
		}
	case timedOut(err):
		return &fault{
			code: batch.CodeTimeout, text: "no connection", remedy: "check routes and firewalls between here and there, and that the broker isn't hung",
			handshake: true,
		}
	case closed(err):
		return &fault{
			code: doctor.CodeTLS, text: "closes the connection during the TLS handshake", remedy: "name the broker's TLS listener, and give the certificate that it asks for",
			handshake: true,
		}
	}
	return &fault{code: batch.CodeUnavailable, text: "no connection: " + plainText(err), remedy: "check routes and firewalls between here and there"}
}

// refusal names why a broker that speaks Kafka doesn't let us in.
func (c *checker) refusal(err error) *fault {
	sasl := c.e.cfg.SASL
	who := sasl.who()
	if k, ok := errors.AsType[*batch.Error](err); ok && k.Op == opKerberos {
		return newFault(k.Code, k.Err.Error(), k.Remedy)
	}
	switch {
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return newFault(batch.CodeUnauthorized, fmt.Sprintf("doesn't offer %s: %s", sasl.Mechanism, plainText(err)), "set sasl.mechanism to one that the broker offers")
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.IllegalSaslState):
		return newFault(batch.CodeUnauthorized, fmt.Sprintf("refuses %s (%s)", who, sasl.Mechanism), "check the user, the password or the token")
	case batch.CodeOf(err) == batch.CodeConfiguration:
		return newFault(batch.CodeConfiguration, err.Error(), "correct the settings of sasl")
	case timedOut(err):
		return newFault(batch.CodeTimeout, fmt.Sprintf("speaks Kafka, and doesn't answer a request within %s", checkTimeout), "see what holds the broker up")
	case sasl.Mechanism == "" && closed(err):
		return newFault(batch.CodeUnauthorized, "closes the connection at the first request that isn't an authentication", "set sasl, or name a listener that asks for none")
	case closed(err):
		return newFault(
			batch.CodeUnauthorized, fmt.Sprintf("closes the connection when %s is to be authenticated (%s)", who, sasl.Mechanism),
			"check the mechanism, the user and the password, and that the listener is meant for SASL",
		)
	case isRefused(err):
		return newFault(batch.CodeUnauthorized, "refuses the request: "+plainText(err), "check the user's rights")
	}
	return newFault(batch.CodeUnavailable, plainText(err), "see the broker's log")
}

// who is authenticated, for people.
func (s *SASL) who() string {
	switch {
	case s.User != "":
		return "user " + s.User
	case s.Principal != "":
		return s.Principal
	}
	return "these credentials"
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// plainText is an error's text on one line.
func plainText(err error) string {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return ke.Message
	}
	if errors.Is(err, io.EOF) {
		return "end of stream"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

func start(b []byte) []byte { return b[:min(len(b), 24)] }

// versionText is what a broker's answers tell of its version. It is a guess: the protocol doesn't carry the number.
func versionText(v *kversion.Versions) string {
	guess := v.VersionGuess()
	if exact, ok := strings.CutPrefix(guess, "v"); ok {
		return "version " + exact
	}
	if least, ok := strings.CutPrefix(guess, "at least v"); ok {
		return "version " + least + " or newer"
	}
	return "speaks Kafka, in no version of Apache's"
}
