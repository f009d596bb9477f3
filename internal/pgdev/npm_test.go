package pgdev

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The downloaded package is the way of machines without Postgres. It costs 23 MB, so it is tried where
// HOLDFAST_TEST_NPM is set, which must not be in vain.
func TestPackage(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_NPM") == "" {
		return
	}
	s, err := Start(t.Context(), Options{find: finder{ways: []way{fromPackage}}, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var version string
	if err := conn.QueryRow(t.Context(), "SHOW server_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	t.Log(version)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}
