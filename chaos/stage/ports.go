package stage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort finds a port for a program that gives it back and takes it again. It lies below those that the kernel gives to
// outgoing connections, so that none of these has it when the program comes back.
func FreePort(ctx context.Context) (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(10_000) //nolint:gosec // any port will do
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, ErrNoPort
}
