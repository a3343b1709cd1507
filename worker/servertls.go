package worker

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"

	"reprieve.dev/pipeline"
)

// ServerTLS is what the HTTP port is served with: the certificate of http.tls, and with its ca only callers who have a certificate
// of that authority. Nil: http.tls is not said. Relative paths count from the worker file. Codes: ERR_CONFIG_READ,
// ERR_CONFIG_VALUE.
func (p *Plan) ServerTLS() (*tls.Config, error) {
	t := p.Config.HTTP.TLS
	if t.CA == "" && t.Cert == "" && t.Key == "" {
		return nil, nil
	}
	if t.Cert == "" || t.Key == "" {
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, "http.tls", "a certificate and its private key go together").With("write tls: {cert: FILE, key: FILE}")
	}
	cert, err := p.pem("http.tls.cert", t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := p.pem("http.tls.key", t.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, "http.tls", "the certificate cannot be used: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.CA == "" {
		return c, nil
	}
	ca, err := p.pem("http.tls.ca", t.CA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(ca) {
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, "http.tls.ca", "%s holds no certificate in PEM", t.CA)
	}
	return c, nil
}

func (p *Plan) pem(place, file string) ([]byte, error) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.base(), file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeConfigRead, place, "%w", err)
	}
	return text, nil
}
