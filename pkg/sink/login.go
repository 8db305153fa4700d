package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Credentials of one login. Secret is the password, the bearer token, or AWS's
// secret key; Key and Session are AWS's alone.
type Credentials struct {
	Secret, Key, Session string
}

// String keeps secrets out of whatever prints it.
func (c Credentials) String() string { return "***" }

// GoString likewise.
func (c Credentials) GoString() string { return "***" }

const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"
	mechanismOAuth    = "OAUTHBEARER"
	mechanismAWS      = "AWS_MSK_IAM"
)

// login options: none without SASL. The library asks for credentials at each
// login, and once more on a connection whose session is about to end.
func (c *Config) login() ([]kgo.Opt, error) {
	if c.SASLMechanism == "" {
		if c.SASLUser != "" || c.Credentials != nil {
			return nil, errors.New("kafka SASL user or credentials given without a mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM")
		}
		return []kgo.Opt{}, nil
	}
	if c.Credentials == nil {
		return nil, fmt.Errorf("kafka SASL mechanism %s needs a password, token or keys", c.SASLMechanism)
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	return []kgo.Opt{kgo.SASL(mechanism)}, nil
}

func (c *Config) mechanism() (sasl.Mechanism, error) {
	user, ask := c.SASLUser, c.Credentials
	salted := func(ctx context.Context) (scram.Auth, error) {
		got, err := ask(ctx)
		return scram.Auth{User: user, Pass: got.Secret}, err
	}
	switch c.SASLMechanism {
	case mechanismPlain, mechanismScram256, mechanismScram512:
		if user == "" {
			return nil, fmt.Errorf("kafka SASL mechanism %s needs a user", c.SASLMechanism)
		}
	}
	switch c.SASLMechanism {
	case mechanismPlain:
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			got, err := ask(ctx)
			return plain.Auth{User: user, Pass: got.Secret}, err
		}), nil
	case mechanismScram256:
		return scram.Sha256(salted), nil
	case mechanismScram512:
		return scram.Sha512(salted), nil
	case mechanismOAuth:
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			got, err := ask(ctx)
			return oauth.Auth{Token: got.Secret}, err
		}), nil
	case mechanismAWS:
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
			got, err := ask(ctx)
			return aws.Auth{AccessKey: got.Key, SecretKey: got.Secret, SessionToken: got.Session, UserAgent: "walstream/" + c.Version}, err
		}), nil
	}
	return nil, fmt.Errorf("kafka SASL mechanism %q: allowed are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and AWS_MSK_IAM", c.SASLMechanism)
}
