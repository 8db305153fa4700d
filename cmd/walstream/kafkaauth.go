package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"net/url"
	"os"
	"strings"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/pkg/sink"
)

// kafkaTLS makes the settings of a connection to a broker; nil without TLS.
func (c *Config) kafkaTLS() func() (*tls.Config, error) {
	if !c.KafkaTLS {
		return nil
	}
	return c.kafkaTLSFiles().Client
}

func (c *Config) kafkaTLSFiles() credential.TLSFiles {
	return credential.TLSFiles{Prefix: "kafka-tls", CA: c.KafkaTLSCA, Cert: c.KafkaTLSCert, Key: c.KafkaTLSKey}
}

// The mechanisms that are not a user with a password.
const (
	saslOAuth = "oauthbearer"
	saslAWS   = "aws-msk-iam"
)

// saslMechanism by the name Kafka has for it.
func (c *Config) saslMechanism() string {
	if c.KafkaSASLMechanism == saslAWS {
		return "AWS_MSK_IAM"
	}
	return strings.ToUpper(c.KafkaSASLMechanism)
}

// principal is who logs in, as far as the settings know.
func (c *Config) principal() string {
	if c.KafkaSASLMechanism == saslOAuth {
		return "" // the token says
	}
	return c.KafkaSASLUser
}

// credentials are asked for at each login; nil without SASL. What they are is
// hidden from then on, wherever it would be shown.
func (c *Config) credentials() func(context.Context) (sink.Credentials, error) {
	switch c.KafkaSASLMechanism {
	case "":
		return nil
	case saslAWS:
		source := &credential.AWS{Getenv: os.Getenv}
		return func(ctx context.Context) (sink.Credentials, error) {
			keys, err := source.Keys(ctx)
			c.keepSecret(keys.Secret)
			c.keepSecret(keys.Session)
			return sink.Credentials{Key: keys.Access, Secret: keys.Secret, Session: keys.Session}, err
		}
	case saslOAuth:
		source := c.tokens()
		return func(ctx context.Context) (sink.Credentials, error) {
			token, err := source(ctx)
			c.keepSecret(token)
			return sink.Credentials{Secret: token}, err
		}
	}
	password := c.saslPassword()
	return func(context.Context) (sink.Credentials, error) {
		text, err := password()
		return sink.Credentials{Secret: text}, err
	}
}

// tokens come from a file, or from an endpoint.
func (c *Config) tokens() func(context.Context) (string, error) {
	if c.KafkaSASLTokenURL == "" {
		return func(context.Context) (string, error) {
			return credential.Secret("kafka-sasl-token-file", c.KafkaSASLTokenFile)
		}
	}
	return (&credential.Tokens{
		Setting: "kafka-sasl-token-url", URL: c.KafkaSASLTokenURL, Client: c.KafkaSASLUser,
		Secret: c.saslPassword(), Scope: c.KafkaSASLScope, TLS: c.tokenTLSFiles(),
	}).Token
}

// tokenTLSFiles: the authorities that vouch for the brokers vouch for the
// endpoint too. The client's certificate is for the brokers alone.
func (c *Config) tokenTLSFiles() credential.TLSFiles {
	return credential.TLSFiles{Prefix: "kafka-tls", CA: c.KafkaTLSCA}
}

func (c *Config) saslPassword() func() (string, error) {
	return c.password("kafka-sasl-password-file", c.KafkaSASLPassword, c.KafkaSASLPasswordFile, c.KafkaSASLUser)
}

// password of a setting or, where one is named, a file, which is read anew each
// time.
func (c *Config) password(setting, text, file string, ordinary ...string) func() (string, error) {
	return func() (string, error) {
		secret, err := text, error(nil)
		if file != "" {
			secret, err = credential.Secret(setting, file)
		}
		c.keepSecret(secret, ordinary...)
		if err == nil && len(ordinary) > 0 { // as HTTP's basic authentication has it: a server may quote that
			c.keepSecret(base64.StdEncoding.EncodeToString([]byte(ordinary[0] + ":" + secret)))
		}
		return secret, err
	}
}

func (c *Config) checkTLS() {
	c.report.checkTLSFiles("kafka-tls", c.KafkaTLS, "--kafka-tls")
}

