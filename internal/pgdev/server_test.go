package pgdev

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestStart(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s, err := Start(t.Context(), Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %s", time.Since(begin))
	for _, url := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"fsync", "synchronous_commit", "wal_compression", "lc_collate", "server_encoding", "server_version"} {
			var v string
			if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&v); err != nil {
				t.Fatal(err)
			}
			t.Log(name, v)
		}
		_ = conn.Close(context.Background())
	}
	begin = time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("down after %s", time.Since(begin))
}
