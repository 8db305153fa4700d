package main

import (
	"crypto/tls"
	"net"
	"strings"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/internal/ops"
)

// access says who may ask the HTTP server what.
func (c *Config) access() ops.Access {
	a := ops.Access{}
	if c.HTTPTokenFile != "" {
		a.Token = c.password("http-token-file", "", c.HTTPTokenFile)
	}
	if c.HTTPTLSCert != "" {
		a.TLS = func() (*tls.Config, error) {
			return c.httpTLSFiles().Server()
		}
		a.Certificates = c.HTTPTLSCA != ""
	}
	return a
}

func (c *Config) httpTLSFiles() credential.TLSFiles {
	return credential.TLSFiles{Prefix: "http-tls", CA: c.HTTPTLSCA, Cert: c.HTTPTLSCert, Key: c.HTTPTLSKey}
}

// checkHTTP: whoever can reach the address must not be able to read, without
// further ado, what the pipeline says of servers and rows.
func (c *Config) checkHTTP() {
	r := c.report
	if problem := badAddress(c.HTTPListen, 0); problem != "" {
		r.refuse("http-listen", problem)
		return
	}
	used := c.HTTPTLSCert != "" || c.HTTPTLSKey != ""
	r.checkTLSFiles("http-tls", used, "--http-tls-cert and --http-tls-key")
	if c.HTTPTokenFile != "" {
		c.checkSecretFile("http-token-file", c.HTTPTokenFile)
	}
	host, _, _ := net.SplitHostPort(c.HTTPListen)
	if !isLoopback(host) && c.HTTPTokenFile == "" && !used {
		r.refuse("http-listen", "is beyond this machine: add --http-token-file FILE (a bearer token; probes stay open), or --http-tls-cert and --http-tls-key, with --http-tls-ca for clients' certificates")
	}
}

// isLoopback of an address as it is written. Another name may lead anywhere.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
