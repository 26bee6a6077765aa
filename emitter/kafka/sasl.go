package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of SASL.
const (
	DefaultKRB5Conf   = "/etc/krb5.conf"
	DefaultService    = "kafka"
	DefaultAWSProfile = "default"
)

// The mechanisms of SASL.
const (
	mechanismPlain  = "PLAIN"
	mechanismSHA256 = "SCRAM-SHA-256"
	mechanismSHA512 = "SCRAM-SHA-512"
	mechanismToken  = "OAUTHBEARER"
	mechanismKRB5   = "GSSAPI"
	mechanismIAM    = "AWS_MSK_IAM"
)

// Mechanisms lists the mechanisms of SASL.
func Mechanisms() []string {
	return []string{mechanismPlain, mechanismSHA256, mechanismSHA512, mechanismToken, mechanismKRB5, mechanismIAM}
}

// SASL are the settings of authentication. Files are read at each authentication, so that secrets can be renewed
// while the emitter runs.
type SASL struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM; empty: none
	User         string
	Password     string
	PasswordFile string // instead of Password; line ends at the end are cut off
	TokenFile    string // OAUTHBEARER: the file with the token

	// GSSAPI is Kerberos. Each connection gets a ticket of its own: with the key in KeytabFile, or Password or PasswordFile.
	Principal  string // app@EXAMPLE.COM, or app/host@EXAMPLE.COM
	KeytabFile string
	KRB5Conf   string // default DefaultKRB5Conf
	Service    string // the brokers' name: they are <Service>/<host>; default DefaultService
	// DisableFAST leaves out an extension of Kerberos that Active Directory doesn't answer to as asked.
	DisableFAST bool

	// AWS_MSK_IAM takes the keys given here, or those of a profile in CredentialsFile (the form of ~/.aws/credentials), or else
	// those in the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
	AccessKey       string
	SecretKey       string
	SessionToken    string
	CredentialsFile string
	Profile         string // in CredentialsFile; default DefaultAWSProfile
}

// settings lists what may be set besides the mechanism, as users write it, and which mechanisms it belongs to.
func (s *SASL) settings() []saslSetting {
	passwords := []string{mechanismPlain, mechanismSHA256, mechanismSHA512}
	withKRB5 := append(slices.Clone(passwords), mechanismKRB5)
	krb5, iam := []string{mechanismKRB5}, []string{mechanismIAM}
	return []saslSetting{
		{"user", s.User != "", passwords},
		{"password", s.Password != "", withKRB5},
		{"password_file", s.PasswordFile != "", withKRB5},
		{"token_file", s.TokenFile != "", []string{mechanismToken}},
		{"principal", s.Principal != "", krb5},
		{"keytab_file", s.KeytabFile != "", krb5},
		{"krb5_conf", s.KRB5Conf != "", krb5},
		{"service", s.Service != "", krb5},
		{"disable_fast", s.DisableFAST, krb5},
		{"access_key", s.AccessKey != "", iam},
		{"secret_key", s.SecretKey != "", iam},
		{"session_token", s.SessionToken != "", iam},
		{"credentials_file", s.CredentialsFile != "", iam},
		{"profile", s.Profile != "", iam},
	}
}

type saslSetting struct {
	name  string
	given bool
	of    []string
}

func (s *SASL) validate() error {
	if s.Mechanism == "" {
		if *s != (SASL{}) {
			return configError("sasl.mechanism", "name the mechanism", "none is given, other sasl settings are")
		}
		return nil
	}
	known := Mechanisms()
	if !slices.Contains(known, s.Mechanism) {
		last := len(known) - 1
		return configError("sasl.mechanism", "write "+strings.Join(known[:last], ", ")+" or "+known[last], "unknown mechanism %q", s.Mechanism)
	}
	for _, f := range s.settings() {
		if f.given && !slices.Contains(f.of, s.Mechanism) {
			return configError("sasl."+f.name, "leave it out", "belongs to %s, and the mechanism is %s", strings.Join(f.of, ", "), s.Mechanism)
		}
	}
	if s.Password != "" && s.PasswordFile != "" {
		return configError("sasl.password_file", "keep one of password and password_file", "given together with password")
	}
	switch s.Mechanism {
	case mechanismToken:
		if s.TokenFile == "" {
			return configError("sasl.token_file", "name the file that holds the token", "none is given")
		}
	case mechanismKRB5:
		return s.validateKRB5()
	case mechanismIAM:
		return s.validateIAM()
	default:
		switch {
		case s.User == "":
			return configError("sasl.user", "name the user", "none is given")
		case s.Password == "" && s.PasswordFile == "":
			return configError("sasl.password", "give password or password_file", "none is given")
		}
	}
	return nil
}

