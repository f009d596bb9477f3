package config

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/checkouts/callback"
)

// Checkout is how checkouts with a payment in between run.
type Checkout struct {
	// TTL is how long a payment may take.
	TTL time.Duration `env:"CHECKOUT_TTL, default=15m"`
	// CallbackSecret is the text form of a callback.Secret. It is a text, so
	// that the error about it does not contain it. Empty: no callbacks.
	CallbackSecret  string        `env:"CHECKOUT_CALLBACK_SECRET"`
	CallbackTimeout time.Duration `env:"CHECKOUT_CALLBACK_TIMEOUT, default=10s"`
	// CallbackConcurrency is how many checkouts a process works on at once.
	CallbackConcurrency int `env:"CHECKOUT_CALLBACK_CONCURRENCY, default=128"`
	// CallbackPrivate allows http, and addresses that are not public.
	CallbackPrivate bool `env:"CHECKOUT_CALLBACK_PRIVATE, default=false"`
}

// Secret returns the secret of callbacks, zero for none.
//
// Errors: a sentence that names the variable and shows no part of its value.
func (c *Checkout) Secret() (callback.Secret, error) {
	if c.CallbackSecret == "" {
		return callback.Secret{}, nil
	}
	secret, err := callback.ParseSecret(c.CallbackSecret)
	if err != nil {
		return callback.Secret{}, fmt.Errorf("CHECKOUT_CALLBACK_SECRET %w, and the value is not", err)
	}
	return secret, nil
}
