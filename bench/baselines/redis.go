package baselines

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// holdScript is atomic because Redis runs one script at a time. It leaves what the other ways leave: a counter, a hold
// that a cart's page and an expiry job find, and a record.
const holdScript = `
local stock = redis.call('HMGET', KEYS[1], 'stock', 'reserved')
if tonumber(stock[1]) - tonumber(stock[2]) < tonumber(ARGV[3]) then return 0 end
redis.call('HINCRBY', KEYS[1], 'reserved', ARGV[3])
redis.call('HSET', KEYS[2], 'variant', ARGV[5], 'cart', ARGV[2], 'quantity', ARGV[3], 'status', 'held', 'expires_at', ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
redis.call('RPUSH', KEYS[4], ARGV[1])
return 1`

// Redis is a private redis-server with an append-only file that is synced before each answer.
type Redis struct {
	dir    string
	socket string
	cmd    *exec.Cmd
	script string
}

// StartRedis starts a server on a socket in a temporary folder. Stop must follow. exec.ErrNotFound: no redis-server.
func StartRedis(ctx context.Context) (_ *Redis, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	r := &Redis{}
	if r.dir, err = os.MkdirTemp("", "hfredis-"); err != nil {
		return nil, err
	}
	r.socket = filepath.Join(r.dir, "s")
	r.cmd = exec.Command(path, "--port", "0", "--unixsocket", r.socket, "--dir", r.dir, "--appendonly", "yes", //nolint:noctx // Stop ends it
		"--appendfsync", "always", "--save", "", "--daemonize", "no", "--logfile", filepath.Join(r.dir, "log"))
	if err := r.cmd.Start(); err != nil {
		_ = os.RemoveAll(r.dir) // the first error counts
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	defer func() {
		if err != nil {
			r.Stop()
		}
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := r.load(ctx)
		if err == nil {
			return r, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// load gives the server the script.
func (r *Redis) load(ctx context.Context) error {
	c, err := r.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	r.script, err = c.text("SCRIPT", "LOAD", holdScript)
	return err
}

// Stop ends the server and removes its files.
func (r *Redis) Stop() {
	_ = r.cmd.Process.Kill() // it has ended, or must
	_ = r.cmd.Wait()
	_ = os.RemoveAll(r.dir) // temporary
}

// Reset empties the server and gives a variant its units.
func (r *Redis) Reset(ctx context.Context, shop Shop) error {
	c, err := r.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.text("FLUSHALL"); err != nil {
		return err
	}
	for n := range shop.Variants {
		if _, err := c.number("HSET", stockKey(VariantID(n)), "stock", strconv.FormatInt(shop.Stock, 10), "reserved", "0"); err != nil {
			return err
		}
	}
	return nil
}

// Check fails unless the server holds exactly the given number of holds of the shop's first variant.
func (r *Redis) Check(ctx context.Context, holds int64) error {
	c, err := r.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	due, err := c.number("ZCARD", dueKey)
	if err != nil {
		return err
	}
	recorded, err := c.number("LLEN", recordKey)
	if err != nil {
		return err
	}
	reserved, err := c.number("HINCRBY", stockKey(VariantID(0)), "reserved", "0")
	if err == nil && (due != holds || recorded != holds || reserved != holds) {
		err = fmt.Errorf("redis does not add up: %d holds were answered, %d are there, %d recorded, %d units reserved", holds, due, recorded, reserved)
	}
	return err
}

const dueKey, recordKey = "due", "record"

func stockKey(variant string) string { return "stock:" + variant }

// RedisClient is one connection, for one caller.
type RedisClient struct {
	script string
	conn   net.Conn
	in     *bufio.Reader
	out    []byte
}

// Dial opens a connection.
func (r *Redis) Dial(ctx context.Context) (*RedisClient, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return nil, err
	}
	return &RedisClient{script: r.script, conn: conn, in: bufio.NewReader(conn)}, nil
}

// Close closes the connection.
func (c *RedisClient) Close() { _ = c.conn.Close() } // nothing is lost by it

// Hold holds the units. Errors: ErrSoldOut.
func (c *RedisClient) Hold(_ context.Context, r Request) error {
	id := r.HoldID.String()
	held, err := c.number("EVALSHA", c.script, "4", stockKey(r.VariantID), "hold:"+id, dueKey, recordKey,
		id, r.CartID, strconv.FormatInt(r.Quantity, 10), strconv.FormatInt(time.Now().Add(ttl).Unix(), 10), r.VariantID)
	if err == nil && held == 0 {
		return ErrSoldOut
	}
	return err
}
