package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Error is a credential that cannot be had at the moment. It is a net.Error, so
// that clients of PostgreSQL and Kafka try again as they do when a host is away.
type Error struct {
	Setting string
	Err     error
}

func (e *Error) Error() string { return e.Setting + " " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Temporary is net.Error's.
func (e *Error) Temporary() bool { return true }

// Timeout is net.Error's.
func (e *Error) Timeout() bool { return false }

// Secret is what a file holds, without the line's end.
func Secret(setting, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", &Error{setting, fmt.Errorf("cannot be read: %w", cause(err))}
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", &Error{setting, errors.New("is an empty file")}
	}
	return secret, nil
}

// TLSFiles name the files of one end of a connection; any may be empty.
type TLSFiles struct {
	// Prefix of the settings that name them, for errors: <prefix>-ca.
	Prefix        string
	CA, Cert, Key string
}

// Client is how to connect to a server: its certificate is checked against CA, or
// the system's authorities.
func (f TLSFiles) Client() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if f.CA != "" {
		if config.RootCAs, err = Authorities(f.CA); err != nil {
			return nil, &Error{f.Prefix + "-ca", err}
		}
	}
	if f.Cert != "" {
		pair, err := KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, &Error{f.Prefix + "-cert", err}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Server is how to serve: with Cert and Key, and with CA knowing the clients whose
// certificate one of its authorities has signed. A client without one is let in
// too; whoever answers decides what for.
func (f TLSFiles) Server() (*tls.Config, error) {
	pair, err := KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, &Error{f.Prefix + "-cert", err}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.CA != "" {
		if config.ClientCAs, err = Authorities(f.CA); err != nil {
			return nil, &Error{f.Prefix + "-ca", err}
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// Authorities of a PEM file.
func Authorities(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("holds no certificate in PEM")
	}
	return pool, nil
}

// KeyPair of two PEM files. What crypto/tls says has nothing of the key in it.
func KeyPair(cert, key string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	var path *os.PathError
	switch {
	case errors.As(err, &path) && path.Path == key:
		return pair, fmt.Errorf("has a key that cannot be read: %w", path.Err)
	case errors.As(err, &path):
		return pair, fmt.Errorf("cannot be read: %w", path.Err)
	case err != nil:
		return pair, fmt.Errorf("and its key are no pair: %w", err)
	}
	return pair, nil
}

// cause drops the path that os puts into its errors: the setting names it.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
