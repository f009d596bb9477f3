package callback_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/secrettest"
)

// master is the installation's secret of these tests.
const master = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBjK2YLpzX0k="

func parse(t *testing.T, text string) callback.Secret {
	t.Helper()
	secret, err := callback.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	encode := base64.StdEncoding.EncodeToString
	for text, valid := range map[string]bool{
		master: true,
		"whsec_" + encode(bytes.Repeat([]byte{0xff}, 24)):                            true,
		"whsec_" + encode(bytes.Repeat([]byte{0xff}, 64)):                            true,
		"whsec_" + encode(bytes.Repeat([]byte{0xff}, 23)):                            false,
		"whsec_" + encode(bytes.Repeat([]byte{0xff}, 65)):                            false,
		"whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 24)): false,
		strings.TrimPrefix(master, "whsec_"):                                         false,
		strings.TrimSuffix(master, "="):                                              false,
		master + "\n":                                                                false,
		master[:20] + "\n" + master[20:]:                                             false,
		"whsec_":                                                                     false,
		"":                                                                           false,
	} {
		secret, err := callback.ParseSecret(text)
		switch {
		case !valid && (!errors.Is(err, callback.ErrSecret) || !secret.IsZero()):
			t.Errorf("%q: %v, want ErrSecret", text, err)
		case valid && (err != nil || secret.Plaintext() != text):
			t.Errorf("%q: %v, %q", text, err, secret.Plaintext())
		}
	}
}

// The secret of a tenant is derived as documented, so that another program can
// derive it too, and it differs between tenants.
func TestSecretForTenant(t *testing.T) {
	t.Parallel()
	one, other := uuid.MustParse("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"), uuid.Must(uuid.NewV7())
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(master, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"))
	want := "whsec_" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if got := parse(t, master).ForTenant(one).Plaintext(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if parse(t, master).ForTenant(other).Plaintext() == want {
		t.Error("two tenants have the same secret")
	}
	if none := (callback.Secret{}); !none.IsZero() || none.Plaintext() != "" {
		t.Error("the zero value is a secret")
	}
}

func TestSecretIsNotShown(t *testing.T) {
	t.Parallel()
	secret := parse(t, master)
	own := secret.ForTenant(uuid.Must(uuid.NewV7()))
	v, err := callback.New(callback.Config{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	_, wrong := callback.ParseSecret(master + "x")
	for what, value := range map[string]any{
		"secret": secret, "pointer": &secret, "tenant's": own, "config": callback.Config{Secret: secret}, "error": wrong,
		// as text only: its client has state that is shared with running calls
		"validator": fmt.Sprintf("%v %+v %#v", v, v, v),
	} {
		secrettest.AssertAbsent(t, secrettest.Shown(value), master, own.Plaintext())
		if what == "secret" && !strings.Contains(secrettest.Shown(value), "whsec_…") {
			t.Error("nothing was captured")
		}
	}
}
