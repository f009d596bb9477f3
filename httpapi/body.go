package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
)

// bodyMax is the size of the largest JSON body, in bytes.
const bodyMax = 64 << 10

// payload is a JSON body that says how its fields are read. The fields read into the value it is asked of.
type payload interface{ fields() []field }

// none is the body of a call that has nothing to say: no body, or an empty object.
type none struct{}

func (*none) fields() []field { return nil }

// decode reads the call's JSON body into to.
//
// Errors: errMediaType, *http.MaxBytesError, errMalformed, faults.
func (c *call) decode(to payload) error {
	if err := c.takes("application/json"); err != nil {
		return err
	}
	limited, err := c.limited(bodyMax)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(bodyReader{limited})
	if err != nil {
		return err
	}
	return decodeObject(body, to.fields())
}

// limited is the body, which fails with an *http.MaxBytesError past the limit. One that says beforehand that it is longer
// is not begun.
func (c *call) limited(limit int64) (io.Reader, error) {
	if c.r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return http.MaxBytesReader(c.w, c.r.Body, limit), nil
}

// takes returns errMediaType unless the body, if there is one, has one of the media types. A body that names none is
// taken for the first.
func (c *call) takes(types ...string) error {
	sent, _, err := only(c.r.Header, "Content-Type")
	if err != nil {
		return fmt.Errorf("%w: more than one", errMediaType)
	}
	if c.r.ContentLength == 0 || sent == types[0] || sent == "" {
		return c.unencoded()
	}
	mediaType, parameters, err := mime.ParseMediaType(sent)
	if err != nil {
		return fmt.Errorf("%w: %.100q", errMediaType, sent)
	}
	if charset, ok := parameters["charset"]; ok && !isUTF8(charset) {
		return fmt.Errorf("%w: charset %.100q", errMediaType, charset)
	}
	if !slices.Contains(types, mediaType) {
		return fmt.Errorf("%w: %.100q", errMediaType, mediaType)
	}
	return c.unencoded()
}

func isUTF8(charset string) bool {
	switch charset {
	case "utf-8", "UTF-8", "utf8", "UTF8", "us-ascii", "US-ASCII":
		return true
	}
	return false
}

func (c *call) unencoded() error {
	for _, encoding := range c.r.Header.Values("Content-Encoding") {
		if encoding != "" && encoding != "identity" {
			return fmt.Errorf("%w: content encoding %.100q", errMediaType, encoding)
		}
	}
	return nil
}

// bodyReader marks whatever keeps a body from being read, so that it is not taken for an error of the database.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == nil || err == io.EOF { // an error that wraps io.EOF is not the end
		return n, err
	}
	return n, &bodyError{err}
}

// bodyError says that a body could not be read to its end.
type bodyError struct{ cause error }

func (e *bodyError) Error() string { return "read the body: " + e.cause.Error() }

// Is makes it errStopping if the program cut the body off, else errMalformed. Of its other causes it shows only that there
// was too much.
func (e *bodyError) Is(target error) bool {
	if errors.Is(e.cause, errStopping) {
		return target == errStopping
	}
	return target == errMalformed
}

// isLate reports whether the body did not arrive in time.
func (e *bodyError) isLate() bool { return errors.Is(e.cause, os.ErrDeadlineExceeded) }

// As shows the cause if it is that there was too much.
func (e *bodyError) As(target any) bool {
	tooMuch, ok := target.(**http.MaxBytesError)
	return ok && errors.As(e.cause, tooMuch)
}
