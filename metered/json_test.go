package metered_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
)

// tryPayload enqueues a job with arguments, and then another one in the same
// transaction. It reports whether the first was refused as invalid input; every
// other error fails the test.
func (b *bundle) tryPayload(payload string) (refused bool) {
	b.t.Helper()
	job := b.transcode("")
	job.Args = raw{"transcode", payload}
	err := b.inTx(func(tx pgx.Tx) error {
		if _, _, err := b.commands.EnqueueTx(b.t.Context(), tx, job); isInvalid(err, "args") {
			refused = true
		} else if err != nil {
			return err
		}
		_, _, err := b.commands.EnqueueTx(b.t.Context(), tx, b.transcode(""))
		return err
	})
	if err != nil {
		b.t.Errorf("%.100s: %v", payload, err)
	}
	return refused
}

// Arguments that jsonb cannot store are refused before they are sent to the
// database, and all others are accepted. In both cases the transaction can
// continue.
func TestPayloadsThatJSONBTakes(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for value, refused := range map[string]bool{
		`"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true, `"a\"\u0000"`: true, `"\u0001\u001f\u007f"`: false,
		`"\ud800"`: true, `"\uDBFF"`: true, `"\udc00"`: true, `"\udc00\ud800"`: true, `"\ud800\ud800\udc00"`: true, `"\ud83d\ude00"`: false,
		`"\uD83D\uDE00x\ud83d\ude00"`: false, `"\ud83d\ude00\ude00"`: true, `"\ud83dxude00"`: true, `"\ud83d\\ude00"`: true, `"\\ud800"`: false,
		`"\\\ud800"`: true, `"\ud83d\n"`: true, `"\ud83d"`: true, `"\ufffe\uffff\ufeff"`: false, `"` + "\uffff\U0010ffff" + `"`: false, `"` + "\u2028" + `"`: false,
		`"` + "\xed\xa0\x80" + `"`: true, `"` + "\xc0\x80" + `"`: true, `"` + "\xff" + `"`: true, "\"\x7f\"": false, `{"\ud800":1}`: true, `{"\u0000":1}`: true, `{"":{"":""}}`: false,
		`1e200000`: true, `-1E+200000`: true, `1e-20000`: true, `0e-20000`: true, `0e99999999999999999999`: true, `1e131072`: true, `1e1001`: true,
		`1e1000`: false, `-1.5E-1000`: false, `0e+0`: false, `-0`: false, `-0.0e-5`: false, `18446744073709551616`: false, `[1e1001]`: true, `[1,1e1001 ]`: true,
		`{"e":"1e200000"}`: false, strings.Repeat("9", 1000): false, strings.Repeat("9", 1001): true, "0." + strings.Repeat("0", 20_000): true,
		"[" + strings.Repeat("1e999,", 2000) + "0]":         false,
		strings.Repeat("[", 999) + strings.Repeat("]", 999): false, strings.Repeat("[", 1000) + strings.Repeat("]", 1000): true,
		"[" + strings.Repeat("[],{},", 3000) + "0]": false, strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000): true,
		`"` + strings.Repeat("x", 200_000) + `"`: false, `{"` + strings.Repeat("k", 200_000) + `":1}`: false, `{"a":1,"a":2}`: false,
		`NaN`: true, `01`: true, `1.`: true, `.5`: true, `+1`: true, `"\x41"`: true, `'a'`: true, `[1,]`: true, "\"\t\"": true, `1 2`: true,
	} {
		for _, form := range []string{`{"a":%s}`, " \t\r\n{ \"a\" : [ %s ] } "} {
			if strings.HasPrefix(value, strings.Repeat("[", 999)) && form != `{"a":%s}` {
				continue // one level deeper
			}
			if got := b.tryPayload(fmt.Sprintf(form, value)); got != refused {
				t.Errorf("%.60s: refused %t, want %t", value, got, refused)
			}
		}
	}
	if b.tryPayload("\ufeff{}") != true || b.tryPayload(`{"a":1`) != true {
		t.Error("an invalid JSON was accepted")
	}
}

// TestRandomPayloads is TestPayloadsThatJSONBTakes for random arguments.
func TestRandomPayloads(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	inString := rapid.SampledFrom([]string{
		`a`, `\\`, `\"`, `\n`, `u`, `\u0000`, `\u0041`, `\ud800`, `\udfff`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\uffff`, "é", "\U0001f600", "\xed\xa0\x80", `d800`, `0000`,
	})
	atom := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(inString, 0, 6), func(bucketsPerWindow []string) string { return `"` + strings.Join(bucketsPerWindow, "") + `"` }),
		rapid.Custom(func(t *rapid.T) string {
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,7})?`).Draw(t, "number")
		}),
	)
	refused, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		for i, value := range rapid.SliceOfN(atom, 1, 4).Draw(t, "values") {
			members = append(members, fmt.Sprintf(`"%d":%s`, i, value))
		}
		if b.tryPayload("{" + strings.Join(members, ",") + "}") {
			refused++
		} else {
			taken++
		}
	})
	if refused == 0 || taken == 0 {
		t.Errorf("%d refused, %d taken", refused, taken)
	}
}

// The other fields of a job's row and its event are validated too.
func TestRowsOfJobsThatPostgresTakes(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	far := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for field, change := range map[string]func(j *metered.Job){
		"scheduled_at":             func(j *metered.Job) { j.InsertOpts.ScheduledAt = far },
		"reservations.scope":       func(j *metered.Job) { j.Reservations[0].Scope = "a\x00" },
		"reservations.reserved_at": func(j *metered.Job) { j.Reservations[0].ReservedAt = far },
	} {
		job := b.transcode("key")
		job.Reservations = []metered.Reservation{{Scope: "s", ReservedAt: time.UnixMicro(1), Amount: 1}}
		change(&job)
		if _, _, err := b.commands.Enqueue(t.Context(), job); !isInvalid(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	ctx := telemetry.WithCorrelation(t.Context(), "a\x00")
	if _, _, err := b.commands.Enqueue(ctx, b.transcode("key")); !isInvalid(err, "correlation_id") {
		t.Errorf("the context's correlation id: %v", err)
	}
	if _, err := b.commands.Run(ctx, b.command(b.mint())); !isInvalid(err, "correlation_id") {
		t.Errorf("the context's correlation id: %v", err)
	}
	job := b.transcode("key")
	job.InsertOpts.ScheduledAt = far.Add(-1)
	job.Reservations = []metered.Reservation{{Scope: "\u2028\uffff\U0010ffff<\\\"", ReservedAt: far.Add(-1), Amount: 1}}
	if _, created := b.enqueue(job); !created {
		t.Error("it was not created")
	}
}
