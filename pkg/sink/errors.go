package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/decode"
)

// ErrFenced: another instance has claimed the pipeline's transactional ids, or
// the broker gave up on a transaction of ours. Either way nothing more may be
// written; the start order finds out which.
var ErrFenced = errors.New("fenced in kafka: another instance of this pipeline has taken over, or a transaction outlived its time-out")

// ErrUncertain: Kafka did not say what became of a request that changes state.
// The pipeline goes back to its durable checkpoint instead of guessing.
var ErrUncertain = errors.New("kafka left the outcome open")

// ErrRegistry: the schema registry does not answer.
var ErrRegistry = errors.New("the schema registry does not answer")

// DeliveryError is a row that Kafka, or the check before sending, refuses for
// good. The position is held before it.
type DeliveryError struct {
	Topic    string
	Position decode.Position
	RowID    string // text of the id column; may be empty
	Size     int    // bytes of the record alone in a batch, uncompressed
	Err      error  // what was refused, and the way out
}

func (e *DeliveryError) Error() string {
	row := "row at " + e.Position.String()
	if e.RowID != "" {
		row = fmt.Sprintf("row %q at %s", e.RowID, e.Position)
	}
	return fmt.Sprintf("%s (%s) cannot be published to topic %q: %s", row, humanize.IBytes(uint64(e.Size)), e.Topic, e.Err)
}

func (e *DeliveryError) Unwrap() error { return e.Err }

// AccessError is a right that is missing in Kafka, or a login that failed.
type AccessError struct {
	Right    string // "Write", "Describe", ..., or "login"
	Resource string // `topic "x"`, `transactional id "x"`, `cluster`
	User     string // who asked; empty without SASL
	Grant    string // the command that gives the right
	Err      error
}

func (e *AccessError) Error() string {
	if e.Right == rightLogin {
		remedy := "check kafka-sasl-mechanism, and the user, password, token or keys it logs in by"
		if errors.Is(e.Err, kerr.IllegalSaslState) {
			remedy = "this listener takes no login: name the one that does in kafka-brokers, or leave kafka-sasl-mechanism out"
		}
		who := ""
		if e.User != "" {
			who = fmt.Sprintf(" of user %q", e.User)
		}
		return fmt.Sprintf("kafka refuses the login%s: %s; %s", who, e.Err, remedy)
	}
	principal := "User:" + e.User
	if e.User == "" {
		principal = "the principal of this connection"
	}
	return fmt.Sprintf("the right %s on %s is missing (%s): grant it to %s (%s)", e.Right, e.Resource, e.Err, principal, e.Grant)
}

func (e *AccessError) Unwrap() error { return e.Err }

// SetupError is a cluster that is not as walstream needs it; a person has to
// change something.
type SetupError struct {
	Found  string
	Remedy string
	TLS    bool // the handshake failed
}

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

// CheckpointError is a record with the pipeline's key in its checkpoint topic
// that is no checkpoint: somebody else wrote it. What is published is not known
// without it.
type CheckpointError struct {
	Topic    string
	Offset   int64
	Pipeline string
	Look     string // the command that shows what is in the topic
	Err      error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the newest record of key %q in topic %q, at offset %d, is no checkpoint of walstream: %s; "+
		"find out who writes there, and write the value of that key before it once more, or, if none is left, a tombstone, "+
		"after which the start names the --adopt-slot to use (what is there: %s)", e.Pipeline, e.Topic, e.Offset, e.Err, e.Look)
}

func (e *CheckpointError) Unwrap() error { return e.Err }

const (
	rightLogin    = "login"
	rightRead     = "Read"
	rightWrite    = "Write"
	rightCreate   = "Create"
	rightDescribe = "Describe"
	rightConfigs  = "DescribeConfigs"
	rightDelete   = "Delete"

	rightIdempotent = "IdempotentWrite" // before Kafka 3.0
)

// Retriable reports whether going through the start order again, after a pause,
// can mend err without a person: connections, brokers that are down or electing,
// fencing, open outcomes. Refused rows, missing rights, and a cluster set up
// otherwise than needed are not.
func Retriable(err error) bool {
	if err == nil {
		return false
	}
	var (
		delivery *DeliveryError
		access   *AccessError
		setup    *SetupError
		strange  *CheckpointError
	)
	if errors.As(err, &delivery) || errors.As(err, &access) || errors.As(err, &setup) || errors.As(err, &strange) {
		return false
	}
	for _, target := range []error{
		ErrFenced, ErrUncertain, ErrSentAgain, ErrRegistry, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		context.DeadlineExceeded, kgo.ErrClientClosed,
		kerr.ConcurrentTransactions, kerr.UnknownServerError,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Retriable
	}
	var network net.Error
	return errors.As(err, &network) || kgo.IsRetryableBrokerErr(err)
}

// RefusedLogin tells the errors by which one end does not believe the other who it
// is: by password, token or certificate.
func RefusedLogin(err error) bool {
	access, isAccess := errors.AsType[*AccessError](err)
	setup, isSetup := errors.AsType[*SetupError](err)
	return isAccess && access.Right == rightLogin || isSetup && setup.TLS
}

// isAccess tells the errors that mean a missing right or a failed login.
func isAccess(err error) bool {
	for _, target := range []error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return isLogin(err)
}

func isLogin(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) ||
		errors.Is(err, kerr.IllegalSaslState) // to a listener without logins
}

// isTLS tells a handshake that no retry mends. A connection that is cut off
// during one is not among them.
func isTLS(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	return errors.As(err, &certificate) || errors.As(err, &record) || isAlert(err)
}

// isAlert tells the broker's word on our certificate, or on what else we offer; TLS
// 1.3 has it after the handshake.
func isAlert(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	if !ok || alert.Op != "remote error" {
		return false
	}
	for _, lasting := range []string{"certificate", "handshake failure", "protocol version"} {
		if strings.Contains(alert.Error(), lasting) {
			return true
		}
	}
	return false
}

func isFenced(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced)
}

func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// explain wraps the error of a request with what was being done and where, and
// turns a missing right into an AccessError naming it.
func (k *Kafka) explain(err error, doing, right, resource string) error {
	switch {
	case err == nil:
		return nil
	case isTLS(err):
		err = &SetupError{
			TLS:    true,
			Found:  fmt.Sprintf("the TLS handshake failed: %v", err),
			Remedy: "check kafka-tls, kafka-tls-ca, kafka-tls-cert and kafka-tls-key against the listener that kafka-brokers names; the name used must be in the broker's certificate, and an authority that the broker trusts (its truststore) must have signed ours",
		}
	case isLogin(err):
		err = &AccessError{Right: rightLogin, Resource: "cluster", User: k.cfg.SASLUser, Err: err}
	case isAccess(err):
		err = k.cfg.denied(right, resource, err)
	}
	var code *kerr.Error
	if why := k.conns.last(); why != "" && !errors.As(err, &code) && !strings.Contains(err.Error(), why) {
		err = fmt.Errorf("%w (the last connection failed: %s)", err, why)
	}
	return fmt.Errorf("%s (kafka at %s): %w", doing, strings.Join(k.cfg.Brokers, ","), err)
}

func topicResource(name string) string { return fmt.Sprintf("topic %q", name) }
