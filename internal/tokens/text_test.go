package tokens_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/internal/tokens"
)

// Text that Postgres cannot store is invalid input, and so is the zero tenant.
// A malformed token is not.
func TestPresentRefusesBadInput(t *testing.T) {
	t.Parallel()
	good := tokens.Terms{TenantID: uuid.New(), Purpose: "p", Subject: "s"}
	for field, change := range map[string]func(*tokens.Terms){
		"tenant_id":  func(r *tokens.Terms) { r.TenantID = uuid.Nil },
		"purpose":    func(r *tokens.Terms) { r.Purpose = "" },
		"or_purpose": func(r *tokens.Terms) { r.OrPurpose = "a\x00" },
		"subject":    func(r *tokens.Terms) { r.Subject = "a\xff" },
	} {
		bad := good
		change(&bad)
		_, err := tokens.Present("a", bad)
		if wrong, ok := errors.AsType[*invalid.Error](err); !ok || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := tokens.Present("a\x00\xff", good); err != nil {
		t.Error(err)
	}
}

// The text of a token is not in what is presented.
func TestPresentedIsOpaque(t *testing.T) {
	t.Parallel()
	text := tokens.NewText()
	presented, err := tokens.Present(text, tokens.Terms{TenantID: uuid.New(), Purpose: "p", Subject: "s"})
	if err != nil || !tokens.WellFormed(text) {
		t.Fatal(err)
	}
	secrettest.AssertAbsent(t, secrettest.Shown(presented), text)
}
