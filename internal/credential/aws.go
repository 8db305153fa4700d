package credential

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AWSKeys sign for a role or user of AWS.
type AWSKeys struct {
	Access, Secret, Session string
}

// AWS finds keys where the vendor's own tools do, in their order, without their
// library, which is larger than all of walstream's: variables; the identity token
// of a pod (IRSA); the file of profiles; the endpoint of a container (ECS, EKS Pod
// Identity); the metadata of an instance (IMDSv2).
// https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
type AWS struct {
	// Getenv is os.Getenv, or a test's.
	Getenv func(string) string

	kept kept[AWSKeys]
}

// Keys returns ones that are good for a while.
func (a *AWS) Keys(ctx context.Context) (AWSKeys, error) {
	keys, err := a.kept.get(time.Now(), func() (AWSKeys, time.Time, error) { return a.find(ctx) })
	if err != nil {
		return AWSKeys{}, &Error{"aws-msk-iam", err}
	}
	return keys, nil
}

func (a *AWS) find(ctx context.Context) (keys AWSKeys, ends time.Time, err error) {
	env := a.Getenv
	switch {
	case env("AWS_ACCESS_KEY_ID") != "":
		keys = AWSKeys{env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN")}
		if keys.Secret == "" {
			return keys, ends, errors.New("has AWS_ACCESS_KEY_ID without AWS_SECRET_ACCESS_KEY")
		}
		return keys, ends, nil // no end: read again each time
	case env("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return a.fromWebIdentity(ctx)
	}
	if keys, ok, err := a.fromFile(); ok || err != nil {
		return keys, ends, err
	}
	if env("AWS_CONTAINER_CREDENTIALS_FULL_URI")+env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" {
		return a.fromContainer(ctx)
	}
	if strings.EqualFold(env("AWS_EC2_METADATA_DISABLED"), "true") {
		return keys, ends, errors.New("finds no keys: no AWS_ACCESS_KEY_ID, no web identity, no profile, no container, and AWS_EC2_METADATA_DISABLED is true")
	}
	return a.fromInstance(ctx)
}

// fromFile reads a profile's static keys.
func (a *AWS) fromFile() (keys AWSKeys, found bool, err error) {
	path := a.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return keys, false, nil //nolint:nilerr // nobody's home: there is no such file
		}
		path = filepath.Join(home, ".aws", "credentials")
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return keys, false, nil
	}
	if err != nil {
		return keys, false, fmt.Errorf("has a file of credentials that cannot be read: %w", cause(err))
	}
	defer func() { _ = file.Close() }()
	profile := cmp.Or(a.Getenv("AWS_PROFILE"), "default")
	values, here := map[string]string{}, false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			here = strings.TrimSpace(strings.Trim(line, "[]")) == profile
			continue
		}
		if name, value, ok := strings.Cut(line, "="); ok && here && !strings.HasPrefix(line, "#") {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	keys = AWSKeys{values["aws_access_key_id"], values["aws_secret_access_key"], values["aws_session_token"]}
	return keys, keys.Access != "" && keys.Secret != "", nil
}

