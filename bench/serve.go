package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/baselines"
)

// serveCommand makes this program a synchronous service. Only the program
// itself starts it, so that a service is a separate process.
const serveCommand = "serve"

// form is a baseline behind HTTP, with the number of connections that suits it
// best.
type form struct {
	conns int
	make  func(*pgxpool.Pool) baselines.Holder
}

const (
	formTransaction = "transaction"
	formPipelined   = "pipelined"
	formMicroBatch  = "micro-batch"
	formNothing     = "nothing"
)

var forms = map[string]form{
	formTransaction: {16, transaction},
	formPipelined:   {2, pipelined},
	formMicroBatch:  {2, microBatch},
	formNothing:     {1, holdNothing},
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	name := flags.String("form", "", "how units are held")
	database := flags.String("database", "", "the database's URL")
	address := flags.String("address", "", "where to listen")
	ttl := flags.Duration("ttl", 0, "how long a hold lasts, after which it is expired; 0 for 15m and no expiry")
	if err := flags.Parse(args); err != nil {
		return err
	}
	form, known := forms[*name]
	if !known {
		return fmt.Errorf("there is no form %q", *name)
	}
	if *ttl != 0 && *name != formTransaction {
		return fmt.Errorf("a hold lasts 15m in form %q", *name)
	}
	db, err := openPool(ctx, *database, form.conns, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	keys, err := openPool(ctx, *database, 1, nil)
	if err != nil {
		return err
	}
	defer keys.Close()
	holder := form.make(db)
	defer start(context.WithoutCancel(ctx), holder)()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	carts := &baselines.Carts{DB: db, TTL: *ttl}
	server := &http.Server{Handler: baselines.NewService(keys, holder, carts), ReadHeaderTimeout: 10 * time.Second}
	served, expired := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if *ttl != 0 {
		go func() { expired <- (&baselines.ExpireBatch{DB: db}).Run(ctx) }()
	}
	select {
	case err := <-served:
		return err
	case err := <-expired:
		if err != nil {
			return err
		}
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(stopping)
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}
