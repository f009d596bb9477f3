package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A log arrives in pieces that do not end with its lines, and a statement may
// have several lines.
func TestStatementLog(t *testing.T) {
	t.Parallel()
	const at = "2026-11-22 12:00:00.123 UTC [42] "
	text := at + "[shop] [holdfast-api] LOG:  statement: begin\n" +
		at + "[shop] [holdfast-api] LOG:  execute stmt_1: SELECT a\n\tFROM b\n\n" +
		at + "[shop] [holdfast-api] DETAIL:  parameters: $1 = 'x'\n\tnot a statement\n" +
		at + "[other] [holdfast-api] LOG:  statement: rollback\n" +
		at + "[shop] [] ERROR:  statement: no\n" +
		at + "[shop] [[odd]] LOG:  duration: 1 ms\n" +
		at + "[shop] [] LOG:  execute <unnamed>: SELECT 1\n"
	for size := 1; size < len(text); size += 7 {
		l := new(statementLog)
		write := func(text string) {
			for left := []byte(text); len(left) > 0; {
				n := min(size, len(left))
				if written, err := l.Write(left[:n]); err != nil || written != n {
					t.Fatalf("%d of %d bytes were taken, %v", written, n, err)
				}
				left = left[n:]
			}
		}
		write(text) // before it is asked for
		l.record()
		write(text)
		want := []logged{
			{"shop", "holdfast-api", "begin"},
			{"shop", "holdfast-api", "SELECT a FROM b "},
			{"shop", "", "SELECT 1"},
		}
		if diff := cmp.Diff(want, l.stop("shop"), cmp.AllowUnexported(logged{})); diff != "" {
			t.Fatalf("in pieces of %d (-want +got):\n%s", size, diff)
		}
		write(text)
		if found := l.stop("shop"); len(found) > 0 {
			t.Errorf("%d statements were kept afterwards", len(found))
		}
	}
}
