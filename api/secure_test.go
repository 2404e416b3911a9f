package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tornwire/internal/strict"
)

// certificate writes a certificate for a name that signs itself, and its key.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, kind string, b []byte) string {
		file = filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

// hello makes a TLS connection and reads a word.
func hello(addr, ca, name string) (string, error) {
	pool := x509.NewCertPool()
	b, err := os.ReadFile(ca)
	if err != nil || !pool.AppendCertsFromPEM(b) {
		return "", fmt.Errorf("%s: %w", ca, err)
	}
	nc, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, ServerName: name})
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	word := make([]byte, 3)
	_, err = io.ReadFull(nc, word)
	return string(word), err
}

// TestTLS: a proxy ends TLS, and another speaks it to the first; each can be taken
// away again, and files that cannot be used change nothing.
func TestTLS(t *testing.T) {
	b := newBed(t)
	cert, key := certificate(t, "outer.test")
	other, _ := certificate(t, "other.test")
	b.must(201, "POST", "/proxies", `{"name":"outer","upstream":"`+speaker(t, "one")+`","tls":{"cert":"`+cert+`","key":"`+key+`"}}`)
	outer := b.listen("outer")
	if word, err := hello(outer, cert, "outer.test"); word != "one" {
		t.Errorf("%q, %v", word, err)
	}
	inner := func(tls string) string {
		return `{"name":"inner","upstream":"` + outer + `","upstream_tls":` + tls + `}`
	}
	want := `,"upstream_tls":{"ca":"` + cert + `","server_name":"outer.test"}}`
	if got := b.must(201, "POST", "/proxies", inner(`{"ca":"`+cert+`","server_name":"outer.test"}`)); !strings.HasSuffix(got, want) {
		t.Errorf("it is %s", got)
	}
	addr := b.listen("inner")
	line(t, addr, "one")

	before := b.must(200, "GET", "/proxies", "")
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.pem")
	for _, test := range []struct{ proxy, body, want string }{
		{"outer", `{"tls":{"cert":"x","key":""}}`, `tls.cert: tls.cert is "x", not an absolute file name; tls.key: tls.key is missing`},
		{"outer", `{"tls":{"cert":"` + missing + `","key":"` + key + `"}}`, `tls: tls cannot be used: open ` + missing + `: no such file or directory`},
		{"outer", `{"tls":{"cert":"` + other + `","key":"` + key + `"}}`, `tls: tls cannot be used: certificate ` + other + ` with key ` + key + `: tls: private key does not match public key`},
		{"outer", `{"tls":{"cert":"` + dir + `","key":"` + key + `"}}`, `tls.cert: tls.cert is "` + dir + `", which is no regular file`},
		{"outer", `{"tls":{"crt":""}}`, `tls.crt: tls.crt is no field that there is; did you mean cert?; tls.cert: tls.cert is missing; tls.key: tls.key is missing`},
		{"outer", `{"tls":true}`, "tls: tls is true, not an object"},
		{"inner", `{"upstream_tls":{"ca":"` + key + `"}}`, "upstream_tls: upstream_tls cannot be used: " + key + ": there is no certificate in it"},
		{"inner", `{"upstream_tls":{"skip_verify":1}}`, "upstream_tls.skip_verify: upstream_tls.skip_verify is 1, not true or false"},
		{
			"inner", `{"upstream_tls":{"server_name":"` + strings.Repeat("x", MaxHost+1) + `","ca":"/` + strings.Repeat("x", MaxAddress) + `"}}`,
			"upstream_tls.ca: upstream_tls.ca has 1025 bytes, over 1024; upstream_tls.server_name: upstream_tls.server_name has 254 bytes, over 253",
		},
	} {
		_, err := b.m.Update(t.Context(), test.proxy, func(s *Settings) error {
			c := &call{body: strings.NewReader(test.body)}
			return c.settings(s, func(*strict.Object) {})
		})
		if got := told(err); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.body, got, test.want)
		}
	}
	if after := b.must(200, "GET", "/proxies", ""); after != before {
		t.Errorf("after changes that were refused: %s, before: %s", after, before)
	}
	line(t, addr, "one")

	b.must(200, "PATCH", "/proxies/inner", `{"upstream_tls":{"ca":"`+other+`"}}`)
	nc, err := net.Dial("tcp", addr)
	if err == nil { // else it was reset even sooner
		_, err = nc.Read(make([]byte, 1))
		_ = nc.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("with a certificate of a stranger: %v", err)
	}
	b.must(200, "PATCH", "/proxies/inner", `{"upstream_tls":{"skip_verify":true}}`)
	line(t, addr, "one")
	if got := b.must(200, "PATCH", "/proxies/inner", `{"upstream_tls":null}`); strings.Contains(got, "tls") {
		t.Errorf("it is %s", got)
	}
	if got := b.must(200, "PATCH", "/proxies/outer", `{"tls":null}`); strings.Contains(got, "tls") {
		t.Errorf("it is %s", got)
	}
	line(t, addr, "one")
}

// TestUnix: a proxy listens on a socket and reaches one.
func TestUnix(t *testing.T) {
	b := newBed(t)
	dir, err := os.MkdirTemp("", "tw") // t.TempDir's names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	b.must(201, "POST", "/proxies", `{"name":"near","listen":"unix:`+socket+`","upstream":"`+speaker(t, "one")+`"}`)
	b.must(201, "POST", "/proxies", `{"name":"far","upstream":"unix:`+socket+`"}`)
	if got := b.listen("near"); got != "unix:"+socket {
		t.Errorf("it listens on %s", got)
	}
	line(t, b.listen("far"), "one")
	b.must(200, "PATCH", "/proxies/near", `{"listen":"unix:`+socket+`","dial_timeout":"1s"}`)
	line(t, b.listen("far"), "one")
	b.must(200, "PATCH", "/proxies/near", `{"listen":"unix:`+socket+`2"}`)
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old socket: %v", err)
	}
	b.must(200, "PATCH", "/proxies/far", `{"upstream":"unix:`+socket+`2"}`)
	line(t, b.listen("far"), "one")
	b.must(204, "DELETE", "/proxies/near", "")
	if _, err := os.Lstat(socket + "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket of a proxy that is gone: %v", err)
	}
}
