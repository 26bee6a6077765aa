package kafka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
)

// writeFile writes a file of the test's own, and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeKeytab writes a keytab with one key.
func writeKeytab(t *testing.T, name, realm string) string {
	t.Helper()
	const aes256 = 18
	keys := keytab.New()
	if err := keys.AddEntry(name, realm, "secret", time.Unix(1_700_000_000, 0), 1, aes256); err != nil {
		t.Fatal(err)
	}
	b, err := keys.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "app.keytab", string(b))
}

func TestSASLMistakes(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	conf := writeFile(t, "krb5.conf", "[libdefaults]\n default_realm = R\n")
	keys := writeKeytab(t, "app", "R")
	credentials := writeFile(t, "credentials", "[default]\naws_access_key_id = AK\n")
	krb5 := SASL{Mechanism: "GSSAPI", Principal: "app@R", KRB5Conf: conf, KeytabFile: keys}
	for name, tc := range map[string]struct {
		change func(*SASL)
		want   string
	}{
		"no principal":         {func(s *SASL) { s.Principal = "" }, "sasl.principal: none is given"},
		"no realm":             {func(s *SASL) { s.Principal = "app" }, `sasl.principal: "app" is none`},
		"no name":              {func(s *SASL) { s.Principal = "@R" }, `sasl.principal: "@R" is none`},
		"no key":               {func(s *SASL) { s.KeytabFile = "" }, "sasl.keytab_file: none is given"},
		"two keys":             {func(s *SASL) { s.Password = "p" }, "sasl.keytab_file: given together with a password"},
		"another's keytab":     {func(s *SASL) { s.Principal = "app/host@R" }, "has no key of app/host@R"},
		"another realm":        {func(s *SASL) { s.Principal = "app@S" }, "has no key of app@S"},
		"no keytab":            {func(s *SASL) { s.KeytabFile += "x" }, "sasl.keytab_file: " + keys + "x: no such file"},
		"garbled keytab":       {func(s *SASL) { s.KeytabFile = conf }, "sasl.keytab_file: " + conf},
		"no krb5.conf":         {func(s *SASL) { s.KRB5Conf += "x" }, "sasl.krb5_conf: " + conf + "x: no such file"},
		"user with Kerberos":   {func(s *SASL) { s.User = "u" }, "sasl.user: belongs to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and the mechanism is GSSAPI"},
		"principal with PLAIN": {func(s *SASL) { *s = SASL{Mechanism: "PLAIN", User: "u", Password: "p", Principal: "app@R"} }, "sasl.principal: belongs to GSSAPI"},
		"key with Kerberos":    {func(s *SASL) { s.AccessKey = "AK" }, "sasl.access_key: belongs to AWS_MSK_IAM"},
		"no secret key":        {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM", AccessKey: "AK"} }, "sasl.secret_key: none is given"},
		"no access key":        {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM", SecretKey: "SK"} }, "sasl.access_key: none is given"},
		"nothing anywhere":     {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM"} }, "sasl.access_key: none is given, and the environment has none"},
		"keys twice": {func(s *SASL) {
			*s = SASL{Mechanism: "AWS_MSK_IAM", AccessKey: "AK", SecretKey: "SK", CredentialsFile: credentials}
		}, "sasl.credentials_file: given together with keys"},
		"profile without a file": {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM", Profile: "p"} }, "sasl.profile: belongs to credentials_file"},
		"half a profile":         {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM", CredentialsFile: credentials} }, "profile default has no keys"},
		"no such profile":        {func(s *SASL) { *s = SASL{Mechanism: "AWS_MSK_IAM", CredentialsFile: credentials, Profile: "p"} }, "profile p has no keys"},
	} {
		t.Run(name, func(t *testing.T) {
			s := krb5
			tc.change(&s)
			_, err := New("s", Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, SASL: s}, emitter.Env{})
			if batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// handshakes is a broker that takes any SASL mechanism, and keeps what it is told.
type handshakes struct {
	fake *kfake.Cluster

	mu        sync.Mutex
	mechanism []string
	tokens    [][]byte
}

// newHandshakes answers each token by answer: nil accepts it.
func newHandshakes(t *testing.T, answer *kerr.Error) *handshakes {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	h := &handshakes{fake: fake}
	fake.ControlKey(kmsg.SASLHandshake.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := kreq.(*kmsg.SASLHandshakeRequest)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mechanism = append(h.mechanism, req.Mechanism)
		return req.ResponseKind(), nil, true
	})
	fake.ControlKey(kmsg.SASLAuthenticate.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := kreq.(*kmsg.SASLAuthenticateRequest)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tokens = append(h.tokens, slices.Clone(req.SASLAuthBytes))
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.SASLAuthBytes = []byte(`{"version":"2020_10_22"}`)
		if answer != nil {
			resp.ErrorCode = answer.Code
		}
		return resp, nil, true
	})
	return h
}

func (h *handshakes) config(s SASL) Config {
	return Config{Brokers: h.fake.ListenAddrs(), Topics: []string{"t"}, Timeout: 3 * time.Second, SASL: s}
}

func (h *handshakes) said() (mechanisms []string, tokens [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mechanism), slices.Clone(h.tokens)
}

// TestIAM: the mechanism's name and the signed token are what the broker gets, with the keys of each place that may hold them.
func TestIAM(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SKENV")
	t.Setenv("AWS_SESSION_TOKEN", "STENV")
	credentials := writeFile(t, "credentials", "# comment\n[default]\naws_access_key_id = AKDEF\naws_secret_access_key=SKDEF\n\n[ other ]\naws_access_key_id=AKOTH\naws_secret_access_key = SKOTH\naws_session_token = STOTH\n")
	for name, tc := range map[string]struct {
		sasl                   SASL
		access, secret, stoken string
	}{
		"settings":    {SASL{AccessKey: "AKSET", SecretKey: "SKSET"}, "AKSET", "SKSET", ""},
		"file":        {SASL{CredentialsFile: credentials}, "AKDEF", "SKDEF", ""},
		"profile":     {SASL{CredentialsFile: credentials, Profile: "other"}, "AKOTH", "SKOTH", "STOTH"},
		"environment": {SASL{}, "AKENV", "SKENV", "STENV"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandshakes(t, nil)
			tc.sasl.Mechanism = "AWS_MSK_IAM"
			if s := open(t, h.config(tc.sasl)); len(s.starts) != 1 {
				t.Fatalf("starts %v", s.starts)
			}
			mechanisms, tokens := h.said()
			if len(tokens) == 0 || mechanisms[0] != "AWS_MSK_IAM" {
				t.Fatalf("mechanisms %q, %d tokens", mechanisms, len(tokens))
			}
			var token map[string]string
			if err := json.Unmarshal(tokens[0], &token); err != nil {
				t.Fatal(err)
			}
			at := token["x-amz-date"]
			if token["version"] != "2020_10_22" || token["host"] != "127.0.0.1" || token["action"] != "kafka-cluster:Connect" ||
				len(at) < 8 || token["x-amz-credential"] != tc.access+"/"+at[:8]+"/eu-central-1/kafka-cluster/aws4_request" || token["x-amz-security-token"] != tc.stoken {
				t.Errorf("token %s", tokens[0])
			}
			if want := signature(tc.secret, token); token["x-amz-signature"] != want {
				t.Errorf("signature %s, want %s", token["x-amz-signature"], want)
			}
		})
	}
	h := newHandshakes(t, kerr.SaslAuthenticationFailed)
	_, err := tryOpen(t, h.config(SASL{Mechanism: "AWS_MSK_IAM", AccessKey: "AK", SecretKey: "SKSET"}))
	if batch.CodeOf(err) != batch.CodeUnauthorized || strings.Contains(err.Error(), "SKSET") {
		t.Errorf("refused: %v, want it named, without the key", err)
	}
}

// signature signs a token as AWS's Signature Version 4 has it, for a GET of / with the token as the query.
func signature(secret string, token map[string]string) string {
	query := url.Values{}
	for name, key := range map[string]string{
		"Action": "action", "X-Amz-Algorithm": "x-amz-algorithm", "X-Amz-Credential": "x-amz-credential", "X-Amz-Date": "x-amz-date",
		"X-Amz-Expires": "x-amz-expires", "X-Amz-Security-Token": "x-amz-security-token", "X-Amz-SignedHeaders": "x-amz-signedheaders",
	} {
		if v := token[key]; v != "" {
			query.Set(name, v)
		}
	}
	sum := func(s string) string {
		b := sha256.Sum256([]byte(s))
		return hex.EncodeToString(b[:])
	}
	canonical := strings.Join([]string{"GET", "/", strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + token["host"] + "\n", "host", sum("")}, "\n")
	_, scope, _ := strings.Cut(token["x-amz-credential"], "/")
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", token["x-amz-date"], scope, sum(canonical)}, "\n")))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// TestToken: the token of the file is what the broker gets.
func TestToken(t *testing.T) {
	t.Parallel()
	h := newHandshakes(t, kerr.SaslAuthenticationFailed)
	_, err := tryOpen(t, h.config(SASL{Mechanism: "OAUTHBEARER", TokenFile: writeFile(t, "token", "T0K3N\n")}))
	if batch.CodeOf(err) != batch.CodeUnauthorized || strings.Contains(err.Error(), "T0K3N") {
		t.Errorf("refused: %v, want it named, without the token", err)
	}
	if mechanisms, tokens := h.said(); len(tokens) == 0 || mechanisms[0] != "OAUTHBEARER" || string(tokens[0]) != "n,,\x01auth=Bearer T0K3N\x01\x01" {
		t.Errorf("mechanisms %q, tokens %q", mechanisms, tokens)
	}
}

// TestKerberosLogin: the broker is told GSSAPI, and the realm's KDC, of krb5.conf, is asked as the principal.
func TestKerberosLogin(t *testing.T) {
	t.Parallel()
	kdc := newKDC(t)
	conf := writeFile(t, "krb5.conf", fmt.Sprintf("[libdefaults]\n default_realm = ELSEWHERE\n udp_preference_limit = 1\n dns_lookup_kdc = false\n[realms]\n EXAMPLE.COM = {\n  kdc = %s\n }\n", kdc.addr))
	for name, s := range map[string]SASL{
		"keytab":   {KeytabFile: writeKeytab(t, "app/host-1", "EXAMPLE.COM")},
		"password": {PasswordFile: writeFile(t, "password", "secret\n")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandshakes(t, nil)
			s.Mechanism, s.Principal, s.KRB5Conf = "GSSAPI", "app/host-1@EXAMPLE.COM", conf
			_, err := tryOpen(t, h.config(s))
			if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeUnauthorized || !strings.Contains(fmt.Sprint(err), "the KDC of realm EXAMPLE.COM doesn't let app/host-1@EXAMPLE.COM in: ") ||
				!strings.Contains(fmt.Sprint(err), "no such client here") {
				t.Errorf("the KDC's refusal: %v", err)
			}
			if mechanisms, tokens := h.said(); len(mechanisms) == 0 || mechanisms[0] != "GSSAPI" || len(tokens) > 0 {
				t.Errorf("mechanisms %q, %d tokens", mechanisms, len(tokens))
			}
			if asked := kdc.last(); asked != "app/host-1@EXAMPLE.COM for krbtgt/EXAMPLE.COM" {
				t.Errorf("the KDC was asked as %q", asked)
			}
		})
	}
}

func TestKerberosAway(t *testing.T) {
	t.Parallel()
	conf := writeFile(t, "krb5.conf", "[libdefaults]\n udp_preference_limit = 1\n dns_lookup_kdc = false\n[realms]\n EXAMPLE.COM = {\n  kdc = 127.0.0.1:1\n }\n")
	h := newHandshakes(t, nil)
	_, err := tryOpen(t, h.config(SASL{Mechanism: "GSSAPI", Principal: "app@EXAMPLE.COM", Password: "secret", KRB5Conf: conf}))
	if batch.KindOf(err) != batch.Transient || batch.CodeOf(err) != batch.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "no KDC of realm EXAMPLE.COM can be reached") || strings.Contains(fmt.Sprint(err), "secret") {
		t.Errorf("%v", err)
	}
}

// TestKerberosChecked: a check says what the KDC says, and not that the broker refuses.
func TestKerberosChecked(t *testing.T) {
	t.Parallel()
	kdc := newKDC(t)
	conf := writeFile(t, "krb5.conf", fmt.Sprintf("[libdefaults]\n udp_preference_limit = 1\n dns_lookup_kdc = false\n[realms]\n EXAMPLE.COM = {\n  kdc = %s\n }\n", kdc.addr))
	h := newHandshakes(t, nil)
	cfg := h.config(SASL{Mechanism: "GSSAPI", Principal: "app@EXAMPLE.COM", Password: "secret", KRB5Conf: conf})
	var told []string
	for _, f := range Check(t.Context(), cfg, CheckOptions{}, doctor.Env{Logger: hclog.NewNullLogger()}) {
		told = append(told, f.Text+" "+f.Remedy)
	}
	if text := strings.Join(told, "\n"); !strings.Contains(text, "the KDC of realm EXAMPLE.COM doesn't let app@EXAMPLE.COM in") || !strings.Contains(text, "this machine's clock") {
		t.Errorf("findings\n%s", text)
	}
}

// kdc is a key distribution centre that knows nobody.
type kdc struct {
	addr string

	mu    sync.Mutex
	asked string
}

func (k *kdc) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func newKDC(t *testing.T) *kdc {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &kdc{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // it ends the loop
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close() //nolint:errcheck // the answer has gone out
				k.answer(c)
			})
		}
	})
	return k
}

// answer takes an AS-REQ, led by its length as over TCP.
func (k *kdc) answer(c net.Conn) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	var req messages.ASReq
	if err := req.Unmarshal(b); err != nil {
		return
	}
	k.mu.Lock()
	k.asked = fmt.Sprintf("%s@%s for %s", req.ReqBody.CName.PrincipalNameString(), req.ReqBody.Realm, req.ReqBody.SName.PrincipalNameString())
	k.mu.Unlock()
	const unknownClient = 6
	e := messages.NewKRBError(types.PrincipalName{NameType: 2, NameString: []string{"krbtgt", "EXAMPLE.COM"}}, "EXAMPLE.COM", unknownClient, "no such client here")
	out, err := e.Marshal()
	if err != nil {
		return
	}
	c.Write(binary.BigEndian.AppendUint32(nil, uint32(len(out)))) //nolint:errcheck // the client tells
	c.Write(out)                                                  //nolint:errcheck // the client tells
}
