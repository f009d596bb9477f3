package metered_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// The plaintext of a token is not in any table, argument of a statement, log
// line, error or span.
func TestPlaintextIsNowhere(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	var seen pgtest.Log
	config := b.db.Config()
	config.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(
		func(_ context.Context, _ tracelog.LogLevel, msg string, data map[string]any) {
			fmt.Fprintln(&seen, msg, data)
		})}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	b.must(err)
	t.Cleanup(pool.Close)
	b = b.on(pool)
	log := slog.New(slog.NewJSONHandler(&seen, nil))

	unspent, spent := b.mint(), b.mint()
	_, err = b.commands.Run(t.Context(), b.command(spent))
	b.must(err)
	for _, r := range []metered.Redemption{redeem(spent), redeem(metered.ParseToken(unspent.Plaintext() + "A")), {Purpose: "x", Subject: "session-1", Token: unspent}} {
		_, err := b.consume(r)
		command := b.command(r.Token)
		command.Start.IdempotencyKey, command.Spend = "key-2", &r
		_, refused := b.commands.Run(t.Context(), command)
		if err == nil || refused == nil {
			t.Error("it was accepted")
		}
		log.InfoContext(t.Context(), "refused", "error", err, "refused", refused, "redemption", r, "token", r.Token, "command", fmt.Sprintf("%+v", command.Spend))
		fmt.Fprintf(&seen, "%v %#v %+v\n", err, refused, r)
		asJSON, _ := json.Marshal(r)
		fmt.Fprintln(&seen, string(asJSON))
		fmt.Fprintln(&seen, secrettest.Shown(err)+secrettest.Shown(refused))
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.tokens.Mint(cancelled, b.tenant, metered.Grant{Purpose: "p", Subject: "s", TTL: metered.TTLMax})
	fmt.Fprintln(&seen, err)
	fmt.Fprintf(&seen, "%+v\n", spans.GetSpans())
	fmt.Fprintln(&seen, b.dump())
	secrettest.AssertAbsent(t, seen.String(), unspent.Plaintext(), spent.Plaintext())
	for _, want := range []string{"expiring_tokens: ", "metered.consume", "INSERT INTO expiring_tokens", "token is not valid"} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("nothing was captured of %q", want)
		}
	}
}

type bearer struct{ metered.Token }

// No value that contains a token shows it, however it is formatted, marshalled,
// logged or walked by reflection.
func TestTokenIsOpaque(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	minted := must(b, func() ([]metered.Minted, error) {
		return b.tokens.Mint(t.Context(), b.tenant, metered.Grant{Purpose: "upload", Subject: "session-1", TTL: metered.TTLMax})
	})[0]
	token, r := minted.Token, redeem(minted.Token)
	presented := tokens.Parse(token.Plaintext(), tokens.Terms{TenantID: b.tenant, Purpose: r.Purpose, Subject: r.Subject})
	for name, value := range map[string]any{
		"token": token, "pointer": &token, "list": []metered.Token{token}, "map": map[string]metered.Token{"key": token},
		"field": struct{ Token metered.Token }{token}, "unexported field": struct{ token metered.Token }{token},
		"unexported pointer": struct{ token *metered.Token }{&token}, "embedded": bearer{token},
		"redemption": r, "minted": minted, "presented": presented, "command": b.command(token),
		"parsed": metered.ParseToken(token.Plaintext()), "malformed": metered.ParseToken("x" + token.Plaintext()),
	} {
		shown := secrettest.Shown(value)
		secrettest.AssertAbsent(t, shown, token.Plaintext())
		if name == "token" && (!strings.Contains(shown, `"value":"hft_…"`) || !strings.HasPrefix(shown, "hft_…\n")) {
			t.Errorf("the mark is missing: %s", shown)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
	secrettest.AssertAbsent(t, secrettest.Diffed(r)+secrettest.Diffed(struct{ token metered.Token }{token}), token.Plaintext())
	if reflect.TypeFor[metered.Token]().Comparable() {
		t.Error("a token can be the key of a map, and keys are marshalled verbatim")
	}
}

func TestNoToken(t *testing.T) {
	t.Parallel()
	for text, none := range map[string]bool{"": true, " ": false, "rubbish": false} {
		if token := metered.ParseToken(text); none != (token.Plaintext() == "") || token.Plaintext() != text || tokens.WellFormed(token.Plaintext()) {
			t.Errorf("%q: plaintext %q", text, token.Plaintext())
		}
	}
	if none := (metered.Token{}); none.Plaintext() != "" {
		t.Error("the zero value is a token")
	}
}

// dump returns every row of every table as text.
func (b *bundle) dump() string {
	b.t.Helper()
	list, err := b.db.Query(b.t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'river')`)
	b.must(err)
	tables, err := pgx.CollectRows(list, pgx.RowTo[string])
	b.must(err)
	var out strings.Builder
	for _, table := range tables {
		rows, err := b.db.Query(b.t.Context(), `SELECT x::text FROM `+table+` AS x`)
		b.must(err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		b.must(err)
		for _, line := range lines {
			fmt.Fprintf(&out, "%s: %s\n", strings.TrimPrefix(table, "public."), line)
		}
	}
	return out.String()
}
