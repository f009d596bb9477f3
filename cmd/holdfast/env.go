package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/config"
)

// stateFolder returns the folder that keeps what a run on the port leaves for
// the next run and for `holdfast env`: below XDG_STATE_HOME, which is
// ~/.local/state by default. For root it is below /var/lib, because the user of
// the private Postgres cannot reach root's home. It is empty if HOME is not set.
func stateFolder(process boot.Process, port int) string {
	state, _ := process.Env.Lookup("XDG_STATE_HOME")
	home, _ := process.Env.Lookup("HOME")
	switch {
	case filepath.IsAbs(state): // the specification ignores any other path
	case os.Geteuid() == 0:
		state = "/var/lib"
	case filepath.IsAbs(home):
		state = filepath.Join(home, ".local", "state")
	default:
		return ""
	}
	return filepath.Join(state, "holdfast", strconv.Itoa(port))
}

// instance is a running all-in-one.
type instance struct {
	URL      string `json:"url"`
	Key      string `json:"key"`
	Database string `json:"database"`
}

const (
	instanceFile = "instance.json"
	// databaseFile has the address of the last instance's database. It stays
	// when the instance ends.
	databaseFile = "database"
)

// leavePrivate makes the program start a private Postgres if DATABASE_URL is
// that of an earlier run of this user, which the terminal has from `holdfast
// env`: it may have ended, and a demo does not sell in the database of a run.
// The random password identifies it, because its port changes.
func leavePrivate(process boot.Process, program *boot.Program) {
	address, err := url.Parse(program.Config.Database.URL)
	if err != nil || address.User == nil {
		return
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(stateFolder(process, 0)), "*", databaseFile))
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may be another user's
		last, err := url.Parse(string(text))
		if err == nil && last.User.String() == address.User.String() {
			program.Config.Database.URL = ""
		}
	}
}

// save stores the instance for `holdfast env`, readable by this user only, and
// returns a function that removes it. private is whether a later run may
// recognise its database as private.
func (i instance) save(process boot.Process, private bool) (remove func(), err error) {
	u, err := url.Parse(i.URL)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil, err
	}
	folder := stateFolder(process, port)
	if folder == "" {
		return nil, errors.New("neither HOME nor XDG_STATE_HOME is set")
	}
	text, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, instanceFile)
	_ = os.Remove(file) // of an earlier run, perhaps with other permissions
	last := filepath.Join(folder, databaseFile)
	_ = os.Remove(last)
	err = errors.Join(os.MkdirAll(folder, 0o711), os.WriteFile(file, text, 0o600))
	if err == nil && private {
		err = os.WriteFile(last, []byte(i.Database), 0o600)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(file)
		_ = os.Remove(folder) // fails if it has another file, or the data
	}, nil
}

type envCommand struct {
	Port *int `help:"Port of the running service. Default: PORT, else 8080." placeholder:"N"`
}

// answerWithin is how long the service may take to answer `holdfast env`.
const answerWithin = 10 * time.Second

// Run prints the variables of the service that `holdfast run` serves on the
// port, in the form of a shell, after the service has answered a call with the
// key. Otherwise it prints nothing on stdout.
func (c *envCommand) Run(ctx context.Context, process boot.Process) error {
	settings, err := config.Load(ctx, process.Env)
	if err != nil {
		return err
	}
	port := settings.Port
	if c.Port != nil {
		port = *c.Port
	}
	none := fmt.Errorf("no `holdfast run` of this user serves port %d: start it, or name its port with --port", port)
	text, err := os.ReadFile(filepath.Join(stateFolder(process, port), instanceFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return none
	}
	if err != nil {
		return fmt.Errorf("read the running service: %w", err)
	}
	var i instance
	if err := json.Unmarshal(text, &i); err != nil {
		return none // it is being written
	}
	api, err := clientOf(i.URL, i.Key)
	if err != nil {
		return none
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := api.do(ctx, http.MethodGet, "/v1/lanes", nil, nil); err != nil { // it was killed
		return fmt.Errorf("%w (%w)", none, err)
	}
	for _, v := range []struct{ name, value string }{{"HOLDFAST_URL", i.URL}, {"HOLDFAST_KEY", i.Key}, {"DATABASE_URL", i.Database}} {
		fmt.Fprintf(process.Stdout, "export %s=%s\n", v.name, quoted(v.value))
	}
	return nil
}

// quoted returns the text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
