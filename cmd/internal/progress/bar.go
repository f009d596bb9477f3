package progress

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
)

// Bar is how far a command has come. The zero value draws nothing.
type Bar struct{ drawn *progressbar.ProgressBar }

// New makes a bar on w for a total number of things, each a unit: "decided" is
// shown as the rate "1200 decided/s". It draws nothing if w is nil or a file that
// is not a terminal.
func New(w io.Writer, total int64, unit string) Bar {
	if w == nil {
		return Bar{}
	}
	if f, ok := w.(*os.File); ok && !IsTerminal(f) {
		return Bar{}
	}
	drawn := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
	)
	_ = drawn.RenderBlank()
	return Bar{drawn}
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	at, err := f.Stat()
	return err == nil && at.Mode()&os.ModeCharDevice != 0
}

// Set draws the bar with that many of the things done. Errors mean that the
// terminal is gone, and are ignored.
func (b Bar) Set(done int64) {
	if b.drawn != nil {
		_ = b.drawn.Set64(done)
	}
}

// SetTotal changes the total.
func (b Bar) SetTotal(total int64) {
	if b.drawn != nil {
		b.drawn.ChangeMax64(total)
	}
}

// Describe sets the text before the bar.
func (b Bar) Describe(text string) {
	if b.drawn != nil {
		b.drawn.Describe(text)
	}
}

// Finish removes the bar.
func (b Bar) Finish() {
	if b.drawn != nil {
		_ = b.drawn.Finish()
	}
}
