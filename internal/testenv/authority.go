package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates of a test's own.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Leaf says what a certificate is for: servers on the loopback and clients alike.
type Leaf struct {
	Name  string   // common name; a user's, for clients
	Hosts []string // empty: localhost, 127.0.0.1 and ::1
	From  time.Time
	Until time.Time // zero: an hour around now
}

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "authority of " + t.Name()},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{certificate: certificate, key: key}
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// PEM is the authority's certificate.
func (a *Authority) PEM() string { return encode("CERTIFICATE", a.certificate.Raw) }

// Sign makes a certificate and its key, both in PEM.
func (a *Authority) Sign(t testing.TB, leaf Leaf) (certificate, key string) {
	t.Helper()
	own := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: leaf.Name},
		NotBefore: leaf.From, NotAfter: leaf.Until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if leaf.Until.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	hosts := leaf.Hosts
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", private)
}

// Write puts a certificate and its key into a directory, over earlier ones of that
// name, and returns their paths.
func (a *Authority) Write(t testing.TB, directory string, leaf Leaf) (certificate, key string) {
	t.Helper()
	certificatePEM, keyPEM := a.Sign(t, leaf)
	return replaceFile(t, filepath.Join(directory, leaf.Name+".crt"), certificatePEM),
		replaceFile(t, filepath.Join(directory, leaf.Name+".key"), keyPEM)
}

// WriteCA puts the authority's certificate into a directory.
func (a *Authority) WriteCA(t testing.TB, directory string) string {
	t.Helper()
	return replaceFile(t, filepath.Join(directory, "ca.crt"), a.PEM())
}

// Server is a server's TLS.
func (a *Authority) Server(t testing.TB, leaf Leaf) *tls.Config {
	t.Helper()
	certificate, key := a.Sign(t, leaf)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// Client is a client's TLS, with a certificate of its own.
func (a *Authority) Client(t testing.TB, leaf Leaf) *tls.Config {
	t.Helper()
	config := a.Server(t, leaf)
	config.RootCAs = a.Pool()
	return config
}

// replaceFile renames a new file over the old one, as careful renewers do.
func replaceFile(t testing.TB, path, content string) string {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(content), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
