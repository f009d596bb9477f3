package tenants_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// A key is created, used and revoked. Without a cache, the revocation takes
// effect at once.
func ExampleAuthenticator() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		shop, err := tenants.Ensure(ctx, pool, "rolls and buns")
		if err != nil {
			log.Fatal(err)
		}
		plaintext, key, err := tenants.CreateKey(ctx, pool, shop.TenantID, "storefront", []tenants.Scope{tenants.ScopeCart})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(plaintext), "characters, well-formed:", tenants.WellFormed(plaintext))

		authenticator := tenants.NewAuthenticator(pool, tenants.Config{CacheFor: -1})
		principal, err := authenticator.Authenticate(ctx, plaintext)
		fmt.Println("cart:", principal.Has(tenants.ScopeCart), "stock:", principal.Has(tenants.ScopeStock), err)

		if _, err := tenants.RevokeKey(ctx, pool, shop.TenantID, key.KeyID); err != nil {
			log.Fatal(err)
		}
		_, err = authenticator.Authenticate(ctx, plaintext)
		fmt.Println(err)
	})
	// Output:
	// 52 characters, well-formed: true
	// cart: true stock: false <nil>
	// unknown API key
}

// The work is done once, however often the call is sent. Another call cannot
// use the key.
func ExampleClaimKeyTx() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		shop, err := tenants.Ensure(ctx, pool, "rolls and buns")
		if err != nil {
			log.Fatal(err)
		}
		call := func(body string) (answer tenants.Answer, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				stored, err := tenants.ClaimKeyTx(ctx, tx, shop.TenantID, "key-1", sha256.Sum256([]byte(body)))
				if err != nil {
					return err
				}
				if stored != nil {
					answer = *stored
					return nil
				}
				fmt.Println("working")
				answer = tenants.Answer{StatusCode: 200, Body: []byte("checked out " + body)}
				return tenants.StoreAnswerTx(ctx, tx, shop.TenantID, "key-1", answer)
			})
			return answer, err
		}
		for _, body := range []string{"cart-1", "cart-1", "cart-2"} {
			answer, err := call(body)
			fmt.Println(answer.StatusCode, string(answer.Body), errors.Is(err, tenants.ErrKeyReused))
		}
	})
	// Output:
	// working
	// 200 checked out cart-1 false
	// 200 checked out cart-1 false
	// 0  true
}
