package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

// writePair writes name.crt and name.key: a certificate for 127.0.0.1 that signed itself.
func writePair(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"example.com"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: cert}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThePortIsServedWithItsCertificate(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"server", "caller", "stranger"} {
		writePair(t, dir, name)
	}
	serve := func(section config.TLS) *httptest.Server {
		c, err := (&Plan{File: filepath.Join(dir, "reprieve.yaml"), Config: &config.Worker{HTTP: config.HTTP{TLS: section}}}).ServerTLS()
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = c
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	get := func(s *httptest.Server, as string) error {
		text, err := os.ReadFile(filepath.Join(dir, "server.crt"))
		if err != nil {
			t.Fatal(err)
		}
		c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"}
		c.RootCAs.AppendCertsFromPEM(text)
		if as != "" {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, as+".crt"), filepath.Join(dir, as+".key"))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		defer client.CloseIdleConnections()
		r, err := client.Get(s.URL)
		if err != nil {
			return err
		}
		return r.Body.Close()
	}
	open := serve(config.TLS{Cert: "server.crt", Key: filepath.Join(dir, "server.key")})
	if err := get(open, ""); err != nil {
		t.Error(err)
	}
	known := serve(config.TLS{Cert: "server.crt", Key: "server.key", CA: "caller.crt"})
	for as, ok := range map[string]bool{"caller": true, "stranger": false, "": false} {
		if err := get(known, as); (err == nil) != ok {
			t.Errorf("%q is served: %v", as, err)
		}
	}
}

func TestAWrongCertificateIsNamed(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "server")
	writePair(t, dir, "other")
	for name, c := range map[string]struct {
		section config.TLS
		code    pipeline.Code
		place   string
	}{
		"no key":             {config.TLS{Cert: "server.crt"}, pipeline.CodeConfigValue, "http.tls"},
		"an authority alone": {config.TLS{CA: "server.crt"}, pipeline.CodeConfigValue, "http.tls"},
		"another's key":      {config.TLS{Cert: "server.crt", Key: "other.key"}, pipeline.CodeConfigValue, "http.tls"},
		"no such file":       {config.TLS{Cert: "nowhere.crt", Key: "server.key"}, pipeline.CodeConfigRead, "http.tls.cert"},
		"no such key":        {config.TLS{Cert: "server.crt", Key: "nowhere.key"}, pipeline.CodeConfigRead, "http.tls.key"},
		"no authority in it": {config.TLS{Cert: "server.crt", Key: "server.key", CA: "server.key"}, pipeline.CodeConfigValue, "http.tls.ca"},
		"no such authority":  {config.TLS{Cert: "server.crt", Key: "server.key", CA: "nowhere.crt"}, pipeline.CodeConfigRead, "http.tls.ca"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Plan{File: filepath.Join(dir, "reprieve.yaml"), Config: &config.Worker{HTTP: config.HTTP{TLS: c.section}}}).ServerTLS()
			if e, ok := errors.AsType[*pipeline.Error](err); !ok || e.Code != c.code || e.Place != c.place {
				t.Errorf("got %v", err)
			}
		})
	}
	none, err := (&Plan{Config: &config.Worker{}}).ServerTLS()
	if none != nil || err != nil {
		t.Error(none, err)
	}
}