func (s *SASL) validateKRB5() error {
	name, realm, ok := strings.Cut(s.Principal, "@")
	password := s.Password != "" || s.PasswordFile != ""
	switch {
	case s.Principal == "":
		return configError("sasl.principal", "name the client as NAME@REALM", "none is given")
	case !ok || name == "" || realm == "" || strings.Contains(realm, "@"):
		return configError("sasl.principal", "name the client as NAME@REALM", "%q is none", s.Principal)
	case s.KeytabFile == "" && !password:
		return configError("sasl.keytab_file", "give keytab_file, password or password_file", "none is given")
	case s.KeytabFile != "" && password:
		return configError("sasl.keytab_file", "keep one of keytab_file and the password", "given together with a password")
	}
	return nil
}

func (s *SASL) validateIAM() error {
	switch {
	case s.CredentialsFile != "" && (s.AccessKey != "" || s.SecretKey != "" || s.SessionToken != ""):
		return configError("sasl.credentials_file", "keep one of credentials_file and the keys", "given together with keys")
	case s.Profile != "" && s.CredentialsFile == "":
		return configError("sasl.profile", "name the credentials_file that has it", "belongs to credentials_file")
	case s.AccessKey != "" && s.SecretKey == "":
		return configError("sasl.secret_key", "give access_key and secret_key, or neither", "none is given")
	case s.AccessKey == "" && (s.SecretKey != "" || s.SessionToken != ""):
		return configError("sasl.access_key", "give access_key and secret_key, or neither", "none is given")
	}
	return nil
}

// mechanism makes the client's side of s, which is valid. It reads all files once, so that what is wrong with them is told at
// once and at their setting.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case mechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := s.password()
			return plain.Auth{User: s.User, Pass: pass}, err
		}), try(s.password)
	case mechanismSHA256, mechanismSHA512:
		auth := func(context.Context) (scram.Auth, error) {
			pass, err := s.password()
			return scram.Auth{User: s.User, Pass: pass}, err
		}
		if s.Mechanism == mechanismSHA256 {
			return scram.Sha256(auth), try(s.password)
		}
		return scram.Sha512(auth), try(s.password)
	case mechanismToken:
		token := func() (string, error) { return readSecret("sasl.token_file", s.TokenFile) }
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			t, err := token()
			return oauth.Auth{Token: t}, err
		}), try(token)
	case mechanismKRB5:
		return kerberos.Kerberos(func(context.Context) (kerberos.Auth, error) {
			c, err := s.krb5()
			if err == nil {
				err = s.login(c)
			}
			return kerberos.Auth{Client: c, Service: orDefault(s.Service, DefaultService)}, err
		}), try(s.krb5)
	case mechanismIAM:
		return aws.ManagedStreamingIAM(func(context.Context) (aws.Auth, error) { return s.iam() }), try(s.iam)
	}
	return nil, s.validate()
}

// try returns what reading a secret fails with.
func try[T any](read func() (T, error)) error {
	_, err := read()
	return err
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func (s *SASL) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	return readSecret("sasl.password_file", s.PasswordFile)
}

