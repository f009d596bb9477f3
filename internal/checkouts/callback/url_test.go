package callback_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/inventory"
)

// What is wrong with a URL, as the caller reads it.
const (
	form      = "must be an absolute URL, https://host/path"
	scheme    = "must have the scheme https"
	notPublic = "must have a host that exists and whose addresses are all public"
	port      = "must have a port from 1 to 65535"
)

func TestValidateURL(t *testing.T) {
	t.Parallel()
	resolver := serveZone(t, map[string]string{
		"pay.shop.example":     "93.184.215.14",
		"private.shop.example": "10.1.2.3",
		"mixed.shop.example":   "93.184.215.14 127.0.0.1",
		"meta.shop.example":    "169.254.169.254",
	})
	v, err := callback.New(callback.Config{Secret: parse(t, master), Resolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	private, err := callback.New(callback.Config{Secret: parse(t, master), Resolver: resolver, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]struct{ public, private string }{
		"https://pay.shop.example/paid?shop=1":           {"", ""},
		"https://pay.shop.example:8443":                  {"", ""},
		"https://pay.shop.example:/":                     {"", ""},
		"https://pay.shop.example:65535/":                {"", ""},
		"https://pay.shop.example:65536/":                {port, port},
		"https://93.184.215.14:0/":                       {port, port},
		"https://93.184.215.14/":                         {"", ""},
		"https://[2606:2800:21f::1]/":                    {"", ""},
		"https://broken.shop.example/":                   {"", ""}, // a server failure: it may work later
		"http://pay.shop.example/":                       {scheme, ""},
		"https://private.shop.example/":                  {notPublic, ""},
		"https://mixed.shop.example/":                    {notPublic, ""},
		"https://meta.shop.example/":                     {notPublic, ""},
		"https://nowhere.shop.example/":                  {notPublic, ""},
		"https://localhost/":                             {notPublic, ""},
		"https://127.0.0.1/":                             {notPublic, ""},
		"https://[::1]/":                                 {notPublic, ""},
		"https://[::ffff:10.0.0.1]/":                     {notPublic, ""},
		"https://169.254.169.254/latest":                 {notPublic, ""},
		"http://127.0.0.1:8080/":                         {scheme, ""},
		"https://user@pay.shop.example/":                 {"must not contain a user or a password", "must not contain a user or a password"},
		"https://u:p@pay.shop.example/":                  {"must not contain a user or a password", "must not contain a user or a password"},
		"https://pay.shop.example/#top":                  {"must not contain a fragment", "must not contain a fragment"},
		"pay.shop.example/paid":                          {form, form},
		"//pay.shop.example/paid":                        {form, form},
		"https:pay.shop.example":                         {form, form},
		"https:///paid":                                  {form, form},
		"https://:443/":                                  {form, form},
		"https://pay.shop.example:port/":                 {form, form},
		"ftp://pay.shop.example/":                        {form, form},
		"file:///etc/passwd":                             {form, form},
		"https://pay.shop.example/%zz":                   {form, form},
		"":                                               {"must not be empty", "must not be empty"},
		"https://pay.shop.example/\n":                    {"must not contain control characters", "must not contain control characters"},
		"https://a.example/" + strings.Repeat("a", 2000): {"must be at most 2000 characters", "must be at most 2000 characters"},
	} {
		got := struct{ public, private string }{problem(t, v, url), problem(t, private, url)}
		if diff := cmp.Diff(want.public, got.public); diff != "" {
			t.Errorf("%q (-want +got):\n%s", url, diff)
		}
		if diff := cmp.Diff(want.private, got.private); diff != "" {
			t.Errorf("%q where private addresses are allowed (-want +got):\n%s", url, diff)
		}
	}
}

// problem validates a URL and returns what is wrong with it.
func problem(t *testing.T, v *callback.Validator, url string) string {
	t.Helper()
	err := v.ValidateURL(context.Background(), "callback_url", url)
	if err == nil {
		return ""
	}
	wrong, ok := err.(*inventory.InvalidError)
	if !ok || wrong.Field != "callback_url" {
		t.Fatalf("%q: %v", url, err)
	}
	return wrong.Message
}
