//go:build realzk

package zkconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
)

// certificate makes one that signs itself, for 127.0.0.1, and returns it with a PEM file of it and its key.
func certificate(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, file
}

// secured starts a server that speaks TLS at the address that is returned, and knows the client's certificate.
func secured(t *testing.T, server, client, clientAuth string) string {
	t.Helper()
	l := testenv.Listen(t)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	testenv.OwnZooKeeper(t,
		testenv.Set("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		testenv.Set("secureClientPort", fmt.Sprint(port)),
		testenv.Set("secureClientPortAddress", "127.0.0.1"),
		testenv.Set("ssl.keyStore.location", server), testenv.Set("ssl.keyStore.type", "PEM"),
		testenv.Set("ssl.trustStore.location", client), testenv.Set("ssl.trustStore.type", "PEM"),
		testenv.Set("ssl.clientAuth", clientAuth),
	)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func TestTLS(t *testing.T) {
	server, serverFile := certificate(t, "server")
	client, clientFile := certificate(t, "client")
	addr := secured(t, serverFile, clientFile, "need")
	pool := x509.NewCertPool()
	pool.AddCert(server.Leaf)

	cfg := hasty
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{client}}
	c := open(t, cfg, addr)
	working(t, c)
	if r, _ := diagnose(t, cfg, addr); r.Servers[0].Err != nil || r.Servers[0].Mode != "standalone" {
		t.Errorf("Diagnose over TLS: %+v", r.Servers[0])
	}

	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	failing(t, open(t, cfg, addr), batch.CodeZKNoAuth, "refuses us in TLS")
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{client}}
	failing(t, open(t, cfg, addr), batch.CodeZKNoAuth, "certificate isn't valid for us")
	cfg.TLS = nil
	failing(t, open(t, cfg, addr), batch.CodeZKNotZK, "speaks TLS there")
}