// krb5 makes a client of Kerberos that has not logged in yet.
func (s *SASL) krb5() (*client.Client, error) {
	path := orDefault(s.KRB5Conf, DefaultKRB5Conf)
	text, err := readSecret("sasl.krb5_conf", path)
	if err != nil {
		return nil, err
	}
	conf, err := config.NewFromString(text)
	if err != nil {
		return nil, configError("sasl.krb5_conf", "write it in the form of krb5.conf", "%s: %w", path, err)
	}
	name, realm, _ := strings.Cut(s.Principal, "@")
	settings := client.DisablePAFXFAST(s.DisableFAST)
	if s.KeytabFile == "" {
		pass, err := s.password()
		if err != nil {
			return nil, err
		}
		return client.NewWithPassword(name, realm, pass, conf, settings), nil
	}
	keys, err := keytab.Load(s.KeytabFile)
	if err != nil {
		return nil, configError("sasl.keytab_file", "name a readable keytab", "%s: %w", s.KeytabFile, unopened(err))
	}
	for _, e := range keys.Entries {
		if e.Principal.Realm == realm && strings.Join(e.Principal.Components, "/") == name {
			return client.NewWithKeytab(name, realm, keys, conf, settings), nil
		}
	}
	return nil, configError("sasl.keytab_file", "name the keytab of this principal", "%s has no key of %s", s.KeytabFile, s.Principal)
}

// opKerberos marks errors of a realm, which aren't the brokers'.
const opKerberos = "kerberos"

// login gets the client its first ticket, from the realm's KDC.
func (s *SASL) login(c *client.Client) error {
	err := c.Login()
	if err == nil {
		return nil
	}
	_, realm, _ := strings.Cut(s.Principal, "@")
	cause, text := "", err.Error()
	if k, ok := errors.AsType[krberror.Krberror](err); ok {
		cause = k.RootCause
		text = k.EText[len(k.EText)-1] // the innermost
	}
	switch cause {
	case krberror.NetworkingError:
		return batch.NewError(batch.Transient, batch.CodeUnavailable, opKerberos, fmt.Errorf("no KDC of realm %s can be reached: %s", realm, text),
			"check the realm's kdc in krb5.conf, and that it can be reached from here")
	case krberror.DecryptingError, krberror.ChksumError:
		return batch.NewError(batch.Permanent, batch.CodeUnauthorized, opKerberos, fmt.Errorf("the key is not that of %s", s.Principal),
			"give its password, or a keytab made since that was changed")
	}
	return batch.NewError(batch.Permanent, batch.CodeUnauthorized, opKerberos, fmt.Errorf("the KDC of realm %s doesn't let %s in: %s", realm, s.Principal, text),
		"check the principal, its key, and this machine's clock")
}

// unopened leaves out the path, which stands in the message already.
func unopened(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

// iam returns the keys for AWS.
func (s *SASL) iam() (aws.Auth, error) {
	switch {
	case s.AccessKey != "":
		return aws.Auth{AccessKey: s.AccessKey, SecretKey: s.SecretKey, SessionToken: s.SessionToken}, nil
	case s.CredentialsFile != "":
		return s.iamProfile()
	}
	a := aws.Auth{AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	if a.AccessKey == "" || a.SecretKey == "" {
		return a, configError("sasl.access_key", "give access_key and secret_key, or credentials_file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
			"none is given, and the environment has none")
	}
	return a, nil
}

// iamProfile reads a profile of a credentials file: a header in brackets, and a line NAME = VALUE for each key.
func (s *SASL) iamProfile() (aws.Auth, error) {
	var a aws.Auth
	text, err := readSecret("sasl.credentials_file", s.CredentialsFile)
	if err != nil {
		return a, err
	}
	want, here := orDefault(s.Profile, DefaultAWSProfile), false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			here = strings.TrimSpace(strings.Trim(line, "[]")) == want
			continue
		}
		name, val, ok := strings.Cut(line, "=")
		if !ok || !here || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		val = strings.TrimSpace(val)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "aws_access_key_id":
			a.AccessKey = val
		case "aws_secret_access_key":
			a.SecretKey = val
		case "aws_session_token":
			a.SessionToken = val
		}
	}
	if a.AccessKey == "" || a.SecretKey == "" {
		return a, configError("sasl.credentials_file", "write aws_access_key_id and aws_secret_access_key below ["+want+"]",
			"%s: %w", s.CredentialsFile, fmt.Errorf("profile %s has no keys", want))
	}
	return a, nil
}
