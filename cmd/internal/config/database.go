package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// databaseForm is the form of DATABASE_URL.
const databaseForm = "postgres://user:password@host:5432/database"

// ErrNoDatabase means that a program that needs a database has none configured.
var ErrNoDatabase = errors.New("DATABASE_URL is not set: name the database, " + databaseForm +
	" (`holdfast run` starts a private Postgres without it and prints its URL)")

// ParseDatabase reads the value of DATABASE_URL. The error shows the form and
// the reason, but no part of the value, which contains a password. The driver's
// own error masks the password only where the driver can find it.
func ParseDatabase(value string) (*pgxpool.Config, error) {
	isURL := strings.HasPrefix(value, "postgres://") || strings.HasPrefix(value, "postgresql://")
	keyword, _, isPair := strings.Cut(value, "=")
	// The driver reads the URL of another kind of database as a keyword=value
	// pair if the URL has a parameter.
	isPair = isPair && !isURL && !strings.ContainsAny(keyword, ":/")
	if !isURL && !isPair {
		return nil, databaseError("the value does not begin with postgres://")
	}
	c, err := pgxpool.ParseConfig(value)
	if err == nil {
		return c, nil
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok { // a certificate
		return nil, databaseError(file.Error())
	}
	if isPair {
		return nil, databaseError("the value is neither that nor a list of keyword=value")
	}
	return nil, databaseError("what follows postgres:// cannot be read; a special character of the password is written " +
		"as %2F for /, %40 for @, %25 for % and so on")
}

func databaseError(reason string) error {
	return fmt.Errorf("DATABASE_URL must be %s: %s", databaseForm, reason)
}
