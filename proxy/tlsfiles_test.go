package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tornwire/proxy"
)

// TestTLSFiles: what is made of files works, and what is wrong with them is said
// with their names.
func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, data, 0o600))
		return name
	}
	der, err := x509.MarshalPKCS8PrivateKey(authority().PrivateKey)
	must(t, err)
	cert := write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority().Certificate[0]}))
	key := write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	nothing := write("nothing", nil)
	full, err := os.ReadFile(cert)
	must(t, err)
	full = append(full, strings.Repeat("\n", proxy.MaxPEM-len(full))...)
	most, over := write("most.pem", full), write("over.pem", append(full, '\n'))
	missing := filepath.Join(dir, "missing")

	server, err := proxy.ServerTLS(most, key)
	must(t, err)
	client, err := proxy.ClientTLS(most, "", false)
	must(t, err)
	tr := overTLS(tcp)
	tr.configure = func(c *proxy.Config) { c.TLS, c.UpstreamTLS = server, client }
	b := newBed(t, tr, decoded())
	b.wantTalk(b.addr)
	b.stop()
	for _, cfg := range []*tls.Config{server, client} {
		if cfg.MinVersion != tls.VersionTLS12 || cfg.InsecureSkipVerify {
			t.Errorf("%+v", cfg)
		}
	}
	if cfg, err := proxy.ClientTLS("", "lock-1", true); err != nil || cfg.RootCAs != nil || !cfg.InsecureSkipVerify || cfg.ServerName != "lock-1" {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, c := range []struct {
		cert, key string
		want      []string
	}{
		{missing, key, []string{missing, "no such file"}},
		{cert, missing, []string{missing, "no such file"}},
		{cert, "", []string{"not named"}},
		{nothing, key, []string{nothing, "failed to find any PEM data in certificate"}},
		{cert, nothing, []string{cert, nothing, "failed to find any PEM data in key"}},
		{key, cert, []string{key, "certificate"}},
		{over, key, []string{over, "over 1048576 bytes"}},
		{dir, key, []string{dir, "directory"}},
	} {
		cfg, err := proxy.ServerTLS(c.cert, c.key)
		wantError(t, cfg, err, c.want...)
	}
	for file, want := range map[string][]string{
		missing: {missing, "no such file"}, nothing: {nothing, "no certificate"}, key: {key, "no certificate"}, over: {over, "over 1048576"},
	} {
		cfg, err := proxy.ClientTLS(file, "", false)
		wantError(t, cfg, err, want...)
	}
	cfg, err := proxy.ClientTLS(cert, "", true)
	wantError(t, cfg, err, cert, "not to be checked")
}

func wantError(t *testing.T, cfg *tls.Config, err error, parts ...string) {
	t.Helper()
	if err == nil || cfg != nil {
		t.Errorf("%+v, %v; wanted an error with %q", cfg, err, parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%v says nothing of %q", err, p)
		}
	}
}
