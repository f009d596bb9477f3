package pg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/holdfast/holdfast/internal/pg"
)

type meaning struct{ Data, Retryable, Outage bool }

var (
	data      = meaning{Data: true}
	retryable = meaning{Retryable: true}
	outage    = meaning{Outage: true}
	unsent    = meaning{Retryable: true, Outage: true}
	none      = meaning{}
)

// notSent is how the driver marks an error that came before anything was sent.
type notSent struct{ error }

func (notSent) SafeToRetry() bool { return true }

func (e notSent) Unwrap() error { return e.error }

func state(code string) error { return &pgconn.PgError{Code: code} }

func TestClasses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want meaning
	}{
		"nil":                                 {nil, none},
		"cancelled by the caller":             {context.Canceled, none},
		"cancelled before sending":            {notSent{context.Canceled}, none},
		"deadline":                            {context.DeadlineExceeded, outage},
		"deadline before sending":             {notSent{context.DeadlineExceeded}, outage},
		"numeric out of range":                {state("22003"), data},
		"NUL in text":                         {state("22021"), data},
		"unique violation":                    {state("23505"), data},
		"check violation":                     {state("23514"), data},
		"same key twice in a group":           {state("21000"), data},
		"view's check option":                 {state("44000"), data},
		"raised by a function":                {state("P0001"), data},
		"index row too large":                 {state("54000"), data},
		"corrupt tuple":                       {state("XX001"), data},
		"internal error":                      {state("XX000"), data},
		"unknown state":                       {state("ZZ999"), data},
		"malformed state":                     {state("?"), data},
		"serialization failure":               {state("40001"), retryable},
		"deadlock":                            {state("40P01"), retryable},
		"lock timeout":                        {state("55P03"), retryable},
		"commit whose outcome is unknown":     {state("40003"), outage},
		"connection failure":                  {state("08006"), outage},
		"outdated plan":                       {state("0A000"), outage},
		"read-only after failover":            {state("25006"), outage},
		"lost prepared statement":             {state("26000"), outage},
		"wrong password":                      {state("28P01"), outage},
		"no such database":                    {state("3D000"), outage},
		"no such table":                       {state("42P01"), outage},
		"no privilege":                        {state("42501"), outage},
		"disk full":                           {state("53100"), outage},
		"too many connections":                {state("53300"), outage},
		"object in use":                       {state("55006"), outage},
		"statement timeout":                   {state("57014"), outage},
		"administrator shut down":             {state("57P01"), outage},
		"starting up":                         {state("57P03"), outage},
		"I/O error":                           {state("58030"), outage},
		"end of stream":                       {io.ErrUnexpectedEOF, outage},
		"connection reset":                    {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, outage},
		"connection closed":                   {pgconn.ErrConnClosed, outage},
		"broken, nothing sent":                {notSent{io.EOF}, unsent},
		"connection closed, unsent":           {notSent{pgconn.ErrConnClosed}, outage},
		"pool closed":                         {puddle.ErrClosedPool, outage},
		"refused":                             {&pgconn.ConnectError{}, outage},
		"error of the program":                {errors.New("guard that matched no row"), data},
		"state joined with a failed rollback": {errors.Join(state("23514"), io.ErrUnexpectedEOF), data},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.err
			for range 2 { // unwrapped, then wrapped
				got := meaning{pg.IsData(err), pg.IsRetryable(err), pg.IsOutage(err)}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
				if err != nil {
					err = fmt.Errorf("hold variant x: %w", err)
				}
			}
		})
	}
}

func TestConstraint(t *testing.T) {
	t.Parallel()
	key := fmt.Errorf("insert: %w", &pgconn.PgError{Code: "23505", ConstraintName: "tenants_name_key"})
	check := &pgconn.PgError{Code: "23514", ConstraintName: "tenants_name_length"}
	other := &pgconn.PgError{Code: "42704", ConstraintName: "tenants_name_key"}
	got := []any{
		pg.Constraint(key), pg.Constraint(check), pg.Constraint(other), pg.Constraint(io.EOF), pg.Constraint(nil),
		pg.IsUnique(key, "tenants_name_key"), pg.IsUnique(key, "other"), pg.IsUnique(check, "tenants_name_length"), pg.IsUnique(nil, ""),
		pg.Code(key), pg.Code(io.EOF),
	}
	want := []any{"tenants_name_key", "tenants_name_length", "", "", "", true, false, false, false, "23505", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The contexts are texts of the server's message catalogs.
func TestIsRowLocked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code, where string
		want        bool
	}{
		"English":                               {"55P03", `while inserting index tuple (0,5) in relation "reservation_requests"`, true},
		"German":                                {"55P03", `beim Einfügen von Indextupel (0,5) in Relation »reservation_requests«`, true},
		"French":                                {"55P03", `lors de l'insertion de l'enregistrement (0, 5) de l'index dans la relation « reservation_requests »`, true},
		"row lock of another relation":          {"55P03", `beim Sperren von Tupel (0,1) in Relation »inventory_stocks«`, false},
		"lock of the relation":                  {"55P03", "", false},
		"statement timeout, not a lock timeout": {"57014", `while inserting index tuple (0,5) in relation "reservation_requests"`, false},
	} {
		err := fmt.Errorf("admit: %w", &pgconn.PgError{Code: c.code, Where: c.where})
		if got := pg.IsRowLocked(err, "reservation_requests"); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	if pg.IsRowLocked(io.EOF, "reservation_requests") || pg.IsRowLocked(nil, "reservation_requests") {
		t.Error("an error that is not from the server is reported as a row lock")
	}
}
