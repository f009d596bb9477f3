package traffic

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// startDemo starts the all-in-one on a new database, and returns the config of a
// small sale on it.
func startDemo(t *testing.T) (*pgxpool.Pool, DemoConfig) {
	t.Helper()
	db := pgtest.New(t)
	program, err := boot.NewProgram(t.Context(), "holdfast", boot.Process{
		Env:    envconfig.MapLookuper(map[string]string{"DATABASE_URL": db.Config().ConnString(), "PORT": "0", "LOG_LEVEL": "error", "STOP_WITHIN": "5m"}),
		Stdout: io.Discard, Stderr: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	local, err := boot.StartLocal(t.Context(), program, boot.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Stop(); err != nil {
			t.Error(err)
		}
	})
	return db, DemoConfig{
		URL: local.URL, Key: local.Key, Database: local.Database,
		Stock: 100, Buyers: 600, For: time.Second, Quiet: 200 * time.Millisecond, Variants: 20, Rate: 100,
		Within: 10 * time.Minute,
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	db, config := startDemo(t)
	var out bytes.Buffer
	config.Out = &out
	if err := Demo(t.Context(), config); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, says := range []string{
		"600 buyers want one each of 100 units of sneaker-",
		"  ok      exactly the stock is held: ",
		"checked out = 100 of 100",
		"  ok      the others received out_of_stock: ",
		"  ok      every admitted request was decided: ",
		"  ok      nothing else failed: 0 requests\n",
		"is the same request: 12 of 12\n",
		"invariants hold.",
		"stock_reserved, stock_bounds,",
	} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("the output lacks %q", says)
		}
	}
	if strings.Contains(out.String(), "BROKEN") || strings.Contains(out.String(), "\x1b") || t.Failed() {
		t.Errorf("the output:\n%s", &out)
	}
	var held, sold, refused, doubles, lane int
	err := db.QueryRow(t.Context(), `
		SELECT
			(SELECT count(*) FROM reservations WHERE resource_key LIKE 'sneaker-%' AND status = 'held'),
			(SELECT count(*) FROM reservations WHERE resource_key LIKE 'sneaker-%' AND status = 'committed'),
			(SELECT count(*) FROM reservation_requests WHERE variant_id LIKE 'sneaker-%' AND reason = 'out_of_stock' AND kind = 'add'),
			(SELECT count(*) FROM reservation_requests WHERE variant_id LIKE 'sneaker-%' AND kind = 'add'),
			(SELECT count(*) FROM reservation_requests WHERE variant_id LIKE 'sneaker-%' AND lane <> 'hot')`).
		Scan(&held, &sold, &refused, &doubles, &lane)
	if err != nil {
		t.Fatal(err)
	}
	if held+sold != 100 || sold == 0 || refused < 400 || doubles != 600 || lane != 0 {
		t.Errorf("%d held, %d sold, %d refused of %d adds, %d of them not in the hot lane", held, sold, refused, doubles, lane)
	}
}

// TestDemoIsHonest runs a sale on a database that already breaks an invariant
// elsewhere.
func TestDemoIsHonest(t *testing.T) {
	t.Parallel()
	db, config := startDemo(t)
	if _, err := db.Exec(t.Context(), `
		INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) VALUES (gen_random_uuid(), 'broken', 5, 5)`); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	config.Out, config.Stock, config.Buyers = &out, 5, 50
	if err := Demo(t.Context(), config); !errors.Is(err, ErrNotAsPromised) {
		t.Errorf("on a broken database: %v", err)
	}
	if !strings.Contains(out.String(), "BROKEN  in SQL, on the database: ") || !strings.Contains(out.String(), `"variant_id": "broken"`) {
		t.Errorf("the output:\n%s", &out)
	}
}

func TestDemoEnds(t *testing.T) {
	t.Parallel()
	_, config := startDemo(t)
	config.Out, config.Within = io.Discard, time.Second
	config.For = time.Minute
	if err := Demo(t.Context(), config); err == nil || !strings.Contains(err.Error(), "did not end within 1s") {
		t.Errorf("a sale that takes too long: %v", err)
	}
	config.Key = ""
	if err := Demo(t.Context(), config); err == nil || !strings.Contains(err.Error(), "no API key") {
		t.Errorf("without a key: %v", err)
	}
	config.Key, config.Within, config.For = "hf_wrong", time.Minute, time.Second
	err := Demo(t.Context(), config)
	if problem, ok := errors.AsType[*client.Error](err); !ok || problem.Code != "unauthorized" {
		t.Errorf("with a wrong key: %v", err)
	}
	config.Buyers = config.Stock
	if err := Demo(t.Context(), config); err == nil {
		t.Error("a sale without a rush was run")
	}
}
