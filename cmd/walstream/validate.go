package main

import (
	"fmt"
	"net"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

// tags are a setting's struct tags: kong's and reflect's both have them.
type tags interface{ Get(key string) string }

var (
	slotName     = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	pipelineName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	topicName    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	topicPattern = regexp.MustCompile(`^[A-Za-z0-9._*?\[\]^-]+$`)
	topicSetting = regexp.MustCompile(`^[a-z][a-z.]*$`)
	systemID     = regexp.MustCompile(`^[0-9]{1,20}$`)
	placeholder  = regexp.MustCompile(`\{[^{}]*\}`)
)

const (
	topicLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

	// maxIdentifier is PostgreSQL's NAMEDATALEN less one: it cuts longer names
	// without an error.
	maxIdentifier = 63
	// maxPipeline leaves room for "walstream.dead-letters." in a topic's 249.
	maxPipeline = 226
)

// validate checks every setting and derives what is named after others. Faults
// go to the report, all of them.
func (c *Config) validate() {
	r := c.report
	for _, f := range r.settings {
		c.checkTags(f.Name, f.Tag, f.Target)
	}
	c.checkPostgres()
	c.checkNames()
	c.checkKafka()
	c.checkTLS()
	c.checkSASL()
	c.checkRegistry()
	c.checkTopics()
	c.checkOperation()
	c.validateRetention()
	if r.set("outboxes") {
		c.checkOutboxes()
	} else {
		c.checkMapping("", &c.Outbox)
	}
}

// checkTags checks what the table of settings itself says: values and range.
func (c *Config) checkTags(name string, t tags, value reflect.Value) {
	if problem := outsideValues(t, value); problem != "" {
		c.report.refuse(name, problem)
	}
	if problem := outsideRange(t, value); problem != "" {
		c.report.refuse(name, problem)
	}
}

func outsideValues(t tags, value reflect.Value) string {
	allowed := t.Get("values")
	if allowed == "" || contains(allowed, value.String()) {
		return ""
	}
	problem := "is not known"
	if value.String() == "" {
		problem = errEmpty.Error()
	}
	return problem + "; " + allowedText(t)
}

func contains(list, value string) bool {
	for v := range strings.SplitSeq(list, ",") {
		if v == value {
			return true
		}
	}
	return false
}

func outsideRange(t tags, value reflect.Value) string {
	low, high, ok := strings.Cut(t.Get("range"), "..")
	if !ok {
		return ""
	}
	bound := reflect.New(value.Type()).Elem()
	for i, text := range []string{low, high} {
		if err := parseValue(bound, text); err != nil {
			panic(fmt.Sprintf("walstream: bug: range %s..%s: %v", low, high, err))
		}
		if i == 0 && value.Int() < bound.Int() || i == 1 && value.Int() > bound.Int() {
			return "is out of range; " + allowedText(t)
		}
	}
	return ""
}

// allowedText says what the table of settings allows.
func allowedText(t tags) string {
	if low, high, ok := strings.Cut(t.Get("range"), ".."); ok {
		return "allowed: " + low + " to " + high
	}
	if values := t.Get("values"); values != "" {
		return "allowed: " + strings.Join(strings.FieldsFunc(values, func(r rune) bool { return r == ',' }), ", ")
	}
	return ""
}

// explain adds to an error of parseValue what is allowed.
func explain(err error, t tags) string {
	if allowed := allowedText(t); allowed != "" {
		return err.Error() + "; " + allowed
	}
	return err.Error()
}

func (c *Config) checkPostgres() {
	config, err := parsePostgres(c.Postgres)
	if err != nil {
		if !c.report.set("postgres") {
			c.report.origins["postgres"] = "PG* variables"
		}
		c.report.refuse("postgres", err.Error())
		return
	}
	c.keepPostgresSecrets(config)
	switch {
	case c.PostgresPasswordFile == "":
	case maskPostgres(c.Postgres) != c.Postgres:
		c.report.refuse("postgres-password-file", "does not go with a password in postgres ("+c.report.origin("postgres")+"): choose one")
	default:
		c.checkSecretFile("postgres-password-file", c.PostgresPasswordFile, config.User, config.Database, config.Host, "postgres")
	}
	c.connection = fmt.Sprintf("PG* variables and libpq's defaults give user %s, host %s, port %d, database %s",
		config.User, config.Host, config.Port, databaseOf(config))
	c.derive(databaseOf(config))
}

func (c *Config) checkNames() {
	r := c.report
	switch {
	case c.Slot == "" && r.blind:
	case c.Slot == "":
		r.refuse("slot", "is required: --slot NAME, "+variableOf("slot")+" or slot: in the file")
	case !slotName.MatchString(c.Slot):
		r.refuse("slot", "is no slot name; PostgreSQL allows 1 to 63 of a-z, 0-9 and _")
	}
	if c.Slot == "" || r.faulty("slot") { // names derived from it would only repeat the fault
		return
	}
	if c.Pipeline == "" && !r.faulty("postgres") {
		r.refuse("pipeline", "cannot be derived: the connection settings name neither a database nor a user; give one, or --pipeline")
	} else if c.Pipeline != "" && (!pipelineName.MatchString(c.Pipeline) || len(c.Pipeline) > maxPipeline) {
		problem := fmt.Sprintf("names topics and so may hold 1 to %d of letters, digits and ._-", maxPipeline)
		if strings.HasPrefix(r.origin("pipeline"), "derived") {
			problem += "; this one comes from the database's name: choose another with --pipeline"
		}
		r.refuse("pipeline", problem)
	}
	if len(c.Publication) > maxIdentifier || strings.ContainsRune(c.Publication, 0) {
		r.refuse("publication", fmt.Sprintf("is longer than the %d bytes PostgreSQL keeps: choose another with --publication", maxIdentifier))
	}
	if c.AcceptServer != "" && !systemID.MatchString(c.AcceptServer) {
		r.refuse("accept-server", "is no system identifier: a number such as 7301234567890123456")
	}
}

func (c *Config) checkKafka() {
	if len(c.KafkaBrokers) == 0 {
		c.report.refuse("kafka-brokers", "is empty; allowed: host:port, ...")
	}
	for _, broker := range c.KafkaBrokers {
		if problem := badAddress(broker, 1); problem != "" {
			c.report.refuse("kafka-brokers", problem)
		}
	}
}

func (c *Config) checkTopics() {
	for _, pattern := range c.TopicsAllowed {
		if _, err := path.Match(pattern, ""); err != nil || !topicPattern.MatchString(pattern) {
			c.report.refuse("topics-allowed", "holds what is no pattern; letters, digits and ._- of topics, and * ? [a-z]")
		}
	}
	for n, word := range c.TopicConfig {
		if key, _, ok := strings.Cut(word, "="); ok && !topicSetting.MatchString(strings.TrimSpace(key)) || !ok && n == 0 {
			c.report.refuse("topic-config", "is no list of KEY=VALUE, such as cleanup.policy=compact,retention.ms=604800000")
		}
	}
	if c.CreateTopics {
		return
	}
	if len(c.TopicConfig) > 0 {
		c.report.refuse("topic-config", "has no effect without --create-topics")
	}
	for _, name := range []string{"topic-partitions", "topic-replication-factor"} {
		if c.report.flags[name].Target.Int() != 0 {
			c.report.refuse(name, "has no effect without --create-topics")
		}
	}
}

func (c *Config) checkOperation() {
	c.checkHTTP()
	if c.StallTimeout <= c.StatusInterval {
		c.report.refuse("stall-timeout", "must be longer than status-interval, "+formatDuration(c.StatusInterval))
	}
	if c.FromStandby {
		c.checkFromStandby()
	}
	if c.RewindWindow > 0 && len(replication.RewindSlot(c.Slot)) > replication.MaxSlotName {
		c.report.refuse("rewind-window", fmt.Sprintf("wants a slot %s, a name longer than %d characters: give --slot a shorter one", replication.RewindSlot(c.Slot), replication.MaxSlotName))
	}
	if c.Snapshot == string(pipeline.SnapshotNever) {
		if c.SnapshotWhere != "" {
			c.report.refuse("snapshot-where", "has no effect with --snapshot never")
		}
	} else if c.Sink == "stdout" {
		c.report.refuse("snapshot", "has no effect: --sink stdout shows the stream only")
	}
}

// checkFromStandby: what is made on a standby server stays there.
func (c *Config) checkFromStandby() {
	if c.SlotFailover {
		c.report.refuse("slot-failover", "does not go with --from-standby: a standby server's own slot is not copied to others")
	}
	if c.Snapshot != string(pipeline.SnapshotNever) {
		c.report.refuse("snapshot", "does not go with --from-standby: a snapshot is read from the primary")
	}
	if c.RewindWindow > 0 {
		c.report.refuse("rewind-window", "does not go with --from-standby: rewind slots are for primaries, which keep them in bounds")
	}
	const noWrites = "does not go with --from-standby: a server in recovery takes no writes; walstream prune deletes on the primary"
	if c.Retention > 0 {
		c.report.refuse("retention", noWrites)
	}
	if c.Stamp != "" {
		c.report.refuse("stamp", noWrites)
	}
	if options := c.postgresOptions(); options.Servers() > 1 {
		c.report.refuse("from-standby", "needs an address of one server: a slot made on a standby server is on that one only")
	}
}

func (c *Config) validateRetention() {
	if c.Sink != "stdout" {
		return
	}
	for _, name := range []string{"retention", "stamp"} {
		if c.report.set(name) {
			c.report.refuse(name, "has no effect: --sink stdout publishes nothing")
		}
	}
}

// badAddress says what is wrong with host:port.
func badAddress(address string, lowest int) string {
	host, port, err := net.SplitHostPort(address)
	switch {
	case address == "":
		return errEmpty.Error() + "; allowed: host:port"
	case strings.Contains(address, "://"):
		return "has a scheme; allowed: host:port"
	case err != nil && strings.Count(address, ":") > 1 && !strings.HasPrefix(address, "["):
		return "is ambiguous; an IPv6 address is written [::1]:9092"
	case err != nil || host == "" && lowest > 0:
		return "is not host:port"
	case strings.ContainsAny(host, "/ @"):
		return "has a host that is no host name; allowed: host:port"
	}
	if n, err := strconv.Atoi(port); err != nil || n < lowest || n > 65535 {
		return fmt.Sprintf("has a port that is not a number from %d to 65535", lowest)
	}
	return ""
}

func (c *Config) checkOutboxes() {
	r := c.report
	for _, f := range outboxFields(&c.Outbox) {
		if r.set(f.name) {
			r.refuse(f.name, "does not go with outboxes ("+r.origin("outboxes")+"), where each table has its own")
		}
	}
	seen := map[Table]bool{}
	for i := range c.Outboxes {
		o, path := &c.Outboxes[i], fmt.Sprintf("outboxes[%d].", i)
		for _, f := range outboxFields(o) {
			if f.value.Kind() == reflect.String {
				c.checkTags(path+f.name, f.tags, f.value)
			}
		}
		if o.Table == (Table{}) && !r.faulty(path+"table") {
			r.add(path+"table", r.origin(strings.TrimSuffix(path, ".")), "is required")
		} else if seen[o.Table] {
			r.refuse(path+"table", "is in the list twice")
		}
		seen[o.Table] = true
		c.checkMapping(path, o)
	}
}

func validTopic(name string) bool { return topicName.MatchString(name) && name != "." && name != ".." }
