package stage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort finds a port for a program that is stopped and started again. It is
// below the range of ports for outgoing connections, so that no connection
// takes it while the program is down.
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
