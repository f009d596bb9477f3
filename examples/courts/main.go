package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/reservations"
)

// Hours are a part of a day. Two of them may overlap.
type Hours struct{ From, Until int64 }

// Interval makes the kernel count the courts at the hour at which most are taken.
func (h Hours) Interval() (start, end int64) { return h.From, h.Until }

// Courts are what is booked: any of them, on a day, for some hours. What is paid
// stays taken.
type Courts struct {
	reservations.HeldAndCommitted[string, Hours]
}

// Capacity is how many courts the club has.
func (Courts) Capacity(ctx context.Context, tx pgx.Tx, club uuid.UUID, _ string, _ Hours) (courts int64, err error) {
	err = tx.QueryRow(ctx, `SELECT courts FROM clubs WHERE id = $1`, club).Scan(&courts)
	return courts, err
}

func main() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err = migrations.Up(ctx, db, nil); err == nil {
		err = bookDay(ctx, db, os.Stdout)
	}
	db.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// bookDay lets five members book the two courts of a new club on one day.
func bookDay(ctx context.Context, db *pgxpool.Pool, out io.Writer) error {
	club := uuid.New()
	if _, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS clubs (id uuid PRIMARY KEY, courts bigint NOT NULL)`); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `INSERT INTO clubs VALUES ($1, 2)`, club); err != nil {
		return err
	}
	kernel, err := reservations.NewKernel(db, Courts{"tennis.court"}, reservations.Config{})
	if err != nil {
		return err
	}
	const day = "2027-05-01"
	for _, b := range []struct {
		member string
		hours  Hours
		pays   bool
	}{
		{"ann", Hours{9, 11}, true},
		{"ben", Hours{10, 12}, true},
		{"cem", Hours{10, 11}, true},   // both courts are taken from ten to eleven
		{"dana", Hours{11, 12}, false}, // ann's court is free again
		{"eve", Hours{11, 12}, true},
	} {
		by := reservations.By(club, audit.User(b.member))
		booking, err := kernel.Hold(ctx, by, day, b.hours, reservations.HoldOpts{Quantity: 1, TTL: 5 * time.Minute})
		if full, ok := errors.AsType[*reservations.InsufficientError](err); ok {
			fmt.Fprintf(out, "%s: no court from %d to %d, %d of %d are free\n", b.member, b.hours.From, b.hours.Until, full.Available, full.Capacity)
			continue
		} else if err != nil {
			return err
		}
		if b.pays {
			_, err = kernel.Commit(ctx, by, booking)
		} else {
			_, err = kernel.Release(ctx, by, booking, reservations.PaymentFailed)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d to %d, paid: %t\n", b.member, b.hours.From, b.hours.Until, b.pays)
	}
	return nil
}
