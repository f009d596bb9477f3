package baselines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast/holdfast/internal/sleep"
)

// holdScript is atomic because Redis runs one script at a time. It leaves what
// the other baselines leave: a counter, a hold that a cart's page and an expiry
// job find, and a record.
var holdScript = redis.NewScript(`
local stock = redis.call('HMGET', KEYS[1], 'stock', 'reserved')
if tonumber(stock[1]) - tonumber(stock[2]) < tonumber(ARGV[3]) then return 0 end
redis.call('HINCRBY', KEYS[1], 'reserved', ARGV[3])
redis.call('HSET', KEYS[2], 'variant', ARGV[5], 'cart', ARGV[2], 'quantity', ARGV[3], 'status', 'held', 'expires_at', ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
redis.call('RPUSH', KEYS[4], ARGV[1])
return 1`)

// Redis is a private redis-server with an append-only file that is synced
// before each answer, and a client of it. It is safe for concurrent use.
type Redis struct {
	dir    string
	cmd    *exec.Cmd
	client *redis.Client
}

// StartRedis starts a server on a socket in a temporary folder and waits at
// most 10 seconds for its first answer. The client has up to the given number
// of connections. Stop must follow. Errors: exec.ErrNotFound without a
// redis-server on the PATH.
func StartRedis(ctx context.Context, connections int) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hfredis-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	r := &Redis{dir: dir, client: newClient(redis.Options{Network: "unix", Addr: socket, PoolSize: connections})}
	r.cmd = exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--appendonly", "yes", //nolint:noctx // Stop ends it
		"--appendfsync", "always", "--save", "", "--daemonize", "no", "--logfile", filepath.Join(dir, "log"))
	if err := r.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir) // the first error counts
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	if err := r.ready(ctx); err != nil {
		r.Stop()
		return nil, fmt.Errorf("redis-server does not answer: %w", err)
	}
	return r, nil
}

// newClient makes a client that sends nothing but the commands of this file,
// and each of them once.
func newClient(o redis.Options) *redis.Client {
	o.MaxRetries = -1
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

func (r *Redis) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := r.client.Ping(ctx).Err()
		if err == nil || sleep.For(ctx, 5*time.Millisecond) != nil {
			return err
		}
	}
}

// Stop ends the server and removes its files.
func (r *Redis) Stop() {
	_ = r.client.Close()     // nothing is lost by it
	_ = r.cmd.Process.Kill() // it has ended, or must
	_ = r.cmd.Wait()
	_ = os.RemoveAll(r.dir) // temporary
}

// Reset empties the server, loads the script, and gives each variant its units.
func (r *Redis) Reset(ctx context.Context, shop Shop) error {
	if err := r.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := holdScript.Load(ctx, r.client).Err(); err != nil {
		return err
	}
	for n := range shop.Variants {
		if err := r.client.HSet(ctx, stockKey(VariantID(n)), "stock", shop.Stock, "reserved", 0).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Check fails unless the server has exactly the given number of holds of one
// unit, all of the shop's first variant.
func (r *Redis) Check(ctx context.Context, holds int64) error {
	due, err1 := r.client.ZCard(ctx, dueKey).Result()
	recorded, err2 := r.client.LLen(ctx, recordKey).Result()
	reserved, err3 := r.client.HGet(ctx, stockKey(VariantID(0)), "reserved").Int64()
	err := errors.Join(err1, err2, err3)
	if err == nil && (due != holds || recorded != holds || reserved != holds) {
		err = fmt.Errorf("redis does not add up: %d holds were answered, %d are there, %d recorded, %d units reserved", holds, due, recorded, reserved)
	}
	return err
}

const dueKey, recordKey = "due", "record"

func stockKey(variant string) string { return "stock:" + variant }

// Hold holds the units. Errors: ErrSoldOut.
func (r *Redis) Hold(ctx context.Context, q Request) error {
	id := q.HoldID.String()
	held, err := holdScript.EvalSha(ctx, r.client, []string{stockKey(q.VariantID), "hold:" + id, dueKey, recordKey},
		id, q.CartID, q.Quantity, time.Now().Add(ttl).Unix(), q.VariantID).Bool()
	if err == nil && !held {
		return ErrSoldOut
	}
	return err
}
