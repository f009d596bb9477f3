package metered_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// A thousand concurrent callers present one token. One of them redeems it.
func TestOneTokenOneWinner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	var won, used atomic.Int64
	var callers sync.WaitGroup
	for range 1000 {
		callers.Go(func() {
			switch payload, err := b.consume(redeem(token)); {
			case err == nil && payload == `{"asset": 7}`:
				won.Add(1)
			case errors.Is(err, tokens.ErrUsed):
				used.Add(1)
			default:
				t.Errorf("payload %q, error %v", payload, err)
			}
		})
	}
	callers.Wait()
	if won.Load() != 1 || used.Load() != 999 {
		t.Errorf("%d redeemed it and %d found it used, want 1 and 999", won.Load(), used.Load())
	}
}

// Every refusal is ErrTokenRefused with a distinct reason, in the documented
// order. It does not change the token.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token, used, expired := b.mint(), b.mint(), b.mint()
	if _, err := b.consume(redeem(used)); err != nil {
		t.Fatal(err)
	}
	hash := `(SELECT token_hash FROM expiring_tokens WHERE consumed_at IS NULL ORDER BY created_at DESC LIMIT 1)`
	b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = ` + hash)
	flipped := []byte(token.Plaintext())
	flipped[20] ^= 1
	for name, c := range map[string]struct {
		r    metered.Redemption
		want error
	}{
		"typing error":              {redeem(metered.ParseToken(string(flipped))), tokens.ErrMalformed},
		"nothing":                   {redeem(noToken), tokens.ErrMalformed},
		"line break":                {redeem(metered.ParseToken(token.Plaintext()[:51] + "\n")), tokens.ErrMalformed},
		"too long":                  {redeem(metered.ParseToken(token.Plaintext() + "A")), tokens.ErrMalformed},
		"purpose":                   {metered.Redemption{Purpose: "download", Subject: "session-1", Token: token}, tokens.ErrPurpose},
		"subject":                   {metered.Redemption{Purpose: "upload", Subject: "session-2", Token: token}, tokens.ErrSubject},
		"purpose and subject":       {metered.Redemption{Purpose: "x", Subject: "x", Token: token}, tokens.ErrPurpose},
		"used":                      {redeem(used), tokens.ErrUsed},
		"used, of another subject":  {metered.Redemption{Purpose: "upload", Subject: "session-2", Token: used}, tokens.ErrSubject},
		"expired":                   {redeem(expired), tokens.ErrExpired},
		"expired, of other purpose": {metered.Redemption{Purpose: "x", Subject: "session-1", Token: expired}, tokens.ErrPurpose},
	} {
		_, err := b.consume(c.r)
		if !errors.Is(err, c.want) || !errors.Is(err, metered.ErrTokenRefused) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := b.consume(redeem(token)); err != nil {
		t.Errorf("after all refusals the token cannot be redeemed: %v", err)
	}
	other := newToken(t)
	if _, err := b.consume(redeem(other)); !errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("a token of another database: %v", err)
	}
}

// newToken returns a well-formed token of another database.
func newToken(t *testing.T) metered.Token {
	t.Helper()
	return newBundle(t).mint()
}

func TestTokensAreTenants(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	err := b.inTx(func(tx pgx.Tx) error {
		_, err := b.tokens.ConsumeTx(t.Context(), tx, uuid.New(), redeem(token))
		return err
	})
	if !errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("another tenant's token: %v", err)
	}
}

func TestRolledBackTokenIsUnspent(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token, failed := b.mint(), errors.New("failed")
	err := b.inTx(func(tx pgx.Tx) error {
		if _, err := b.tokens.ConsumeTx(t.Context(), tx, b.tenant, redeem(token)); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if _, err := b.consume(redeem(token)); err != nil {
		t.Errorf("it cannot be redeemed: %v", err)
	}
}

// A caller waits while another transaction redeems the token. If that
// transaction rolls back, the caller redeems it.
func TestWaitsForTheOther(t *testing.T) {
	t.Parallel()
	for name, rolledBack := range map[string]bool{"commits": false, "rolls back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			token := b.mint()
			first, err := b.db.Begin(t.Context())
			b.must(err)
			if _, err := b.tokens.ConsumeTx(t.Context(), first, b.tenant, redeem(token)); err != nil {
				t.Fatal(err)
			}
			second := make(chan error, 1)
			go func() { _, err := b.consume(redeem(token)); second <- err }()
			pgtest.UntilBlocked(t, b.db, 1)
			if rolledBack {
				b.must(first.Rollback(t.Context()))
				b.must(<-second)
				return
			}
			b.must(first.Commit(t.Context()))
			if err := <-second; !errors.Is(err, tokens.ErrUsed) {
				t.Errorf("the second: %v", err)
			}
		})
	}
}

func TestMintRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	good := metered.Grant{Purpose: "p", Subject: "s", TTL: time.Second}
	for field, change := range map[string]func(*metered.Grant){
		"purpose": func(g *metered.Grant) { g.Purpose = "" },
		"subject": func(g *metered.Grant) { g.Subject = "a\x00b" },
		"ttl":     func(g *metered.Grant) { g.TTL = metered.TTLMax + 1 },
		"payload": func(g *metered.Grant) { g.Payload = []byte(`{"a": "\u0000"}`) },
	} {
		grant := good
		change(&grant)
		_, err := b.tokens.Mint(t.Context(), b.tenant, grant)
		var invalid *metered.Error
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	minted, err := b.tokens.Mint(t.Context(), b.tenant, good)
	b.must(err)
	if n := b.count(`SELECT count(*) FROM expiring_tokens WHERE expires_at = $1 AND payload::text = 'null'
		AND expires_at = created_at + interval '1 s'`, minted[0].ExpiresAt); n != 1 {
		t.Errorf("the token does not expire at the returned time, %s", minted[0].ExpiresAt)
	}
}

func TestPurgeExpired(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for range 5 {
		b.mint()
	}
	b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '3 h', expires_at = expires_at - interval '3 h'`)
	kept := b.mint()
	for i, c := range []struct {
		retention time.Duration
		want      int64
	}{{3 * time.Hour, 0}, {time.Hour, 3}, {time.Hour, 2}, {0, 0}} {
		n, err := tokens.Purge(t.Context(), b.db, c.retention, 3)
		b.must(err)
		if n != c.want {
			t.Errorf("purge %d deleted %d, want %d", i, n, c.want)
		}
	}
	if _, err := b.consume(redeem(kept)); err != nil {
		t.Errorf("the token that has not expired: %v", err)
	}
}

func TestFormatted(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, token); got != "hft_…" {
			t.Errorf("%s: %s", verb, got)
		}
	}
}
