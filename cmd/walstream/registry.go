package main

import (
	"net/url"
	"os"
	"strings"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// registry is the client of the schema registry; nil without one.
func (c *Config) registry() (*registry.Registry, error) {
	if len(c.RegistryURL) == 0 {
		return nil, nil //nolint:nilnil // nil is none
	}
	files := credential.TLSFiles{Prefix: "registry-tls", CA: c.RegistryTLSCA, Cert: c.RegistryTLSCert, Key: c.RegistryTLSKey}
	config := registry.Config{URLs: c.RegistryURL, User: c.RegistryUser, TLS: files.Client, Version: version}
	if c.RegistryPassword != "" || c.RegistryPasswordFile != "" {
		config.Password = c.password("registry-password-file", c.RegistryPassword, c.RegistryPasswordFile, c.RegistryUser)
	}
	return registry.New(config)
}

func (c *Config) checkRegistry() {
	r := c.report
	used, secure := len(c.RegistryURL) > 0, false
	for _, text := range c.RegistryURL {
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			r.refuse("registry-url", "is no URL such as https://registry:8081")
		case u.User != nil:
			if password, ok := u.User.Password(); ok {
				c.keepSecret(password, u.User.Username())
			}
			r.refuse("registry-url", "holds a user: say it by registry-user and registry-password")
		case u.RawQuery != "" || u.Fragment != "":
			r.refuse("registry-url", "has more than a path behind its host")
		default:
			secure = secure || u.Scheme == "https"
		}
	}
	for _, name := range []string{"registry-user", "registry-password", "registry-password-file"} {
		if !used && r.flags[name].Target.String() != "" {
			r.refuse(name, "has no effect without --registry-url")
		}
	}
	r.checkTLSFiles("registry-tls", secure, "an https:// in --registry-url")
	c.keepSecret(c.RegistryPassword, c.RegistryUser)
	switch {
	case c.RegistryPassword == masked:
		r.refuse("registry-password", "is the mask that walstream config prints, not the password")
	case c.RegistryPassword != "" && c.RegistryPasswordFile != "":
		r.refuse("registry-password-file", "does not go with registry-password ("+r.origin("registry-password")+"): choose one")
	case c.RegistryUser != "" && c.RegistryPassword == "" && c.RegistryPasswordFile == "":
		r.refuse("registry-password", "is required by registry-user: "+variableOf("registry-password")+" or --registry-password-file FILE")
	case used && c.RegistryPasswordFile != "":
		c.checkSecretFile("registry-password-file", c.RegistryPasswordFile, c.RegistryUser)
	}
}

// checkSchema checks what a table wants of the registry.
func (c *Config) checkSchema(path string, o *Outbox) {
	r := c.report
	if o.SchemaFormat != "" && len(c.RegistryURL) == 0 && !r.faulty("registry-url") {
		r.refuse(path+"schema-format", "needs registry-url beside it")
	}
	if o.SchemaFile == "" {
		return
	}
	text, err := os.ReadFile(o.SchemaFile)
	if err != nil {
		r.refuse(path+"schema-file", "cannot be read: "+cause(err).Error())
	} else if strings.TrimSpace(string(text)) == "" {
		r.refuse(path+"schema-file", "is an empty file")
	}
}

// schemaText is what schema-file holds; checkSchema has told of one that cannot
// be read.
func (o *Outbox) schemaText() string {
	if o.SchemaFile == "" {
		return ""
	}
	text, _ := os.ReadFile(o.SchemaFile)
	return string(text)
}
