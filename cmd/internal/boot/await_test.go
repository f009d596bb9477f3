package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// waiting returns a program that waits that long for its database, and its log.
func waiting(waitMax time.Duration) (*Program, *pgtest.Log) {
	var log pgtest.Log
	logs := newLogs(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	return &Program{
		Config: config.Config{Database: config.Database{WaitMax: waitMax}},
		Log:    logs.log(), logs: logs, startBudget: &startBudget{left: waitMax},
	}, &log
}

// All steps of a start share one wait: a second step has the time that the
// first one left.
func TestAwaitInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, log := waiting(15 * time.Second)
		began := time.Now()
		lost := 0
		err := p.await(t.Context(), func(context.Context) error {
			if lost++; lost <= 20 {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("a step that fails 20 times: %v after %s, want success after 20 pauses", err, took)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want one when the wait begins and one when it ends:\n%s", n, log)
		}
		began = time.Now()
		err = p.await(t.Context(), func(ctx context.Context) error { // a silent database
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("a silent database: %v after %s, want an error after the remaining 10 s", err, took)
		}
		err = p.await(t.Context(), func(context.Context) error { return nil })
		if err != nil {
			t.Errorf("a step that succeeds at once, when no budget is left: %v", err)
		}
	})
}

func TestAwaitWaitsForOutagesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			err   error
			waits bool
		}{
			{&pgconn.PgError{Code: "28P01"}, false}, // wrong password
			{&pgconn.PgError{Code: "3D000"}, false}, // no such database
			{&pgconn.PgError{Code: "42P01"}, false}, // no such table
			{ErrPending, false},
			{fmt.Errorf("migrate: %w", errors.New("another transaction keeps a table locked")), false}, // the migration has waited already
			{&GuardedError{}, false},
			{context.Canceled, false},
			{&pgconn.PgError{Code: "57P03"}, true}, // the server is starting
			{&pgconn.PgError{Code: "53300"}, true}, // too many connections
			{&pgconn.PgError{Code: "25006"}, true}, // read-only: a standby before its promotion
			{&pgconn.PgError{Code: "55000"}, true}, // not in the prerequisite state
			{&pgconn.PgError{Code: "58030"}, true}, // I/O error
			{errStandby, true},
			{&pgconn.PgError{Code: "40001"}, true},
			{io.ErrUnexpectedEOF, true},
		} {
			p, _ := waiting(time.Second)
			tries := 0
			err := p.await(t.Context(), func(context.Context) error { tries++; return tc.err })
			if !errors.Is(err, tc.err) || (tries > 1) != tc.waits {
				t.Errorf("%v: %d tries, %v", tc.err, tries, err)
			}
		}
	})
}
