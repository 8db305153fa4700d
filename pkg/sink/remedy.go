package sink

import (
	"fmt"
	"strings"
)

// command of Kafka's own tools, as it can be run: all of them want an address.
func (c *Config) command(tool, format string, args ...any) string {
	return fmt.Sprintf("%s.sh --bootstrap-server %s ", tool, c.Brokers[0]) + fmt.Sprintf(format, args...)
}

// grant is the command that gives the principal of our connections rights on a
// resource.
func (c *Config) grant(resource string, rights ...string) string {
	user := c.SASLUser
	if user == "" {
		user = "..." // of the certificate, or ANONYMOUS: the broker's log says which
	}
	return c.command("kafka-acls", "--add --allow-principal User:%s --operation %s %s",
		user, strings.Join(rights, " --operation "), c.resourceFlag(resource))
}

// resourceFlag of a resource as AccessError names it.
func (c *Config) resourceFlag(resource string) string {
	_, name, _ := strings.Cut(resource, `"`)
	name, _, quoted := strings.Cut(name, `"`)
	switch {
	case strings.HasPrefix(resource, "transactional"): // both ids at once
		return "--transactional-id walstream." + c.Pipeline + " --resource-pattern-type prefixed"
	case strings.HasPrefix(resource, "topic") && quoted:
		return "--topic " + name
	case strings.HasPrefix(resource, "topic"):
		return "--topic ..."
	}
	return "--cluster"
}

// denied is a right that is missing.
func (c *Config) denied(right, resource string, err error) *AccessError {
	return &AccessError{Right: right, Resource: resource, User: c.SASLUser, Grant: c.grant(resource, right), Err: err}
}
