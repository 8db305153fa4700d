package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// KafkaTLSConfig is how to connect to the brokers; nil without TLS. The files
// are read anew at each call, so a renewed certificate needs no restart.
func (c *Config) KafkaTLSConfig() (*tls.Config, error) {
	if !c.KafkaTLS {
		return nil, nil //nolint:nilnil // nil is TLS switched off, as for kgo
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.KafkaTLSCA != "" {
		pool, err := readAuthorities(c.KafkaTLSCA)
		if err != nil {
			return nil, fmt.Errorf("kafka-tls-ca %w", err)
		}
		config.RootCAs = pool
	}
	if c.KafkaTLSCert != "" {
		pair, err := readKeyPair(c.KafkaTLSCert, c.KafkaTLSKey)
		if err != nil {
			return nil, fmt.Errorf("kafka-tls-cert %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
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

// readKeyPair does not wrap what crypto/tls says beyond its text: it has
// nothing of the key in it, and we leave it at that.
func readKeyPair(cert, key string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	var path *os.PathError
	switch {
	case errors.As(err, &path) && path.Path == key:
		return pair, fmt.Errorf("has a key that cannot be read: %w", path.Err)
	case errors.As(err, &path):
		return pair, fmt.Errorf("cannot be read: %w", path.Err)
	case err != nil:
		return pair, fmt.Errorf("and kafka-tls-key are no pair: %w", err)
	}
	return pair, nil
}

// SASLPassword is the setting's, or the content of its file without the line's
// end. The file is read anew at each call.
func (c *Config) SASLPassword() (string, error) {
	if c.KafkaSASLPasswordFile == "" {
		return c.KafkaSASLPassword, nil
	}
	content, err := os.ReadFile(c.KafkaSASLPasswordFile)
	if err != nil {
		return "", fmt.Errorf("kafka-sasl-password-file cannot be read: %w", cause(err))
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", errors.New("kafka-sasl-password-file is an empty file")
	}
	return password, nil
}

func (c *Config) checkTLS() {
	r := c.report
	for _, name := range []string{"kafka-tls-ca", "kafka-tls-cert", "kafka-tls-key"} {
		value := r.flags[name].Target.String()
		if strings.Contains(value, "-----BEGIN") {
			r.refuse(name, "wants the path of a PEM file, not its content")
		} else if value != "" && !c.KafkaTLS {
			r.refuse(name, "has no effect without --kafka-tls")
		}
	}
	switch {
	case c.KafkaTLSCert != "" && c.KafkaTLSKey == "":
		r.refuse("kafka-tls-cert", "needs kafka-tls-key beside it")
	case c.KafkaTLSKey != "" && c.KafkaTLSCert == "":
		r.refuse("kafka-tls-key", "needs kafka-tls-cert beside it")
	}
	if !c.KafkaTLS || r.faulty("kafka-tls-ca") || r.faulty("kafka-tls-cert") || r.faulty("kafka-tls-key") {
		return
	}
	if c.KafkaTLSCA != "" {
		if _, err := readAuthorities(c.KafkaTLSCA); err != nil {
			r.refuse("kafka-tls-ca", err.Error())
		}
	}
	if c.KafkaTLSCert != "" {
		if _, err := readKeyPair(c.KafkaTLSCert, c.KafkaTLSKey); err != nil {
			r.refuse("kafka-tls-cert", err.Error())
		}
	}
}

func (c *Config) checkSASL() {
	r := c.report
	if c.KafkaSASLMechanism == "" {
		for _, name := range []string{"kafka-sasl-user", "kafka-sasl-password", "kafka-sasl-password-file"} {
			if r.flags[name].Target.String() != "" {
				r.refuse(name, "has no effect without --kafka-sasl-mechanism")
			}
		}
	}
	c.keepSecret(c.KafkaSASLPassword, c.KafkaSASLUser)
	switch {
	case c.KafkaSASLPassword == masked:
		r.refuse("kafka-sasl-password", "is the mask that walstream config prints, not the password")
	case c.KafkaSASLPassword != "" && c.KafkaSASLPasswordFile != "":
		r.refuse("kafka-sasl-password-file", "does not go with kafka-sasl-password ("+r.origin("kafka-sasl-password")+"): choose one")
	case c.KafkaSASLMechanism == "":
	case c.KafkaSASLUser == "":
		r.refuse("kafka-sasl-user", "is required by kafka-sasl-mechanism")
	case c.KafkaSASLPassword == "" && c.KafkaSASLPasswordFile == "":
		r.refuse("kafka-sasl-password", "is required by kafka-sasl-mechanism: "+variableOf("kafka-sasl-password")+" or --kafka-sasl-password-file FILE")
	default:
		password, err := c.SASLPassword()
		if err != nil {
			r.refuse("kafka-sasl-password-file", strings.TrimPrefix(err.Error(), "kafka-sasl-password-file "))
		}
		c.keepSecret(password, c.KafkaSASLUser)
	}
}
