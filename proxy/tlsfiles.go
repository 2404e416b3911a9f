package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxPEM is the size of a file with certificates or a key, in bytes.
const MaxPEM = 1 << 20

// ServerTLS returns what Config.TLS needs: TLS 1.2 or later with the certificate
// (its chain behind it) and the key in two PEM files of up to MaxPEM bytes.
func ServerTLS(certFile, keyFile string) (*tls.Config, error) {
	cert, err := readPEM(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readPEM(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// ClientTLS returns what Config.UpstreamTLS needs: TLS 1.2 or later. The server's
// certificate is checked against those in caFile, or the system's if that is
// empty, and for serverName, or the upstream's host if that is empty. With
// skipVerify nothing is checked; a caFile is then an error.
func ClientTLS(caFile, serverName string, skipVerify bool) (*tls.Config, error) {
	cfg := &tls.Config{ServerName: serverName, InsecureSkipVerify: skipVerify, MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return cfg, nil
	}
	if skipVerify {
		return nil, fmt.Errorf("certificates in %s are of no use: the server's is not to be checked", caFile)
	}
	data, err := readPEM(caFile)
	if err != nil {
		return nil, err
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: there is no certificate in it", caFile)
	}
	return cfg, nil
}

// readPEM reads a file; its errors name it.
func readPEM(name string) ([]byte, error) {
	if name == "" {
		return nil, errors.New("a file with a certificate or a key is not named")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxPEM+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxPEM:
		return nil, fmt.Errorf("%s: it has over %d bytes", name, MaxPEM)
	}
	return data, nil
}
