package boot

import "testing"

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:8080": true, "localhost.": true, "shop.localhost:80": true,
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.9.8.7:1": true, "[::1]": true, "[::1]:8080": true, "::1": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":8080": false, "evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "notlocalhost": false,
		"127.0.0.1.evil.example": false, "0.0.0.0:8080": false, "10.0.0.1:8080": false, "192.168.1.2": false, "[2001:db8::1]:80": false,
		"[::ffff:10.0.0.1]": false, "localhost:80:80": false, "127.1": false, "2130706433": false, ".": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}
