package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	cafile    = flag.String("cafile", "", "a PEM file of the CA; without it there is no TLS")
	certfile  = flag.String("certfile", "", "a PEM file of the client's certificate")
	keyfile   = flag.String("keyfile", "", "a PEM file of the client's key")
	mechanism = flag.String("mechanism", "", "a SASL mechanism; its secret is in SASL_SECRET")
	user      = flag.String("user", "", "a user")
)

// security makes options of the flags. The password, or the token, is in the environment.
func security() ([]kgo.Opt, error) {
	var options []kgo.Opt
	if *cafile != "" {
		config, err := tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	secret := os.Getenv("SASL_SECRET")
	switch *mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: *user, Pass: secret}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: secret}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: secret}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: secret}, nil
		})))
	default:
		return nil, fmt.Errorf("no mechanism %q", *mechanism)
	}
	return options, nil
}

func tlsConfig() (*tls.Config, error) {
	pem, err := os.ReadFile(*cafile)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if *certfile != "" {
		pair, err := tls.LoadX509KeyPair(*certfile, *keyfile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