// fromWebIdentity changes the token that Kubernetes writes into the pod for keys of
// the pod's role. The request is not signed: the token is what proves it.
func (a *AWS) fromWebIdentity(ctx context.Context) (keys AWSKeys, ends time.Time, err error) {
	token, err := os.ReadFile(a.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return keys, ends, fmt.Errorf("has an AWS_WEB_IDENTITY_TOKEN_FILE that cannot be read: %w", cause(err))
	}
	endpoint := a.Getenv("AWS_ENDPOINT_URL_STS")
	if region := cmp.Or(a.Getenv("AWS_REGION"), a.Getenv("AWS_DEFAULT_REGION")); endpoint == "" && region != "" {
		endpoint = "https://sts." + region + ".amazonaws.com/"
		if strings.HasPrefix(region, "cn-") {
			endpoint = "https://sts." + region + ".amazonaws.com.cn/"
		}
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {a.Getenv("AWS_ROLE_ARN")}, "RoleSessionName": {cmp.Or(a.Getenv("AWS_ROLE_SESSION_NAME"), "walstream")},
		"WebIdentityToken": {strings.TrimSpace(string(token))},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cmp.Or(endpoint, "https://sts.amazonaws.com/"), strings.NewReader(form.Encode()))
	if err != nil {
		return keys, ends, errors.New("has an AWS_ENDPOINT_URL_STS or AWS_REGION that makes no URL")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body, err := fetch(request, "the security token service")
	if err != nil {
		return keys, ends, err
	}
	part := func(name string) string {
		_, rest, _ := strings.Cut(string(body), "<"+name+">")
		text, _, _ := strings.Cut(rest, "</"+name+">")
		return strings.TrimSpace(text)
	}
	// Four texts without markup: encoding/xml is more code than all of this package.
	keys = AWSKeys{part("AccessKeyId"), part("SecretAccessKey"), part("SessionToken")}
	ends, err = time.Parse(time.RFC3339, part("Expiration"))
	if err != nil || keys.Access == "" || keys.Secret == "" {
		return AWSKeys{}, ends, errors.New("gets an answer of the security token service without keys")
	}
	return keys, ends, nil
}

const ecsEndpoint = "http://169.254.170.2"

// fromContainer asks the agent beside a container.
func (a *AWS) fromContainer(ctx context.Context) (keys AWSKeys, ends time.Time, err error) {
	address := a.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if path := a.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		address = ecsEndpoint + path
	}
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" && !local(at.Hostname()) {
		return keys, ends, errors.New("has an AWS_CONTAINER_CREDENTIALS_FULL_URI that is neither https nor this machine's")
	}
	token := a.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if path := a.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return keys, ends, fmt.Errorf("has an AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE that cannot be read: %w", cause(err))
		}
		token = strings.TrimSpace(string(content))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return keys, ends, errors.New("has an endpoint of the container that is no URL")
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	return endpointKeys(request, "the container's endpoint")
}

// local: the loopback, and the fixed addresses of ECS's and EKS's agents.
func local(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || host == "localhost" || host == "169.254.170.2" || host == "169.254.170.23" || host == "fd00:ec2::23"
}

// fromInstance asks the instance's metadata, version 2.
func (a *AWS) fromInstance(ctx context.Context) (keys AWSKeys, ends time.Time, err error) {
	base := strings.TrimSuffix(cmp.Or(a.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "http://169.254.169.254"), "/")
	const service = "the instance's metadata"
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, base+"/latest/api/token", http.NoBody)
	if err != nil {
		return keys, ends, errors.New("has an AWS_EC2_METADATA_SERVICE_ENDPOINT that is no URL")
	}
	request.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
	token, err := fetch(request, service)
	if err != nil {
		return keys, ends, fmt.Errorf("finds no keys in variables, web identity, profile or container, and %w", err)
	}
	get := func(path string) *http.Request {
		request := request.Clone(ctx)
		request.Method, request.URL.Path = http.MethodGet, "/latest/meta-data/iam/security-credentials/"+path
		request.Header = http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}}
		return request
	}
	roles, err := fetch(get(""), service)
	if err != nil {
		return keys, ends, err
	}
	role, _, _ := strings.Cut(strings.TrimSpace(string(roles)), "\n")
	return endpointKeys(get(role), service)
}

// endpointKeys reads what agents answer.
func endpointKeys(request *http.Request, service string) (keys AWSKeys, ends time.Time, err error) {
	body, err := fetch(request, service)
	if err != nil {
		return keys, ends, err
	}
	var answer struct {
		AccessKeyId     string
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.AccessKeyId == "" {
		return keys, ends, fmt.Errorf("gets an answer of %s without keys", service)
	}
	return AWSKeys{answer.AccessKeyId, answer.SecretAccessKey, answer.Token}, answer.Expiration, nil
}

func fetch(request *http.Request, service string) ([]byte, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if request.URL.Scheme == "https" { // the others are this machine's
		transport.Proxy = http.ProxyFromEnvironment
	}
	client := &http.Client{
		Timeout:       endpointTimeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	status, body, err := do(client, request)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %w", service, err)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d", service, status)
	}
	return body, nil
}