// checkTLSFiles checks the settings ca, cert and key that begin with prefix.
func (r *report) checkTLSFiles(prefix string, used bool, by string) {
	ca, cert, key := prefix+"-ca", prefix+"-cert", prefix+"-key"
	value := func(name string) string {
		if flag := r.flags[name]; flag != nil {
			return flag.Target.String()
		}
		return ""
	}
	for _, name := range []string{ca, cert, key} {
		if strings.Contains(value(name), "-----BEGIN") {
			r.refuse(name, "wants the path of a PEM file, not its content")
		} else if value(name) != "" && !used {
			r.refuse(name, "has no effect without "+by)
		}
	}
	switch {
	case value(cert) != "" && value(key) == "":
		r.refuse(cert, "needs "+key+" beside it")
	case value(key) != "" && value(cert) == "":
		r.refuse(key, "needs "+cert+" beside it")
	}
	if !used || r.faulty(ca) || r.faulty(cert) || r.faulty(key) {
		return
	}
	if value(ca) != "" {
		if _, err := credential.Authorities(value(ca)); err != nil {
			r.refuse(ca, err.Error())
		}
	}
	if value(cert) != "" {
		if _, err := credential.KeyPair(value(cert), value(key)); err != nil {
			r.refuse(cert, err.Error())
		}
	}
}

// checkSecretFile reads a file of a secret once: whoever starts walstream is told
// at once, who rotates it later by the log.
func (c *Config) checkSecretFile(setting, file string, ordinary ...string) {
	secret, err := credential.Secret(setting, file)
	if err != nil {
		c.report.refuse(setting, strings.TrimPrefix(err.Error(), setting+" "))
	}
	c.keepSecret(secret, ordinary...)
}

func (c *Config) checkSASL() {
	r := c.report
	c.keepSecret(c.KafkaSASLPassword, c.KafkaSASLUser)
	if c.KafkaSASLPassword == masked {
		r.refuse("kafka-sasl-password", "is the mask that walstream config prints, not the password")
		return
	}
	if c.KafkaSASLPassword != "" && c.KafkaSASLPasswordFile != "" {
		r.refuse("kafka-sasl-password-file", "does not go with kafka-sasl-password ("+r.origin("kafka-sasl-password")+"): choose one")
		return
	}
	password := []string{"kafka-sasl-user", "kafka-sasl-password", "kafka-sasl-password-file"}
	token := []string{"kafka-sasl-token-file", "kafka-sasl-token-url", "kafka-sasl-scope"}
	switch c.KafkaSASLMechanism {
	case "":
		c.refuseAll(append(password, token...), "has no effect without --kafka-sasl-mechanism")
	case saslAWS:
		c.refuseAll(append(password, token...), "has no effect with aws-msk-iam, whose keys come from AWS_* variables, the profile, the container or the instance")
	case saslOAuth:
		c.checkTokens()
	default:
		c.refuseAll(token, "has no effect without --kafka-sasl-mechanism oauthbearer")
		c.checkUser("kafka-sasl-mechanism")
	}
}

func (c *Config) refuseAll(names []string, problem string) {
	for _, name := range names {
		if c.report.flags[name].Target.String() != "" {
			c.report.refuse(name, problem)
		}
	}
}

// checkUser: a user and a password are there.
func (c *Config) checkUser(by string) {
	r := c.report
	switch {
	case c.KafkaSASLUser == "":
		r.refuse("kafka-sasl-user", "is required by "+by)
	case c.KafkaSASLPassword == "" && c.KafkaSASLPasswordFile == "":
		r.refuse("kafka-sasl-password", "is required by "+by+": "+variableOf("kafka-sasl-password")+" or --kafka-sasl-password-file FILE")
	case c.KafkaSASLPasswordFile != "":
		c.checkSecretFile("kafka-sasl-password-file", c.KafkaSASLPasswordFile, c.KafkaSASLUser)
	}
}

func (c *Config) checkTokens() {
	r := c.report
	switch {
	case c.KafkaSASLTokenFile == "" && c.KafkaSASLTokenURL == "":
		r.refuse("kafka-sasl-token-file", "is required by oauthbearer, or kafka-sasl-token-url")
	case c.KafkaSASLTokenFile != "" && c.KafkaSASLTokenURL != "":
		r.refuse("kafka-sasl-token-file", "does not go with kafka-sasl-token-url ("+r.origin("kafka-sasl-token-url")+"): choose one")
	case c.KafkaSASLTokenFile != "":
		c.refuseAll([]string{"kafka-sasl-user", "kafka-sasl-password", "kafka-sasl-password-file", "kafka-sasl-scope"}, "has no effect without --kafka-sasl-token-url")
		c.checkSecretFile("kafka-sasl-token-file", c.KafkaSASLTokenFile)
	default:
		u, err := url.Parse(c.KafkaSASLTokenURL)
		switch {
		case err != nil || u.Host == "" || u.User != nil:
			r.refuse("kafka-sasl-token-url", "is no URL such as https://login.example.com/oauth2/token; the client is said by kafka-sasl-user and its password")
		case u.Scheme != "https" && !isLoopback(u.Hostname()):
			r.refuse("kafka-sasl-token-url", "is not https: the client's password would go out in clear")
		}
		c.checkUser("kafka-sasl-token-url")
	}
}
