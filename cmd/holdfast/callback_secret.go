package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type callbackSecretCommand struct {
	Tenant string `help:"Name of the tenant. Default: dev." default:"dev" placeholder:"NAME"`
}

// Run prints only the secret on stdout, for use in scripts.
func (c *callbackSecretCommand) Run(ctx context.Context, process boot.Process) error {
	return withProgram(ctx, process, func(program *boot.Program, db *pgxpool.Pool) error {
		tenant, err := findTenant(ctx, db, c.Tenant)
		if err != nil {
			return err
		}
		master, err := program.Config.Checkout.Secret()
		if err != nil {
			return err
		}
		if master.IsZero() {
			return errNoCallbackSecret
		}
		fmt.Fprintf(process.Stderr, "The payment service of tenant %s verifies the signatures of callbacks with this secret.\n", tenant.Name)
		fmt.Fprintln(process.Stdout, master.ForTenant(tenant.TenantID).Plaintext())
		return nil
	})
}

var errNoCallbackSecret = errors.New("CHECKOUT_CALLBACK_SECRET is not set: without it there are no callbacks")
